// Plans of the user's: as many lanes, links, slots and chunks as a plan may have, and what is
// refused, with what words, before anything has begun.
#include "tests/comm/user_plans.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "collectives/needs.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "comm/impl.h"
#include "execute/signature.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class ManyLinks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ManyLinks, testing::Values(1, 2, 3, 4));

TEST_P(ManyLinks, RunBesideEverythingElse) {
  Options options;
  options.timeout = 60s;
  run_thread_ranks(GetParam(), options, exercise_many_links);
}

TEST_P(ManyLinks, OfFewShortSlots) {
  Options options;
  options.timeout = 60s;
  options.slots = 2;
  options.slot_bytes = 1024;
  run_thread_ranks(GetParam(), options, exercise_many_links);
}

TEST(UsersPlan, IsTakenByOneThreadForAllRanks) {
  constexpr int kRanks = 3;
  std::vector<Communicator> comms = Communicator::create_local(kRanks);
  const std::string text = many_rings(kRanks, 255);
  for (Communicator& c : comms) c.use_plan(text);
  std::vector<std::vector<std::int32_t>> x(kRanks, std::vector<std::int32_t>(10'000));
  for (std::size_t r = 0; r < kRanks; ++r) std::fill(x[r].begin(), x[r].end(), 1 << r);
  group([&] {
    for (std::size_t r = 0; r < kRanks; ++r) {
      comms[r].all_reduce(x[r].data(), x[r].data(), x[r].size(), DataType::int32);
    }
  });
  for (const auto& mine : x) {
    for (const std::int32_t v : mine) ASSERT_EQ(v, 7);
  }
}

/// Waits until `comm`'s rank has begun its collective number `sequence`.
void wait_for_beginning(Communicator& comm, std::uint64_t sequence) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!read_signature(comm.impl().group->control(), sequence)) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::yield();
  }
}

TEST(UsersPlan, ThatARankTakesLateIsWaitedFor) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  const std::string text = many_rings(2, 20);
  std::vector<std::int32_t> x(1000, 1), y(1000, 2);
  const auto call = [](std::vector<std::int32_t>& v) {
    return Call{Collective::all_reduce, v.data(), v.data(), v.size(), DataType::int32};
  };
  comms[0].use_plan(text);
  Future first = comms[0].start(call(x));
  wait_for_beginning(comms[0], 1);  // it has nobody's memory to send to
  comms[1].use_plan(text);
  comms[1].run(call(y));
  first.wait();
  for (const auto& v : {x, y}) EXPECT_EQ(v, std::vector<std::int32_t>(1000, 3));
}

TEST(UsersPlan, ThatARankNeverTakesIsAnErrorThatNamesIt) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  std::vector<std::int32_t> x(1000, 1), y(1000, 2);
  comms[0].use_plan(many_rings(2, 20));
  Future first =
      comms[0].start({Collective::all_reduce, x.data(), x.data(), x.size(), DataType::int32});
  wait_for_beginning(comms[0], 1);
  const Error theirs =
      error_of([&] { comms[1].all_reduce(y.data(), y.data(), y.size(), DataType::int32); });
  EXPECT_EQ(theirs.code(), ErrorCode::mismatch) << theirs.what();
  EXPECT_NE(std::string(theirs.what()).find("another plan"), std::string::npos) << theirs.what();
  EXPECT_EQ(error_of([&] { first.wait(); }).code(), ErrorCode::mismatch);
}

TEST(UsersPlan, OfARankThatHasLeftIsAnErrorThatNamesIt) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  std::vector<std::int32_t> x(1000, 1);
  comms[0].use_plan(many_rings(2, 20));
  Future first =
      comms[0].start({Collective::all_reduce, x.data(), x.data(), x.size(), DataType::int32});
  wait_for_beginning(comms[0], 1);
  comms[1].destroy();
  const Error e = error_of([&] { first.wait(); });
  EXPECT_EQ(e.code(), ErrorCode::peer_lost) << e.what();
  EXPECT_EQ(e.rank(), 1);
}

TEST(UsersPlan, MayHaveMoreStepsThanProgressHasBitsFor) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  EXPECT_EQ(comms[0].impl().group->diagnostics().progress_text(1), "no step of any operation");
  for (int i = 0; i < 3; ++i) {
    group([&] {
      for (Communicator& c : comms) c.barrier();
    });
  }
  ControlBlock& control = comms[1].impl().group->control();
  control.progress.store(progress_of(3, 7));
  EXPECT_EQ(comms[0].impl().group->diagnostics().progress_text(1), "step 7 of its operation #3");
  control.progress.store(progress_of(3, 0) + (1U << kStepBits) + 5);
  EXPECT_EQ(comms[0].impl().group->diagnostics().progress_text(1),
            "step 16777221 of its operation #3");
  control.progress.store(progress_of(2, 4));  // number 3 has begun, and done no step
  EXPECT_EQ(comms[0].impl().group->diagnostics().progress_text(1), "step 4 of its operation #2");
}

// --- What a communicator's links must have -------------------------------------------------------

/// Two ranks that send each other `sends` pieces before they take any: that many slots are needed.
std::string eager(std::uint32_t sends, std::uint32_t slots, std::uint32_t widest = 1) {
  std::string text = fmt::format(
      "tutti plan 1\nall_to_all eager  ranks 2  pieces {}  slots {}  lanes 1  widest {}\n", sends,
      slots, widest);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const std::uint32_t own = rank * sends, other = (1 - rank) * sends;
    text += fmt::format("rank {}\n  lane 0\n    out[{}:{}] <- in[{}:{}]\n", rank, own, own + sends,
                        own, own + sends);
    for (std::uint32_t i = 0; i < sends; ++i) {
      text += fmt::format("    to({}) <- in[{}]\n", 1 - rank, other + i);
    }
    for (std::uint32_t i = 0; i < sends; ++i) {
      text += fmt::format("    out[{}] <- from({})\n", other + i, 1 - rank);
    }
  }
  return text;
}

/// Every rank refuses `text` with `words`, and goes on without it.
void expect_refused(int ranks, const Options& options, const std::string& text,
                    const std::vector<std::string>& words) {
  run_thread_ranks(ranks, options, [&](Communicator& c) {
    const Error e = error_of([&] { c.use_plan(text); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    for (const std::string& w : words) {
      EXPECT_NE(std::string(e.what()).find(w), std::string::npos) << w << " in: " << e.what();
    }
    const auto n = static_cast<std::size_t>(c.size());
    std::vector<std::int32_t> in(n, c.rank()), out(n);
    c.all_to_all(in.data(), out.data(), 1, DataType::int32);
    for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(out[r], static_cast<std::int32_t>(r));
  });
}

void expect_right_all_to_all(const Options& options, const std::string& text) {
  run_thread_ranks(2, options, [&](Communicator& c) {
    c.use_plan(text);
    for (const std::size_t count : {1UL, 100UL, 5000UL, 100'000UL}) {
      std::vector<std::int32_t> in(2 * count), out(2 * count);
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<std::int32_t>(i) + 1'000'000 * c.rank();
      }
      c.all_to_all(in.data(), out.data(), count, DataType::int32);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t mine = i % count + count * static_cast<std::size_t>(c.rank());
        ASSERT_EQ(out[i], static_cast<std::int32_t>(mine + 1'000'000 * (i / count)));
      }
    }
  });
}

Options two_slots(std::size_t slot_bytes) {
  Options options;
  options.timeout = 30s;
  options.slots = 2;
  options.slot_bytes = slot_bytes;
  return options;
}

TEST(UsersPlan, NeedsItsSlots) {
  expect_refused(2, two_slots(1024), eager(3, 3),
                 {"\"eager\"", "links of 3 slots", "have 2 with 1024", "TUTTI_SLOTS"});
  expect_right_all_to_all(two_slots(1024), eager(2, 2));
  Options options = two_slots(1024);
  options.slots = 3;
  expect_right_all_to_all(options, eager(3, 3));
}

TEST(UsersPlan, NeedsOnlyTheSlotsThatItUses) {
  expect_right_all_to_all(two_slots(1024), eager(2, 65'536));
  expect_right_all_to_all(two_slots(1024), eager(1, 4000, 1U << 24));  // and the width
}

TEST(UsersPlan, NeedsSlotsForItsWidestMessage) {
  const auto wide = [](std::uint32_t pieces) {
    return fmt::format(
        "tutti plan 1\nall_to_all wide  ranks 2  pieces {0}  slots 1  lanes 1  widest {0}\n"
        "rank 0\n  lane 0\n    out[0:{0}] <- in[0:{0}]\n    to(1) <- in[{0}:{1}]\n"
        "    out[{0}:{1}] <- from(1)\n"
        "rank 1\n  lane 0\n    out[{0}:{1}] <- in[{0}:{1}]\n    to(0) <- in[0:{0}]\n"
        "    out[0:{0}] <- from(0)\n",
        pieces, 2 * pieces);
  };
  expect_right_all_to_all(two_slots(1024), wide(16));
  expect_refused(2, two_slots(1024), wide(17), {"1 slots with 1088 bytes", "TUTTI_SLOT_BYTES"});
  expect_right_all_to_all(two_slots(2048), wide(17));
}

TEST(UsersPlan, MayHaveMuchTmp) {
  // 16 million chunks: tiles become as small as they can be, and only what is used takes memory.
  const std::string text =
      "tutti plan 1\nall_to_all tmp  ranks 2  pieces 1  slots 1  lanes 1\n"
      "rank 0  tmp 16777216\n  lane 0\n    out[0] <- in[0]\n    to(1) <- in[1]\n"
      "    tmp[16777215] <- from(1) as out[1]\n    out[1] <- tmp[16777215]\n"
      "rank 1\n  lane 0\n    out[1] <- in[1]\n    to(0) <- in[0]\n    out[0] <- from(0)\n";
  expect_right_all_to_all(two_slots(1 << 20), text);
}

// --- What no communicator runs -------------------------------------------------------------------

TEST(UsersPlan, ForSendAndRecvIsRefused) {
  expect_refused(1, {}, R"(tutti plan 1
send_recv alone  ranks 1  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- in[0]
)",
                 {"send_recv", "send and recv are calls of two ranks"});
}

TEST(UsersPlan, WhoseLanesWouldNotRepeatAlikeIsRefused) {
  // Rank 0's lane moves blocks of two sizes, rank 1's one of them.
  const std::string text = R"(tutti plan 1
all_to_all_v mixed  ranks 2  pieces 1  slots 2  lanes 2
rank 0
  lane 0
    out[0] <- in[0]
    to(1) <- in[1]
  lane 1
    out[1] <- from(1).0
rank 1
  lane 0
    out[1] <- in[1]
    to(0) <- in[0]
  lane 1
    out[0] <- from(0).0
)";
  expect_refused(2, {}, text,
                 {"rank 0 lane 1 receives from rank 1 lane 0", "do not move the same blocks"});
}

TEST(UsersPlan, ThatAddressesBlocksAtUnknownPlacesIsRefused) {
  expect_refused(2, {}, R"(tutti plan 1
all_gather_v blind  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- in[0]
    to(1) <- ()
    () <- from(1)
    out[0]@1 <- in[0]
    to(1) <- ()
    () <- from(1)
rank 1
  lane 0
    out[1] <- in[0]
    to(0) <- ()
    () <- from(0)
    out[1]@0 <- in[0]
    to(0) <- ()
    () <- from(0)
)",
                 {"rank 0 addresses out[0]@1", "where its blocks lie"});
}

// --- What a plan is made into --------------------------------------------------------------------

TEST(PlanNeeds, AreWhatThePlanUses) {
  Plan plan = plan_from_text(many_channels(3, 1));
  PlanNeeds needs = needs_of(plan);
  EXPECT_EQ(needs.channels, 255U);
  EXPECT_EQ(needs.lane_links, 2U * 255);
  EXPECT_EQ(needs.operands, 4U);
  EXPECT_TRUE(needs.path.link_data);
  EXPECT_FALSE(needs.path.windows);

  plan = plan_from_text(R"(tutti plan 1
broadcast sparse  ranks 3  root 0  pieces 2  slots 9  lanes 1  widest 7
rank 0  tmp 4
  lane 0
    out[0:2], to(1).200, to(2).13 <- in[0:2]
    to(1).100 <- ()
    to(1).200 <- ()
rank 1  tmp 5
  lane 0
    out[0:2] <- from(0).200
    () <- from(0).100
    () <- from(0).200
rank 2
  lane 0
    out[0:2] <- from(0).13
)");
  tighten(plan);
  EXPECT_EQ(to_text(plan), R"(tutti plan 1
broadcast sparse  ranks 3  root 0  pieces 2  slots 2  lanes 1  widest 2
rank 0  tmp 4
  lane 0
    out[0:2], to(1).1, to(2) <- in[0:2]
    to(1) <- ()
    to(1).1 <- ()
rank 1  tmp 5
  lane 0
    out[0:2] <- from(0).1
    () <- from(0)
    () <- from(0).1
rank 2
  lane 0
    out[0:2] <- from(0)
)");
  needs = needs_of(plan);
  EXPECT_EQ(needs.channels, 2U);
  EXPECT_EQ(needs.path.tmp_chunks, 5U);
}

}  // namespace
}  // namespace tutti::test
