// GPU memory of ranks on several hosts: ranks of this process that are told apart by hand, so that
// they talk over sockets, on GPUs with queues (queued_gpus.h). One thread calls for all of them.
// device_processes_test has ranks that are processes, and that are killed.
//
// TEST_CARDS=all: the network is one of cards (card_network.h) that reach the memory of all GPUs;
// =some: of every other host's.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/model/hosts.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "tests/device/queued_gpus.h"
#include "tests/transport/card_network.h"
#include "transport/network/wire_choice.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

const std::string cards = [] {
  const char* const set = std::getenv("TEST_CARDS");
  return set != nullptr ? set : "";
}();

struct Shape {
  int hosts = 2, ranks = 1, gpus = 1;  // the last two: of a host
};

class DeviceHosts : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { make(GetParam()); }
  void TearDown() override { gpus.clear(); }

  void make(const Shape& shape) {
    shape_ = shape;
    for (int g = 0; g < shape.hosts * shape.gpus; ++g) {
      gpus.push_back(std::make_shared<QueuedDevice>(g));
      gpus.back()->is_reached = cards == "all" || (cards == "some" && g / shape.gpus % 2 == 0);
    }
    if (!cards.empty()) {
      replace_tcp_endpoints([] { return std::make_shared<CardEndpoints>(); });
    }
  }
  int size() const { return shape_.hosts * shape_.ranks; }
  int gpu_of(int rank) const {
    return rank / shape_.ranks * shape_.gpus + rank % shape_.ranks % shape_.gpus;
  }
  QueuedDevice& gpu(int rank) const { return *gpus[static_cast<std::size_t>(gpu_of(rank))]; }
  static void* stream(int rank) {
    return reinterpret_cast<void*>(0x1000 + 16 * std::intptr_t{rank});
  }
  std::vector<Communicator> ranks(const Options& options = {}) const {
    std::vector<Options> each(static_cast<std::size_t>(size()), options);
    for (int r = 0; r < size(); ++r) {
      Options& mine = each[static_cast<std::size_t>(r)];
      mine.gpu = gpu_of(r);
      mine.host_id = "host" + std::to_string(r / shape_.ranks);
      if (mine.timeout.count() == 0) mine.timeout = 30s;
    }
    std::vector<Communicator> all = Communicator::create_local(each);
    for (Communicator& c : all) c.impl().gpus = queued_gpus();
    return all;
  }
  Buffer buffer(int rank, const Data& data) const { return {gpu_of(rank), data}; }
  Buffer empty(int rank, std::size_t count) const { return {gpu_of(rank), count}; }

  /// What one rank passes to a collective, and what it is to get.
  struct Part {
    Data in, out;
    std::vector<std::size_t> in_counts, out_counts;
  };
  /// Runs it once, by all ranks in one group, and looks at every element.
  void expect(std::vector<Communicator>& all, Collective collective, std::size_t count, int root,
              const std::vector<Part>& parts) const {
    std::vector<Buffer> ins, outs;
    for (int r = 0; r < size(); ++r) {
      const Part& p = parts[static_cast<std::size_t>(r)];
      ins.push_back(buffer(r, p.in));
      outs.push_back(empty(r, p.out.size()));
    }
    group([&] {
      for (std::size_t r = 0; r < all.size(); ++r) {
        Call call = call_on(collective, ins[r], outs[r], count);
        call.root = root;
        call.in_counts = parts[r].in_counts;
        call.out_counts = parts[r].out_counts;
        all[r].run(call, stream(static_cast<int>(r)));
      }
    });
    wait_for_all();
    for (std::size_t r = 0; r < all.size(); ++r) {
      EXPECT_EQ(outs[r].read(), parts[r].out) << name(collective) << " on rank " << r;
      EXPECT_EQ(ins[r].read(), parts[r].in) << name(collective) << " on rank " << r;
      if (const auto failure = all[r].error()) ADD_FAILURE() << failure->what();
    }
  }
  static Call message(bool sends, int peer, const Buffer& buffer, std::size_t count) {
    Call call;
    call.collective = Collective::send_recv;
    if (sends) {
      call.in = buffer.data();
    } else {
      call.out = buffer.data();
    }
    call.count = count;
    call.type = kType;
    call.peer = peer;
    call.sends = sends;
    return call;
  }

  Shape shape_;
};

/// An element of a rank's input: no two are equal in a test.
std::int32_t element(int rank, std::size_t i) {
  return 1'000'000 * (rank + 1) + static_cast<std::int32_t>(i);
}

Data part_of(int rank, std::size_t first, std::size_t count) {
  Data data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = element(rank, first + i);
  return data;
}

void append(Data& to, const Data& data) { to.insert(to.end(), data.begin(), data.end()); }

Data sum_of_parts(int ranks, std::size_t first, std::size_t count) {
  Data sum(count);
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += element(r, first + i);
  }
  return sum;
}

TEST_P(DeviceHosts, EveryCollective) {
  const CardCounts at_first = card_counts();
  const int n = size();
  const auto ranks_of = static_cast<std::size_t>(n);
  auto all = ranks();
  const auto each = [&](const std::function<Part(int)>& part) {
    std::vector<Part> parts;
    for (int r = 0; r < n; ++r) parts.push_back(part(r));
    return parts;
  };
  int root = 0;
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{40'001}}) {
    root = (root + 1) % n;
    expect(all, Collective::all_reduce, count, 0, each([&](int r) {
             return Part{part_of(r, 0, count), sum_of_parts(n, 0, count), {}, {}};
           }));
    expect(all, Collective::all_gather, count, 0, each([&](int r) {
             Part p{part_of(r, 0, count), {}, {}, {}};
             for (int from = 0; from < n; ++from) append(p.out, part_of(from, 0, count));
             return p;
           }));
    expect(all, Collective::reduce_scatter, count, 0, each([&](int r) {
             const auto first = static_cast<std::size_t>(r) * count;
             return Part{part_of(r, 0, ranks_of * count), sum_of_parts(n, first, count), {}, {}};
           }));
    expect(all, Collective::broadcast, count, root, each([&](int r) {
             return Part{part_of(r, 0, r == root ? count : 0), part_of(root, 0, count), {}, {}};
           }));
    expect(all, Collective::reduce, count, root, each([&](int r) {
             const Data sum = r == root ? sum_of_parts(n, 0, count) : Data{};
             return Part{part_of(r, 0, count), sum, {}, {}};
           }));
    expect(all, Collective::gather, count, root, each([&](int r) {
             Part p{part_of(r, 0, count), {}, {}, {}};
             for (int from = 0; r == root && from < n; ++from) {
               append(p.out, part_of(from, 0, count));
             }
             return p;
           }));
    expect(
        all, Collective::scatter, count, root, each([&](int r) {
          const auto first = static_cast<std::size_t>(r) * count;
          return Part{
              part_of(r, 0, r == root ? ranks_of * count : 0), part_of(root, first, count), {}, {}};
        }));
    expect(all, Collective::all_to_all, count, 0, each([&](int r) {
             Part p{part_of(r, 0, ranks_of * count), {}, {}, {}};
             const auto first = static_cast<std::size_t>(r) * count;
             for (int from = 0; from < n; ++from) append(p.out, part_of(from, first, count));
             return p;
           }));
    // Rank r's block has count + 3 r elements; the first rank's none.
    std::vector<std::size_t> counts;
    std::vector<std::size_t> firsts;
    for (std::size_t r = 0, first = 0; r < ranks_of; ++r) {
      counts.push_back(r == 0 ? 0 : count + 3 * r);
      firsts.push_back(first);
      first += counts.back();
    }
    const std::size_t total = firsts.back() + counts.back();
    expect(all, Collective::all_gather_v, 0, 0, each([&](int r) {
             Part p{part_of(r, 0, counts[static_cast<std::size_t>(r)]), {}, {}, counts};
             for (int from = 0; from < n; ++from) {
               append(p.out, part_of(from, 0, counts[static_cast<std::size_t>(from)]));
             }
             return p;
           }));
    expect(all, Collective::reduce_scatter_v, 0, 0, each([&](int r) {
             const auto at = static_cast<std::size_t>(r);
             return Part{part_of(r, 0, total), sum_of_parts(n, firsts[at], counts[at]), counts, {}};
           }));
    // To rank `to`, rank r sends counts[to] + r elements.
    expect(all, Collective::all_to_all_v, 0, 0, each([&](int r) {
             Part p;
             const auto block = [&](int from, int to) {
               std::size_t first = 0;
               for (int before = 0; before < to; ++before) {
                 first += counts[static_cast<std::size_t>(before)] + static_cast<std::size_t>(from);
               }
               return part_of(
                   from, first,
                   counts[static_cast<std::size_t>(to)] + static_cast<std::size_t>(from));
             };
             for (int peer = 0; peer < n; ++peer) {
               append(p.in, block(r, peer));
               append(p.out, block(peer, r));
               p.in_counts.push_back(block(r, peer).size());
               p.out_counts.push_back(block(peer, r).size());
             }
             return p;
           }));
  }
  const CardCounts now = card_counts();
  EXPECT_EQ(now.out_of_gpu > at_first.out_of_gpu, !cards.empty());
  EXPECT_EQ(now.into_gpu > at_first.into_gpu, !cards.empty());
}

TEST_P(DeviceHosts, MessagesInAGroup) {
  const int n = size();
  auto all = ranks();
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{300'000}}) {
    std::vector<Buffer> in, out;
    for (int r = 0; r < n; ++r) {
      in.push_back(buffer(r, part_of(r, 0, count)));
      out.push_back(empty(r, count));
    }
    group([&] {
      for (int r = 0; r < n; ++r) {
        const auto at = static_cast<std::size_t>(r);
        all[at].run(message(true, (r + 1) % n, in[at], count), stream(r));
        all[at].run(message(false, (r + n - 1) % n, out[at], count), stream(r));
      }
    });
    wait_for_all();
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(out[static_cast<std::size_t>(r)].read(), part_of((r + n - 1) % n, 0, count));
    }
  }
}

TEST_P(DeviceHosts, ATimeOutOnOneEndsAll) {
  Options options;
  options.timeout = 300ms;
  auto all = ranks(options);
  std::vector<Buffer> in, out;
  for (int r = 0; r < size(); ++r) {
    in.push_back(buffer(r, part_of(r, 0, kCount)));
    out.push_back(empty(r, kCount));
  }
  const std::size_t last = all.size() - 1;
  group([&] {  // the last rank is missing
    for (std::size_t r = 0; r < last; ++r) {
      all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount),
                 stream(static_cast<int>(r)));
    }
  });
  wait_for_all();
  const std::string text = refusal([&] { all[0].barrier(); }, ErrorCode::timed_out);
  EXPECT_NE(text.find("on its GPU"), std::string::npos) << text;
  // The others hear of it, also the one that has called nothing.
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!all[last].error() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
  const std::string heard = refusal([&] { all[last].barrier(); }, ErrorCode::timed_out);
  EXPECT_NE(heard.find("on its GPU"), std::string::npos) << heard;
}

TEST_P(DeviceHosts, AbortInTheMiddleEndsAllKernels) {
  auto all = ranks();
  std::vector<Buffer> in, out;
  for (int r = 0; r < size(); ++r) {
    in.push_back(buffer(r, part_of(r, 0, kCount)));
    out.push_back(empty(r, kCount));
  }
  const std::size_t last = all.size() - 1;
  for (int i = 0; i < 2; ++i) {
    group([&] {
      for (std::size_t r = 0; r < all.size(); ++r) {
        if (i == 1 && r == last) continue;  // the others wait for it
        all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount),
                   stream(static_cast<int>(r)));
      }
    });
  }
  std::this_thread::sleep_for(20ms);
  all[last].abort("enough");
  wait_for_all();  // or this hangs
  for (Communicator& c : all) {
    const std::string text = refusal([&] { c.barrier(); }, ErrorCode::aborted);
    EXPECT_NE(text.find("enough"), std::string::npos) << text;
  }
}

TEST_P(DeviceHosts, PartsOfTheRanksAndLeavingOneByOne) {
  auto all = ranks();
  for (int round = 0; round < 3; ++round) {
    std::vector<Communicator> parts(all.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t r = 0; r < all.size(); ++r) {
        threads.emplace_back([&, r] {
          parts[r] = all[r].split(0, -static_cast<int>(r));  // in reverse order
          parts[r].impl().gpus = queued_gpus();
        });
      }
    }
    std::vector<Buffer> in, out;
    for (int r = 0; r < size(); ++r) {
      in.push_back(buffer(r, part_of(r, 0, kCount)));
      out.push_back(empty(r, kCount));
    }
    group([&] {
      for (std::size_t r = 0; r < parts.size(); ++r) {
        parts[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount),
                     stream(static_cast<int>(r)));
      }
    });
    // With the kernels under way.
    for (Communicator& part : parts) part.destroy();
    for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of_parts(size(), 0, kCount));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceHosts,
                         ::testing::Values(Shape{2, 1, 1}, Shape{2, 2, 1}, Shape{2, 2, 2},
                                           Shape{3, 1, 1}),
                         [](const auto& test) {
                           const Shape& s = test.param;
                           return std::to_string(s.hosts) + "HostsOf" + std::to_string(s.ranks) +
                                  "On" + std::to_string(s.gpus);
                         });

class TwoHosts : public DeviceHosts {
 protected:
  void SetUp() override { make({}); }
};

// More than the receiver has room for stays with the sender's process, which has left.
TEST_F(TwoHosts, WhatWasSentArrivesAlthoughTheSenderHasLeft) {
  // 8 channels; 12 messages of 32 KiB may be under way in each, or 8 from GPU to GPU.
  const std::size_t many = cards == "all" ? 450'000 : 600'000;
  auto all = ranks();
  const Buffer in = buffer(0, part_of(0, 0, many));
  const Buffer out = empty(1, many);
  gpu(1).hold();
  all[1].run(message(false, 0, out, many), stream(1));
  all[0].run(message(true, 1, in, many), stream(0));
  gpu(0).drain(nullptr);
  const auto began = std::chrono::steady_clock::now();
  all[0].destroy();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s) << "it waited for the receiver";
  std::this_thread::sleep_for(50ms);
  gpu(1).release();
  gpu(1).drain(nullptr);
  EXPECT_EQ(out.read(), part_of(0, 0, many));
  EXPECT_FALSE(all[1].error());
}

TEST_F(TwoHosts, CallsAfterTheOtherHasLeftAreRefused) {
  // Before the ranks, as a kernel may read them until those have left.
  const Buffer in = buffer(0, part_of(0, 0, kCount));
  const Buffer out = empty(1, kCount);
  auto all = ranks();
  group([&] {
    all[0].run(message(true, 1, in, kCount), stream(0));
    all[1].run(message(false, 0, out, kCount), stream(1));
  });
  wait_for_all();
  EXPECT_EQ(out.read(), part_of(0, 0, kCount));
  all[0].destroy();
  std::string text;
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (text.empty() && std::chrono::steady_clock::now() < end) {
    try {
      all[1].run(message(true, 0, out, 1), stream(1));  // nobody takes it
      std::this_thread::sleep_for(1ms);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::peer_lost) << e.what();
      text = e.what();
    }
  }
  EXPECT_NE(text.find("rank 0 has left"), std::string::npos) << text;
}

TEST_F(TwoHosts, AGpuWithTooFewBlocksIsRefused) {
  gpu(1).side_by_side = 4;
  auto all = ranks();
  const Buffer in = buffer(1, part_of(1, 0, kCount));
  const std::string text =
      refusal([&] { all[1].run(call_on(Collective::all_reduce, in, in, kCount), stream(1)); },
              ErrorCode::invalid_argument);
  EXPECT_NE(text.find("4 thread blocks"), std::string::npos) << text;
  EXPECT_NE(text.find("count on 8"), std::string::npos) << text;
}

/// An all_reduce of 4 ranks on 2 hosts that addresses memory inside of hosts.
std::string plan_with_windows() {
  const std::vector<int> host_of = {0, 0, 1, 1};
  const Domains hosts(host_of);
  PlanRequest request;
  request.ranks = 4;
  request.groups = {2, 2};
  for (const Algorithm& a : algorithms()) {
    if (a.collective != Collective::all_reduce || !a.windows) continue;
    const Plan plan = generate_plan(a, request);
    if (unreachable(plan, hosts).empty()) return to_text(plan);
  }
  return {};
}

class TwoHostsOfTwo : public DeviceHosts {
 protected:
  void SetUp() override { make({2, 2, 1}); }
};

TEST_F(TwoHostsOfTwo, AUsersPlanWithWindowsIsRefusedBeforeAnythingBegins) {
  auto all = ranks();
  const std::string text = plan_with_windows();
  ASSERT_FALSE(text.empty());
  for (Communicator& c : all) c.use_plan(text);
  const Buffer in = buffer(1, part_of(1, 0, kCount));
  const std::string why =
      refusal([&] { all[1].run(call_on(Collective::all_reduce, in, in, kCount), stream(1)); },
              ErrorCode::invalid_usage);
  EXPECT_NE(why.find("only a communicator of one host"), std::string::npos) << why;
  std::vector<Part> parts;
  for (int r = 0; r < 4; ++r) parts.push_back({part_of(r, 0, 10), part_of(2, 0, 10), {}, {}});
  expect(all, Collective::broadcast, 10, 2, [&] {
    for (int r = 0; r < 4; ++r) {
      if (r != 2) parts[static_cast<std::size_t>(r)].in.clear();
    }
    return parts;
  }());
}

TEST_F(TwoHosts, HostMemoryIsRefusedAndMayBeCalledRight) {
  auto all = ranks();
  const Data plain(kCount);
  const Buffer in = buffer(0, part_of(0, 0, kCount));
  Call call = call_on(Collective::all_reduce, in, in, kCount);
  call.in = plain.data();
  const std::string text =
      refusal([&] { all[0].run(call, stream(0)); }, ErrorCode::invalid_argument);
  EXPECT_NE(text.find("host memory"), std::string::npos) << text;
  expect(all, Collective::all_reduce, 10, 0,
         {{part_of(0, 0, 10), sum_of_parts(2, 0, 10), {}, {}},
          {part_of(1, 0, 10), sum_of_parts(2, 0, 10), {}, {}}});
}

}  // namespace
}  // namespace tutti::test
