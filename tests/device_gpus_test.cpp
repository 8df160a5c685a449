// Ranks of one process on several GPUs, with threads in the GPUs' place (cuda_host_device.h): one
// thread that calls for all of them, which GPU a rank is on, and what is refused.
// device_processes_test has ranks with threads of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "tests/device_memory.h"

namespace tutti::test {
namespace {

/// A device whose work is queued, so that one thread can give work to several that wait for each
/// other. Knows its memory.
class QueuedDevice : public HostDevice {
 public:
  explicit QueuedDevice(int ordinal) : ordinal_(ordinal) {}
  ~QueuedDevice() override {
    enqueue({});
    worker_.join();
  }

  bool is_private = false;  // the memory that allocate() gives: no other device can address it
  Reach links = Reach::memory;

  Identity identity() const override { return {static_cast<std::uint64_t>(ordinal_), 7}; }
  Reach reach(const Identity& other) override {
    return other == identity() ? Reach::whole_lines : links;
  }
  bool can_address(const std::byte* memory) override;
  CudaAllocation allocation(const std::byte* memory) override {
    const std::lock_guard lock(mutex_);
    auto piece = pieces_.upper_bound(memory);
    if (piece == pieces_.begin()) return {};
    --piece;
    CudaAllocation found = piece->second.memory;
    return memory < found.base + found.bytes ? found : CudaAllocation{};
  }
  CudaExport share(const std::byte*, std::size_t) override {
    ADD_FAILURE() << "there is no other process";
    return {};
  }
  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = HostDevice::allocate(bytes);
    const std::lock_guard lock(mutex_);
    pieces_[memory] = {{memory, bytes, ++allocations_, nullptr}, is_private};
    return memory;
  }
  void deallocate(std::byte* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    pieces_.erase(memory);
    HostDevice::deallocate(memory);
  }
  bool has_private(const std::byte* memory) {
    const CudaAllocation a = allocation(memory);
    const std::lock_guard lock(mutex_);
    return a.bytes > 0 && pieces_[a.base].is_private;
  }

  void launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
              device::Stream stream) override {
    enqueue([=, this] { HostDevice::launch(launch, type, blocks, stream); });
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes,
            device::Stream stream) override {
    enqueue([=, this] { HostDevice::copy(to, from, bytes, stream); });
  }
  void overwrite(std::byte* to, std::span<const std::byte> from, device::Stream) override {
    enqueue([=, this, data = std::vector(from.begin(), from.end())] { upload(to, data); });
  }
  void drain() noexcept override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty(); });
  }

 private:
  struct Piece {
    CudaAllocation memory;
    bool is_private = false;
  };

  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push(std::move(work));
    changed_.notify_all();
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const std::function<void()> next = queue_.front();
      lock.unlock();
      if (!next) return;
      next();
      lock.lock();
      queue_.pop();
      changed_.notify_all();
    }
  }

  int ordinal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::function<void()>> queue_;
  std::map<const std::byte*, Piece> pieces_;
  std::uint64_t allocations_ = 0;
  std::thread worker_{[this] { work(); }};
};

std::vector<std::shared_ptr<QueuedDevice>> gpus;

int owner_of(const void* memory) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i]->allocation(static_cast<const std::byte*>(memory)).bytes > 0) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

bool QueuedDevice::can_address(const std::byte* memory) {
  return !gpus[static_cast<std::size_t>(owner_of(memory))]->has_private(memory);
}

Gpus queued_gpus() {
  return {owner_of, [] { return 0; },
          [](int ordinal) -> std::shared_ptr<device::Device> {
            return gpus.at(static_cast<std::size_t>(ordinal));
          }};
}

/// Memory of a GPU.
class Buffer {
 public:
  Buffer(int gpu, const Data& data) : gpu_(*gpus[static_cast<std::size_t>(gpu)]) {
    memory_ = reinterpret_cast<std::int32_t*>(gpu_.allocate(4 * data.size()));
    count_ = data.size();
    std::ranges::copy(data, memory_);
  }
  Buffer(int gpu, std::size_t count) : Buffer(gpu, Data(count, -1)) {}
  Buffer(Buffer&& other) noexcept
      : gpu_(other.gpu_), memory_(std::exchange(other.memory_, nullptr)), count_(other.count_) {}
  ~Buffer() {
    if (memory_ != nullptr) gpu_.deallocate(reinterpret_cast<std::byte*>(memory_));
  }
  std::int32_t* data() const { return memory_; }
  /// When nothing runs any more.
  Data read() const { return {memory_, memory_ + count_}; }

 private:
  QueuedDevice& gpu_;
  std::int32_t* memory_ = nullptr;
  std::size_t count_ = 0;
};

Call call_on(Collective collective, const Buffer& in, const Buffer& out, std::size_t count) {
  Call call;
  call.collective = collective;
  call.in = in.data();
  call.out = out.data();
  call.count = count;
  call.type = kType;
  return call;
}

void wait_for_all() {
  for (const auto& gpu : gpus) gpu->drain();
}

/// How many GPUs, and ranks; rank r is on GPU r modulo their number.
class DeviceGpus : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override { make(std::get<0>(GetParam())); }
  void TearDown() override { gpus.clear(); }

  static void make(int count) {
    for (int i = 0; i < count; ++i) gpus.push_back(std::make_shared<QueuedDevice>(i));
  }
  static int gpu_of(int rank) { return rank % static_cast<int>(gpus.size()); }
  static void* stream(int rank) {
    return reinterpret_cast<void*>(0x1000 + 16 * std::intptr_t{rank});
  }
  static std::vector<Communicator> ranks(int count, Options options = {}) {
    std::vector<Options> each(static_cast<std::size_t>(count), options);
    for (int r = 0; r < count; ++r) each[static_cast<std::size_t>(r)].gpu = gpu_of(r);
    std::vector<Communicator> all = Communicator::create_local(each);
    for (Communicator& c : all) c.impl().gpus = queued_gpus();
    return all;
  }
  static std::vector<Buffer> inputs(int count) {
    std::vector<Buffer> all;
    for (int r = 0; r < count; ++r) all.emplace_back(gpu_of(r), input_of(r));
    return all;
  }
  static std::vector<Buffer> outputs(int count, std::size_t elements = kCount) {
    std::vector<Buffer> all;
    for (int r = 0; r < count; ++r) all.emplace_back(gpu_of(r), elements);
    return all;
  }
  /// An all_reduce of all, by one thread, in one group.
  static void sum_in_group(std::vector<Communicator>& all, const std::vector<Buffer>& in,
                           const std::vector<Buffer>& out) {
    group([&] {
      for (std::size_t r = 0; r < all.size(); ++r) {
        all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount),
                   stream(static_cast<int>(r)));
      }
    });
    wait_for_all();
  }
};

TEST_P(DeviceGpus, AGroupIsOneLaunchOnEach) {
  const int n = std::get<1>(GetParam());
  for (const char* algorithm : {"", "ring", "two_shot_window", "direct_window"}) {
    Options options;
    options.algorithm = algorithm;
    auto all = ranks(n, options);
    const auto in = inputs(n);
    const auto out = outputs(n);
    const auto gathered = outputs(n, kCount * all.size());
    Data everything;
    for (int r = 0; r < n; ++r) {
      const Data data = input_of(r);
      everything.insert(everything.end(), data.begin(), data.end());
    }
    for (const auto& gpu : gpus) gpu->launches = 0;
    for (int i = 0; i < 2; ++i) {
      group([&] {
        for (std::size_t r = 0; r < all.size(); ++r) {
          void* const on = stream(static_cast<int>(r));
          all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount), on);
          all[r].run(call_on(Collective::all_gather, in[r], gathered[r], kCount), on);
        }
      });
    }
    wait_for_all();
    for (const auto& gpu : gpus) EXPECT_EQ(gpu->launches, 4) << algorithm;
    for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(n)) << algorithm;
    for (const Buffer& g : gathered) EXPECT_EQ(g.read(), everything) << algorithm;
    const bool windows = std::string(algorithm).find("window") != std::string::npos;
    if (!windows) continue;
    EXPECT_GT(all[0].impl().team->windows()->counts().calls, 0U) << algorithm;
  }
}

TEST_P(DeviceGpus, MessagesInAGroup) {
  const int n = std::get<1>(GetParam());
  auto all = ranks(n);
  const auto in = inputs(n);
  const auto out = outputs(n);
  group([&] {
    for (int r = 0; r < n; ++r) {
      const auto index = static_cast<std::size_t>(r);
      Call call = call_on(Collective::send_recv, in[index], out[index], kCount);
      call.sends = true;
      call.peer = (r + 1) % n;
      call.out = nullptr;
      all[index].run(call, stream(r));
      call = call_on(Collective::send_recv, in[index], out[index], kCount);
      call.peer = (r + n - 1) % n;
      call.in = nullptr;
      all[index].run(call, stream(r));
    }
  });
  wait_for_all();
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(out[static_cast<std::size_t>(r)].read(), input_of((r + n - 1) % n));
  }
}

TEST_P(DeviceGpus, MemoryThatTheOthersCannotAddressIsCopied) {
  const int n = std::get<1>(GetParam());
  Options options;
  options.algorithm = "two_shot_window";
  auto all = ranks(n, options);
  const auto in = inputs(n);
  const auto out = outputs(n);
  sum_in_group(all, in, out);
  const auto& counts = all[0].impl().team->windows()->counts();
  EXPECT_EQ(counts.calls, all.size());
  EXPECT_EQ(counts.staged, 0U);
  gpus[1]->is_private = true;
  const Buffer private_in(1, input_of(1));
  gpus[1]->is_private = false;
  std::ranges::fill_n(in[1].data(), kCount, -1);  // which would be wrong
  group([&] {
    for (std::size_t r = 0; r < all.size(); ++r) {
      all[r].run(call_on(Collective::all_reduce, r == 1 ? private_in : in[r], out[r], kCount),
                 stream(static_cast<int>(r)));
    }
  });
  wait_for_all();
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(n));
  EXPECT_EQ(counts.calls, 2 * all.size());
  EXPECT_EQ(counts.staged, 1U);
}

TEST_P(DeviceGpus, ThreadsWithOneStreamForEachGpu) {
  const int n = std::get<1>(GetParam());
  auto all = ranks(n);
  const auto in = inputs(n);
  const auto out = outputs(n);
  // A thread for each GPU, in its default stream: of other GPUs' it knows nothing.
  std::vector<std::jthread> threads;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    threads.emplace_back([&, g] {
      group([&] {
        for (std::size_t r = g; r < all.size(); r += gpus.size()) {
          all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount), nullptr);
        }
      });
    });
  }
  threads.clear();
  wait_for_all();
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(n));
}

INSTANTIATE_TEST_SUITE_P(GpusAndRanks, DeviceGpus,
                         ::testing::Values(std::tuple(2, 2), std::tuple(2, 4), std::tuple(2, 5),
                                           std::tuple(3, 3), std::tuple(4, 8)));

class TwoGpus : public DeviceGpus {
 protected:
  void SetUp() override { make(2); }
};

TEST_F(TwoGpus, TheFirstCallSaysForRanksThatDidNot) {
  std::vector<Communicator> all = Communicator::create_local(2);
  for (Communicator& c : all) c.impl().gpus = queued_gpus();
  std::vector<Buffer> in, out;
  for (int r = 0; r < 2; ++r) {
    in.emplace_back(1, input_of(r));
    out.emplace_back(1, kCount);
  }
  sum_in_group(all, in, out);
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(2));
  EXPECT_EQ(gpus[0]->launches, 0);
  EXPECT_EQ(all[0].impl().team->ordinal(1), 1);
}

TEST_F(TwoGpus, APartOfTheRanksKeepsTheirGpus) {
  auto all = ranks(4);
  std::vector<Communicator> parts(4);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 4; ++r) {
      threads.emplace_back([&, r] {
        const auto index = static_cast<std::size_t>(r);
        parts[index] = all[index].split(r / 2, r);
        parts[index].impl().gpus = queued_gpus();
      });
    }
  }
  parts.resize(2);
  const auto in = inputs(2);
  const auto out = outputs(2);
  sum_in_group(parts, in, out);
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(2));
  EXPECT_EQ(gpus[0]->launches, 1);
  EXPECT_EQ(gpus[1]->launches, 1);
}

TEST_F(TwoGpus, ABufferOnAnotherGpuIsRefused) {
  auto all = ranks(2);
  const auto in = inputs(2);
  const auto out = outputs(2);
  sum_in_group(all, in, out);
  const Buffer elsewhere(0, kCount);
  const std::string text = refusal(
      [&] { all[1].run(call_on(Collective::all_reduce, elsewhere, elsewhere, kCount), stream(1)); },
      ErrorCode::invalid_argument);
  EXPECT_NE(text.find("rank 1 has its buffers on GPU 0, but was to have them on GPU 1"),
            std::string::npos)
      << text;
  refusal([&] { all[1].run(call_on(Collective::all_reduce, in[1], elsewhere, kCount), stream(1)); },
          ErrorCode::invalid_argument);
  // None of this has begun anything.
  sum_in_group(all, in, out);
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(2));
}

TEST_F(TwoGpus, GpusThatCannotReachEachOtherAreRefused) {
  gpus[0]->links = device::Device::Reach::none;
  auto all = ranks(2);
  const auto in = inputs(2);
  const std::string text =
      refusal([&] { all[0].run(call_on(Collective::all_reduce, in[0], in[0], kCount), stream(0)); },
              ErrorCode::invalid_argument);
  EXPECT_NE(text.find("ranks 0 and 1 are of one process"), std::string::npos) << text;
}

TEST_F(TwoGpus, ATimeOutOnOneEndsAll) {
  Options options;
  options.timeout = std::chrono::milliseconds(200);
  auto all = ranks(4, options);
  const auto in = inputs(4);
  const auto out = outputs(4);
  group([&] {  // rank 3 is missing
    for (std::size_t r = 0; r < 3; ++r) {
      all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount),
                 stream(static_cast<int>(r)));
    }
  });
  wait_for_all();
  const std::string text = refusal([&] { all[0].barrier(); }, ErrorCode::timed_out);
  EXPECT_NE(text.find("for rank 3"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::test
