// The *_perf programs on GPU memory, where there is no GPU: threads run the kernels
// (cuda_host_device.h), and this file does CUDA's part. The tests show what the programs do; not
// that CUDA does it (gpu_test and gpu-check are for that).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "bench/perf/gpu.h"
#include "bench/perf/options.h"
#include "bench/perf/runner.h"
#include "comm/impl.h"
#include "tests/bench/perf_run.h"
#include "tests/collectives/cuda/cuda_host_device.h"

namespace {

// What is the GPU's, by its first byte.
std::mutex mutex;
std::set<const std::byte*> gpu_memory;
std::atomic<int> recorded{0}, launched{0}, copies{0};
std::atomic<bool> busy{false};

}  // namespace

namespace tutti::perf::gpu {

int count(std::string&) { return 2; }
Description describe(int device) { return {"0000:0" + std::to_string(device), "threads"}; }
void use(int) {}
std::byte* allocate(std::size_t bytes) {
  auto* const memory = static_cast<std::byte*>(std::calloc(bytes, 1));
  const std::lock_guard lock(mutex);
  gpu_memory.insert(memory);
  return memory;
}
void deallocate(std::byte* memory) noexcept {
  const std::lock_guard lock(mutex);
  gpu_memory.erase(memory);
  std::free(memory);
}
std::int64_t memory_in_use() { return 1 << 20; }

// A launch has ended when it returns, so streams are always idle.
Stream::Stream() : stream_(std::malloc(1)) {}
Stream::~Stream() { std::free(stream_); }
void Stream::copy(void* to, const void* from, std::size_t bytes) const {
  ++copies;
  std::memcpy(to, from, bytes);
}
bool Stream::idle() const { return !busy; }

// Recording runs the work; a launch is counted.
Graph::Graph(const Stream& stream) : stream_(stream.handle()) { ++recorded; }
Graph::~Graph() = default;
void Graph::finish() { graph_ = stream_; }
void Graph::launch() const {
  EXPECT_EQ(graph_, stream_) << "launched before it was finished";
  ++launched;
}

Event::Event(const Stream& stream) : stream_(stream.handle()) {}
Event::~Event() = default;
void Event::record() { event_ = stream_; }
double Event::microseconds_since(const Event& earlier) const {
  EXPECT_EQ(event_, earlier.event_) << "of two streams";
  EXPECT_NE(event_, nullptr) << "not recorded";
  return 7;
}

}  // namespace tutti::perf::gpu

namespace tutti::perf {
namespace {

std::shared_ptr<test::HostDevice> the_device;

Gpus thread_gpus() {
  return {[](const void*) { return 0; }, [] { return 0; },
          [](int) -> std::shared_ptr<device::Device> { return the_device; }};
}

class PerfGpu : public testing::Test {
 protected:
  void SetUp() override {
    the_device = std::make_shared<test::HostDevice>();
    recorded = launched = copies = 0;
  }
  void TearDown() override {
    the_device.reset();
    EXPECT_TRUE(gpu_memory.empty());
  }

  // Rank 0's output.
  static std::string run(Collective collective, const std::string& line) {
    std::istringstream words(line);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    const ParsedOptions parsed = parse_options(program_name(collective), arguments);
    EXPECT_TRUE(parsed.run) << parsed.text;
    const PerfOptions& options = parsed.options;
    const int each = options.gpus;
    std::optional<bench::NcclFunctions> nccl;
    if (!options.nccl.empty()) nccl.emplace(options.nccl, collective);
    std::vector<Communicator> ranks = Communicator::create_local(options.threads * each);
    std::vector<Communicator> threads = Communicator::create_local(options.threads);
    for (Communicator& c : ranks) c.impl().gpus = thread_gpus();
    testing::internal::CaptureStdout();
    {
      std::vector<std::jthread> running;
      for (int t = 0; t < options.threads; ++t) {
        running.emplace_back([&, t] {
          ThreadRanks mine;
          mine.threads = std::move(threads[static_cast<std::size_t>(t)]);
          for (int r = 0; r < each; ++r) {
            mine.communicators.push_back(std::move(ranks[static_cast<std::size_t>(t * each + r)]));
            mine.devices.push_back(0);
          }
          EXPECT_EQ(Runner(mine, collective, options, nccl ? &*nccl : nullptr, {}).run(), 0u)
              << line;
        });
      }
    }
    return testing::internal::GetCapturedStdout();
  }
};

class PerfGpuCollectives : public PerfGpu, public testing::WithParamInterface<Collective> {};

TEST_P(PerfGpuCollectives, SeveralRanksOfAThread) {
  EXPECT_EQ(rows(run(GetParam(), "-g 3 -b 48 -e 4800 -f 10 -n 3 -w 1 -c 2")), 3u);
}

INSTANTIATE_TEST_SUITE_P(All, PerfGpuCollectives, all_collectives(),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_F(PerfGpu, SaysWhichMemoryItIs) {
  const std::string output = run(Collective::all_reduce, "-g 2 -b 8 -e 8 -n 1 -M 1");
  EXPECT_NE(output.find("nGpus 2 "), std::string::npos) << output;
  EXPECT_NE(output.find("device  0 [0000:00] threads, GPU memory\n"), std::string::npos) << output;
}

// A thread's ranks on a GPU are one kernel; those of two threads are two.
TEST_F(PerfGpu, LaunchesOneKernelForTheRanksOfAThread) {
  run(Collective::all_reduce, "-g 4 -b 64 -e 64 -n 5 -w 2 -c 0");
  EXPECT_EQ(the_device->launches, 2 * (2 + 5)) << "out of place and in place";
  EXPECT_EQ(copies, 0) << "nothing is filled that nobody looks at";
  the_device->launches = 0;
  run(Collective::all_reduce, "-t 2 -g 1 -b 64 -e 64 -n 5 -w 2 -c 0");
  EXPECT_EQ(the_device->launches, 2 * 2 * (2 + 5));
}

TEST_F(PerfGpu, Graph) {
  const std::string output = run(Collective::all_reduce, "-g 2 -b 64 -e 64 -n 5 -w 1 -c 0 -G 7");
  EXPECT_EQ(recorded, 2);
  EXPECT_EQ(launched, 2 * 7);
  EXPECT_EQ(the_device->launches, 2 * (1 + 5)) << "recorded once";
  EXPECT_NE(output.find(" graph: 7 "), std::string::npos) << output;
}

// It does nothing, so its results are wrong, which is not Tutti's fault. Its ranks have a stream
// each.
TEST_F(PerfGpu, AnotherLibraryBesideIt) {
  unsetenv("REFUSING_NCCL");
  std::string output = run(Collective::all_reduce,
                           "-g 3 -b 64 -e 64 -n 5 -w 1 -G 7 -o mulsum --nccl " REFUSING_NCCL);
  EXPECT_NE(output.find("# NCCL is not measured any more: ncclRedOpCreatePreMulSum"),
            std::string::npos)
      << output;
  recorded = launched = 0;
  output = run(Collective::all_reduce, "-g 3 -b 64 -e 64 -n 5 -w 1 -G 7 --nccl " REFUSING_NCCL);
  EXPECT_EQ(output.find("not measured any more"), std::string::npos) << output;
  EXPECT_EQ(recorded, 2 * 2 * (1 + 3)) << "out of place and in place, twice: Tutti's, and these";
  EXPECT_EQ(launched, 7 * recorded);
  EXPECT_NE(output.find("# Out of bounds values : 0 OK\n"), std::string::npos) << output;
  output = run(Collective::all_reduce,
               "-t 2 -g 2 -b 64 -e 64 -n 5 -I 1 -z 2 -R 1 --nccl " REFUSING_NCCL);
  EXPECT_NE(output.find("# NCCL is not measured any more: it cannot register memory"),
            std::string::npos)
      << output;
}

TEST_F(PerfGpu, AnotherLibraryThatHangsIsAborted) {
  unsetenv("REFUSING_NCCL");
  PerfOptions options;
  options.timeout_seconds = 1;
  const bench::NcclFunctions functions(REFUSING_NCCL, Collective::all_reduce);
  Communicator control = std::move(Communicator::create_local(1).front());
  const int devices[] = {0, 0};
  Nccl nccl(functions, options, control, {0, 2, 2, devices});
  EXPECT_FALSE(nccl.failure()) << *nccl.failure();
  busy = true;
  nccl.attempt([&] { nccl.finish(); });
  busy = false;
  ASSERT_TRUE(nccl.failure());
  EXPECT_EQ(*nccl.failure(), "a call has not ended in the 1 s of --timeout");
}

TEST_F(PerfGpu, IterationsAreTimedOnTheGpu) {
  const std::string output =
      run(Collective::all_reduce, "-g 2 -b 64 -e 64 -n 5 -m 7 -c 1 -I 1 -z 2");
  EXPECT_NE(output.find("     1.00     1.00     1.00     0.00"), std::string::npos) << output;
}

// More than one piece, by several threads, off alignment.
TEST_F(PerfGpu, LargeBuffersAreFilledInPieces) {
  run(Collective::all_reduce, "-g 2 -b 3M -e 3M -n 1 -u 1 -z 1");
  // Per half: before the timing and before the check, a buffer out of place has 4 pieces.
  EXPECT_GE(copies, 2 * 4 * 4);
}

TEST_F(PerfGpu, AWrongElementIsFound) {
  PerfOptions options;
  options.gpus = 1;
  options.local_register = 0;
  options.min_bytes = options.max_bytes = 5 << 20;
  const RankMemory memory(options, 0, nullptr);
  CallSetup setup;
  setup.shape = shape_of(setup.collective, options.max_bytes, setup.type, 1);
  const Data data({setup.type, ReduceKind::sum, 1, 1});
  memory.paint(data, setup);
  std::memcpy(memory.receive(setup.type), memory.send(setup.type), options.max_bytes);
  EXPECT_EQ(memory.count_wrong(data, setup), 0u);
  memory.receive(setup.type)[(5 << 20) - 1] ^= std::byte{1};
  memory.send(setup.type)[-1] ^= std::byte{1};
  EXPECT_EQ(memory.count_wrong(data, setup), 2u);
}

}  // namespace
}  // namespace tutti::perf
