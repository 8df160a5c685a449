// Communicator on the memory of a GPU: ranks as threads with a stream each, ranks in a group, and
// captured graphs; collectives and messages; mistakes that need a GPU. What else is refused, and
// how failures travel, is in device_memory_test.
#include "comm/communicator.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti::test {
namespace {

constexpr std::size_t kCount = 1000003;

void check(cudaError_t result) {
  if (result != cudaSuccess) throw Error(ErrorCode::system, cudaGetErrorString(result));
}

/// A rank's stream and buffers.
struct Rank {
  explicit Rank(int rank) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMalloc(&in, kCount * sizeof(std::int32_t)));
    check(cudaMalloc(&out, kCount * sizeof(std::int32_t)));
    std::vector<std::int32_t> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i) data[i] = 1000 * (rank + 1) + int(i) * 7;
    check(cudaMemcpy(in, data.data(), kCount * sizeof(std::int32_t), cudaMemcpyHostToDevice));
    clear();
  }
  ~Rank() {
    cudaFree(in);
    cudaFree(out);
    cudaStreamDestroy(stream);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void clear() {
    check(cudaMemset(out, 0xEE, kCount * sizeof(std::int32_t)));
    check(cudaDeviceSynchronize());
  }
  Call all_reduce() const {
    Call call;
    call.collective = Collective::all_reduce;
    call.in = in;
    call.out = out;
    call.count = kCount;
    call.type = DataType::int32;
    return call;
  }
  Call message(bool sends, int peer) const {
    Call call = all_reduce();
    call.collective = Collective::send_recv;
    if (sends) {
      call.out = nullptr;
    } else {
      call.in = nullptr;
    }
    call.peer = peer;
    call.sends = sends;
    return call;
  }
  /// Elements that are not the sum of `ranks` ranks, after what is on the stream.
  std::size_t wrong(int ranks) const {
    const auto data = result();
    std::size_t count = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      count += data[i] != 1000 * ranks * (ranks + 1) / 2 + int(i) * 7 * ranks;
    }
    return count;
  }
  /// Elements that are not those of rank `rank`.
  std::size_t unlike(int rank) const {
    const auto data = result();
    std::size_t count = 0;
    for (std::size_t i = 0; i < kCount; ++i) count += data[i] != 1000 * (rank + 1) + int(i) * 7;
    return count;
  }
  std::vector<std::int32_t> result() const {
    check(cudaStreamSynchronize(stream));
    std::vector<std::int32_t> data(kCount);
    check(cudaMemcpy(data.data(), out, kCount * sizeof(std::int32_t), cudaMemcpyDeviceToHost));
    return data;
  }

  cudaStream_t stream = nullptr;
  void* in = nullptr;
  void* out = nullptr;
};

// A rank on each GPU, of one process: called by one thread in a group, and recorded into a graph
// for each GPU.
TEST(GpusOfOneProcess, GroupsAndGraphs) {
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus));
  if (gpus < 2) GTEST_SKIP() << "this machine has one GPU";
  for (const char* algorithm : {"ring", "two_shot_window"}) {
    std::vector<Options> options(static_cast<std::size_t>(gpus));
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int g = 0; g < gpus; ++g) {
      options[static_cast<std::size_t>(g)].gpu = g;
      options[static_cast<std::size_t>(g)].algorithm = algorithm;
      options[static_cast<std::size_t>(g)].timeout = std::chrono::seconds(20);
      check(cudaSetDevice(g));
      ranks.push_back(std::make_unique<Rank>(g));
    }
    auto all = Communicator::create_local(options);
    const auto sum = [&] {
      group([&] {
        for (std::size_t r = 0; r < all.size(); ++r) {
          all[r].run(ranks[r]->all_reduce(), ranks[r]->stream);
        }
      });
    };
    sum();
    for (const auto& r : ranks) EXPECT_EQ(r->wrong(gpus), 0U) << algorithm;
    std::vector<cudaGraphExec_t> graphs(ranks.size());
    for (const auto& r : ranks) {
      check(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    }
    sum();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      cudaGraph_t graph = nullptr;
      check(cudaStreamEndCapture(ranks[r]->stream, &graph));
      check(cudaGraphInstantiate(&graphs[r], graph, 0));
      check(cudaGraphDestroy(graph));
      check(cudaSetDevice(static_cast<int>(r)));
      ranks[r]->clear();
    }
    for (int i = 0; i < 100; ++i) {
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        check(cudaGraphLaunch(graphs[r], ranks[r]->stream));
      }
    }
    for (const auto& r : ranks) EXPECT_EQ(r->wrong(gpus), 0U) << algorithm << ", graphs";
    for (const cudaGraphExec_t graph : graphs) check(cudaGraphExecDestroy(graph));
    all.clear();
  }
  check(cudaSetDevice(0));
}

class GpuCommunicator : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    Options options;
    options.timeout = std::chrono::seconds(20);
    all = Communicator::create_local(GetParam(), options);
    for (int r = 0; r < GetParam(); ++r) ranks.push_back(std::make_unique<Rank>(r));
  }
  void run(std::size_t r) { all[r].run(ranks[r]->all_reduce(), ranks[r]->stream); }
  void expect_sums() {
    for (const auto& r : ranks) EXPECT_EQ(r->wrong(GetParam()), 0U);
  }

  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<Communicator> all;  // leaves first
};

TEST_P(GpuCommunicator, Group) {
  for (int i = 0; i < 3; ++i) {
    for (const auto& r : ranks) r->clear();
    group([&] {
      for (std::size_t r = 0; r < all.size(); ++r) run(r);
    });
    expect_sums();
  }
}

TEST_P(GpuCommunicator, Threads) {
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < all.size(); ++r) {
      threads.emplace_back([this, r] {
        for (int i = 0; i < 20; ++i) EXPECT_NO_THROW(run(r));
      });
    }
  }
  expect_sums();
}

// Each call reads what the one before has written, on the other stream of its rank.
TEST_P(GpuCommunicator, StreamsOfARankTakeTurns) {
  std::vector<cudaStream_t> second(ranks.size());
  for (cudaStream_t& s : second) check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (int i = 0; i < 20; ++i) {
    group([&] {
      for (std::size_t r = 0; r < all.size(); ++r) {
        all[r].run(ranks[r]->all_reduce(), i % 2 == 0 ? ranks[r]->stream : second[r]);
      }
    });
  }
  for (const cudaStream_t s : second) check(cudaStreamSynchronize(s));
  expect_sums();
  for (const cudaStream_t s : second) cudaStreamDestroy(s);
}

// CUDA lets about a thousand launches wait on a stream; the next one waits.
TEST_P(GpuCommunicator, ARankFarAheadHoldsUpNoOtherRank) {
  constexpr int kCalls = 1500;
  const auto run_all = [&](std::size_t r) {
    Call mine = ranks[r]->all_reduce();
    mine.count = 100;
    for (int i = 0; i < kCalls; ++i) all[r].run(mine, ranks[r]->stream);
  };
  {
    std::jthread ahead([&] { EXPECT_NO_THROW(run_all(0)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::vector<std::jthread> others;
    for (std::size_t r = 1; r < all.size(); ++r) {
      others.emplace_back([&, r] { EXPECT_NO_THROW(run_all(r)); });
    }
  }
  for (const auto& r : ranks) EXPECT_EQ(cudaStreamSynchronize(r->stream), cudaSuccess);
}

TEST_P(GpuCommunicator, GraphOfAGroup) {
  const cudaStream_t stream = ranks[0]->stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  const auto all_on_one = [&] {
    for (std::size_t r = 0; r < all.size(); ++r) all[r].run(ranks[r]->all_reduce(), stream);
  };
  group(all_on_one);  // so that everything is allocated
  check(cudaStreamSynchronize(stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  group(all_on_one);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  for (const auto& r : ranks) r->clear();
  for (int i = 0; i < 100; ++i) check(cudaGraphLaunch(executable, stream));
  check(cudaStreamSynchronize(stream));
  expect_sums();
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// To the next rank; with one rank, to itself.
TEST_P(GpuCommunicator, MessagesOfAGroup) {
  const int n = GetParam();
  const auto exchange = [&](cudaStream_t stream) {
    for (int r = 0; r < n; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const cudaStream_t on = stream != nullptr ? stream : ranks[i]->stream;
      all[i].run(ranks[i]->message(true, (r + 1) % n), on);
      all[i].run(ranks[i]->message(false, (r + n - 1) % n), on);
    }
  };
  const auto expect_neighbours = [&] {
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->unlike((r + n - 1) % n), 0U) << r;
    }
  };
  for (int i = 0; i < 3; ++i) {
    for (const auto& r : ranks) r->clear();
    group([&] { exchange(nullptr); });
    expect_neighbours();
  }
  const cudaStream_t stream = ranks[0]->stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  group([&] { exchange(stream); });
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  for (const auto& r : ranks) r->clear();
  for (int i = 0; i < 100; ++i) check(cudaGraphLaunch(executable, stream));
  check(cudaStreamSynchronize(stream));
  expect_neighbours();
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_P(GpuCommunicator, MessagesFromThreads) {
  const int n = GetParam();
  if (n < 2) return;
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < n; ++r) {
      threads.emplace_back([this, r, n] {
        const auto i = static_cast<std::size_t>(r);
        for (int k = 0; k < 20; ++k) {
          EXPECT_NO_THROW(group([&] {
            all[i].run(ranks[i]->message(false, (r + n - 1) % n), ranks[i]->stream);
            all[i].run(ranks[i]->message(true, (r + 1) % n), ranks[i]->stream);
          }));
        }
      });
    }
  }
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->unlike((r + n - 1) % n), 0U) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuCommunicator, ::testing::Values(1, 2, 3, 4, 8));

// --- Mistakes of the caller's
// ---------------------------------------------------------------------

/// What `call` says; "" if nothing.
template <class F>
std::string error_of(F call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(GpuMistakes, MemoryOfTheHostAndFreedMemoryAreRefused) {
  Options options;
  options.timeout = std::chrono::seconds(20);
  auto all = Communicator::create_local(1, options);
  const Rank rank(0);
  std::vector<std::int32_t> host(kCount);
  Call call = rank.all_reduce();
  call.in = host.data();
  EXPECT_NE(error_of([&] { all[0].run(call, rank.stream); }).find("the input is host memory"),
            std::string::npos);
  void* freed = nullptr;
  check(cudaMalloc(&freed, kCount * sizeof(std::int32_t)));
  check(cudaFree(freed));
  call = rank.all_reduce();
  call.out = freed;
  EXPECT_NE(error_of([&] { all[0].run(call, rank.stream); }).find("the output is host memory"),
            std::string::npos);
  all[0].run(rank.all_reduce(), rank.stream);
  EXPECT_EQ(rank.wrong(1), 0U);
}

TEST(GpuMistakes, WithoutMemoryACallFailsAndTheNextCommunicatorWorks) {
  Options options;
  options.timeout = std::chrono::seconds(20);
  const Rank first(0);
  const Rank second(1);
  const auto sum = [&](std::vector<Communicator>& all) {
    group([&] {
      all[0].run(first.all_reduce(), first.stream);
      all[1].run(second.all_reduce(), second.stream);
    });
  };
  std::vector<void*> taken;
  for (std::size_t bytes = std::size_t{64} << 30; bytes >= std::size_t{64} << 10;) {
    void* more = nullptr;
    if (cudaMalloc(&more, bytes) == cudaSuccess) {
      taken.push_back(more);
    } else {
      (void)cudaGetLastError();
      bytes /= 2;
    }
  }
  {
    auto all = Communicator::create_local(2, options);
    const std::string text = error_of([&] { sum(all); });
    EXPECT_NE(text.find("out of memory"), std::string::npos) << text;
  }
  for (void* const memory : taken) check(cudaFree(memory));
  auto all = Communicator::create_local(2, options);
  sum(all);
  EXPECT_EQ(first.wrong(2), 0U);
  EXPECT_EQ(second.wrong(2), 0U);
}

TEST(GpuPointer, WhoseMemory) {
  int on_stack = 0;
  void* device = nullptr;
  void* pinned = nullptr;
  void* managed = nullptr;
  check(cudaMalloc(&device, 64));
  check(cudaMallocHost(&pinned, 64));
  check(cudaMallocManaged(&managed, 64));
  EXPECT_EQ(gpu_of(device), 0);
  EXPECT_EQ(gpu_of(static_cast<char*>(device) + 63), 0);
  EXPECT_EQ(gpu_of(managed), 0);
  EXPECT_EQ(gpu_of(pinned), -1);
  EXPECT_EQ(gpu_of(&on_stack), -1);
  EXPECT_EQ(gpu_of(nullptr), -1);
  cudaFree(device);
  cudaFreeHost(pinned);
  cudaFree(managed);
}

}  // namespace
}  // namespace tutti::test
