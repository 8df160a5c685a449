// Calls on GPU memory through Communicator, with threads in the GPU's place (cuda_host_device.h):
// which calls make which launches, what is refused, how failures and abort() travel.
#include "tests/device/device_memory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

TEST_P(OnDeviceMemory, EachRankFromItsThread) {
  const int n = GetParam();
  auto all = ranks(n);
  std::vector<Data> out(all.size(), Data(kCount));
  in_threads(all, [&](Communicator& c) {
    const Data in = input_of(c.rank());
    Data& mine = out[static_cast<std::size_t>(c.rank())];
    for (int i = 0; i < 3; ++i) c.run(all_reduce_call(in, mine), stream(c.rank()));
  });
  for (const Data& o : out) EXPECT_EQ(o, sum_of(n));
  EXPECT_EQ(the_device->launches, 3 * n);
}

TEST_P(OnDeviceMemory, AGroupIsOneLaunchForEachOfItsOperations) {
  const int n = GetParam();
  auto all = ranks(n);
  std::vector<Data> in, out(all.size(), Data(kCount)), gathered(all.size());
  Data everything;
  for (int r = 0; r < n; ++r) {
    in.push_back(input_of(r));
    everything.insert(everything.end(), in.back().begin(), in.back().end());
  }
  group([&] {
    for (std::size_t r = 0; r < all.size(); ++r) {
      all[r].run(all_reduce_call(in[r], out[r]), stream(static_cast<int>(r)));
      gathered[r].resize(kCount * all.size());
      Call call = all_reduce_call(in[r], gathered[r]);
      call.collective = Collective::all_gather;
      all[r].run(call, stream(static_cast<int>(r)));
    }
    EXPECT_EQ(the_device->launches, 0);
  });
  EXPECT_EQ(the_device->launches, 2);
  EXPECT_EQ(the_device->orders, 2 * 2 * (n - 1)) << "before and after, each other stream";
  for (const Data& o : out) EXPECT_EQ(o, sum_of(n));
  for (const Data& g : gathered) EXPECT_EQ(g, everything);
}

TEST_P(OnDeviceMemory, VVariantsBarrierAndNothing) {
  const int n = GetParam();
  auto all = ranks(n);
  std::vector<std::size_t> counts;
  Data everything;
  for (int r = 0; r < n; ++r) {
    counts.push_back(r == 0 ? 0 : 100 * static_cast<std::size_t>(r));
    const Data in = input_of(r, counts.back());
    everything.insert(everything.end(), in.begin(), in.end());
  }
  in_threads(all, [&](Communicator& c) {
    const Data in = input_of(c.rank(), counts[static_cast<std::size_t>(c.rank())]);
    Data out(everything.size());
    Call call = all_reduce_call(in, out);
    call.collective = Collective::all_gather_v;
    call.count = 0;
    call.out_counts = counts;
    c.run(call, stream(c.rank()));
    EXPECT_EQ(out, everything);
    c.run(Call{}, stream(c.rank()));  // a barrier
    call = all_reduce_call(in, out);
    call.count = 0;
    c.run(call, stream(c.rank()));
    // And host memory in between.
    std::int32_t one = 1, sum = 0;
    c.all_reduce(&one, &sum, 1, kType);
    EXPECT_EQ(sum, n);
  });
  EXPECT_EQ(the_device->launches, n == 1 ? n : 2 * n) << "nothing to move is no launch";
}

TEST_P(OnDeviceMemory, OneStreamForAllIsForGroups) {
  const int n = GetParam();
  auto all = ranks(n);
  std::vector<Data> in, out(all.size(), Data(kCount));
  for (int r = 0; r < n; ++r) in.push_back(input_of(r));
  group([&] {
    for (std::size_t r = 0; r < all.size(); ++r)
      all[r].run(all_reduce_call(in[r], out[r]), nullptr);
  });
  for (const Data& o : out) EXPECT_EQ(o, sum_of(n));
  if (n == 1) return all.front().run(all_reduce_call(in[0], out[0]), nullptr);
  EXPECT_NE(refusal([&] { all[0].run(all_reduce_call(in[0], out[0]), nullptr); },
                    ErrorCode::invalid_usage)
                .find("default stream"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ranks, OnDeviceMemory, ::testing::Values(1, 2, 3, 5));

using DeviceFaults = OnDeviceMemory;

TEST_F(DeviceFaults, WhatIsRefused) {
  auto all = ranks(2);
  Data in(kCount), out(kCount);
  Call call = all_reduce_call(in, out);
  const auto run = [&] { all[0].run(call, stream(0)); };
  owner_of_all = -1;
  EXPECT_EQ(refusal(run, ErrorCode::invalid_argument),
            "all_reduce on GPU memory: the input is host memory; call without a stream");
  owner_of_all = 0;
  call.count = SIZE_MAX / 2;
  refusal(run, ErrorCode::invalid_argument);
  // None of this has begun anything.
  call.count = kCount;
  Data out_of_other(kCount);
  Call call_of_other = call;
  call_of_other.out = out_of_other.data();
  group([&] {
    run();
    all[1].run(call_of_other, stream(1));
  });
  owner_of_all = 3;
  EXPECT_NE(refusal(run, ErrorCode::invalid_argument).find("GPU 3"), std::string::npos);
}

TEST_F(DeviceFaults, ATimeOutFailsTheCommunicator) {
  Options options;
  options.timeout = 100ms;
  auto all = ranks(2, options);
  Data in(kCount), out(kCount);
  all[0].run(all_reduce_call(in, out), stream(0));  // nobody comes
  const std::string text =
      refusal([&] { all[0].run(all_reduce_call(in, out), stream(0)); }, ErrorCode::timed_out);
  EXPECT_NE(text.find("rank 0 has waited"), std::string::npos) << text;
  // The other rank reads the same, on the host as well.
  EXPECT_EQ(refusal([&] { all[1].barrier(); }, ErrorCode::timed_out), text);
}

TEST_F(DeviceFaults, AbortEndsAKernel) {
  auto all = ranks(2);
  Data in(kCount), out(kCount);
  std::jthread late([&] {
    std::this_thread::sleep_for(50ms);
    all[1].abort("enough");
  });
  all[0].run(all_reduce_call(in, out), stream(0));  // returns when the kernel has left
  late.join();
  EXPECT_NE(refusal([&] { all[0].run(all_reduce_call(in, out), stream(0)); }, ErrorCode::aborted)
                .find("enough"),
            std::string::npos);
}

TEST_F(DeviceFaults, DifferentCallsAreFound) {
  auto all = ranks(2);
  Data in(kCount), out(kCount), out_of_other(kCount);
  group([&] {
    all[0].run(all_reduce_call(in, out), stream(0));
    Call call = all_reduce_call(in, out_of_other);
    call.op = ReduceKind::max;
    all[1].run(call, stream(1));
  });
  refusal([&] { all[0].run(all_reduce_call(in, out), stream(0)); }, ErrorCode::mismatch);
  auto others = ranks(2);
  refusal(
      [&] {
        group([&] {
          others[0].run(all_reduce_call(in, out), stream(0));
          Call call = all_reduce_call(in, out_of_other);
          call.type = DataType::float32;
          others[1].run(call, stream(1));
        });
      },
      ErrorCode::mismatch);
}

TEST_F(DeviceFaults, TheUsersLimitsHold) {
  Options options;
  options.algorithm = "ring";
  std::vector<Data> in{input_of(0), input_of(1)}, out(2, Data(kCount));
  const auto run = [&](std::vector<Communicator>& all) {
    group([&] {
      for (std::size_t r = 0; r < 2; ++r)
        all[r].run(all_reduce_call(in[r], out[r]), stream(static_cast<int>(r)));
    });
    EXPECT_EQ(out[1], sum_of(2));
    return the_device->last_blocks.load();
  };
  auto free = ranks(2, options);
  EXPECT_GT(run(free), 6U);
  options.cuda_blocks = 3;
  auto limited = ranks(2, options);
  EXPECT_EQ(run(limited), 6U);
  options.cuda_protocols = "^LL,ll128";
  auto simple = ranks(2, options);
  EXPECT_EQ(run(simple), 2U) << "whose blocks have more to do";
  // The ranks have to have the same.
  limited[1].impl().options.cuda_protocols = simple[1].impl().options.cuda_protocols;
  group([&] {
    for (std::size_t r = 0; r < 2; ++r)
      limited[r].run(all_reduce_call(in[r], out[r]), stream(static_cast<int>(r)));
  });
  refusal([&] { limited[0].run(all_reduce_call(in[0], out[0]), stream(0)); }, ErrorCode::mismatch);
  options.cuda_protocols = "ll,fast";
  EXPECT_NE(refusal([&] { ranks(2, options); }, ErrorCode::invalid_argument).find("\"fast\""),
            std::string::npos);
}

// The first to leave takes nothing with it that the other still needs.
TEST_F(DeviceFaults, RanksLeaveOneAfterTheOther) {
  for (int i = 0; i < 3; ++i) {
    auto all = ranks(2);
    std::vector<Data> in{input_of(0), input_of(1)}, out(2, Data(kCount));
    group([&] {
      for (std::size_t r = 0; r < 2; ++r)
        all[r].run(all_reduce_call(in[r], out[r]), stream(int(r)));
    });
    EXPECT_EQ(out[1], sum_of(2));
    all[0].destroy();
    EXPECT_EQ(the_device.use_count(), 2);
    all[1].destroy();
    EXPECT_EQ(the_device.use_count(), 1);
  }
}

/// all_reduce by so many rings.
std::string rings(std::uint32_t lanes) {
  PlanRequest request;
  request.ranks = 2;
  request.lanes = lanes;
  return to_text(generate_plan(*find_algorithm(Collective::all_reduce, "ring"), request));
}

TEST_F(DeviceFaults, AUsersPlanOfTooManyLinksIsRefusedAndHarmsNothing) {
  auto all = ranks(2);
  std::vector<Data> in{input_of(0), input_of(1)};
  const auto run = [&](std::vector<Data>& out) {
    group([&] {
      for (std::size_t r = 0; r < 2; ++r)
        all[r].run(all_reduce_call(in[r], out[r]), stream(int(r)));
    });
  };
  std::vector<Data> out(2, Data(kCount));
  for (Communicator& c : all) c.use_plan(rings(17));
  for (std::size_t r = 0; r < 2; ++r) {
    const std::string why = refusal([&] { all[r].run(all_reduce_call(in[r], out[r]), stream(0)); },
                                    ErrorCode::invalid_argument);
    EXPECT_NE(why.find("\"ring\" runs on no GPU: it has 17 links from a rank to another, more than "
                       "the 16"),
              std::string::npos)
        << why;
  }
  // One lane may have any channel, and several lanes as many links as there are.
  std::string one = rings(1);
  for (std::size_t at = 0; (at = one.find("to(", at)) != std::string::npos; ++at) {
    one.insert(at + 5, ".200");
  }
  for (std::size_t at = 0; (at = one.find("from(", at)) != std::string::npos; ++at) {
    one.insert(at + 7, ".200");
  }
  for (const std::string& text : {rings(16), one}) {
    for (Communicator& c : all) c.use_plan(text);
    out.assign(2, Data(kCount));
    run(out);
    for (const Data& o : out) EXPECT_EQ(o, sum_of(2));
  }
}

// A plan of the user's that is replaced: its successor may lie at the same address.
TEST_F(DeviceFaults, AReplacedPlanIsNotRunAgain) {
  const auto plan = [](const char* name, const char* first, const char* second) {
    return std::string("tutti plan 1\nall_reduce ") + name +
           "  ranks 2  pieces 2  slots 2  lanes 1\n" + first + second;
  };
  const std::string right = plan("right",
                                 "rank 0\n lane 0\n to(1) <- in[0]\n out[1], to(1) <= from(1) + "
                                 "in[1]\n out[0] <- from(1)\n",
                                 "rank 1\n lane 0\n to(0) <- in[1]\n out[0], to(0) <= from(0) + "
                                 "in[0]\n out[1] <- from(0)\n");
  const std::string mirrored = plan("mirrored",
                                    "rank 0\n lane 0\n to(1) <- in[1]\n out[0], to(1) <= from(1) + "
                                    "in[0]\n out[1] <- from(1)\n",
                                    "rank 1\n lane 0\n to(0) <- in[0]\n out[1], to(0) <= from(0) + "
                                    "in[1]\n out[0] <- from(0)\n");
  auto all = ranks(2);
  std::vector<Data> in{input_of(0), input_of(1)};
  for (const std::string& text : {right, mirrored, right, mirrored}) {
    for (Communicator& c : all) c.use_plan(text);
    std::vector<Data> out(2, Data(kCount));
    group([&] {
      for (std::size_t r = 0; r < 2; ++r)
        all[r].run(all_reduce_call(in[r], out[r]), stream(int(r)));
    });
    for (const Data& o : out) EXPECT_EQ(o, sum_of(2));
  }
}

}  // namespace
}  // namespace tutti::test
