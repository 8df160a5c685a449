// The verifier on plans whose steps come in the wrong order, or in none: races between lanes, tiles
// and ranks, remote memory used too early or too late, and leaky barriers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/verify.h"
#include "tests/collectives/verify_plans.h"

namespace tutti {
namespace {

// --- Races ---------------------------------------------------------------------------------------

TEST(Verify, FindsARaceBetweenLanes) {
  expect_proved(kHandOver);
  expect_refuted(with(kHandOver, "    tmp[0] <- in[0]\n    to(0).2 <- ()\n",
                      "    to(0).2 <- ()\n    tmp[0] <- in[0]\n"),
                 {"tmp[0]"});
  // Two lanes write the same value: the order does not matter for the result, and yet it is a race.
  expect_refuted(
      R"(send_recv bad  ranks 1  pieces 1  slots 1  lanes 2
rank 0
  lane 0
    out[0] <- in[0]
  lane 1
    out[0] <- in[0]
)",
      {"race: rank 0 lane 0 step 0 (out[0] <- in[0]) writes out[0] of rank 0, and rank 0 "
       "lane 1 step 0 (out[0] <- in[0]) writes it, and no message puts one before the "
       "other"});
}

/// Every rank hands what it receives from one lane to another; at rank `wrong` the first lane does
/// not wait until the box is empty again.
PlanParts hand_overs(int ranks, int wrong) {
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.algorithm = "hand_over";
  header.ranks = ranks;
  header.lanes = 2;
  return {header, [header, wrong](int rank) {
            RankPlanBuilder b(header, rank);
            const Operand box = tmp(b.reserve_tmp(1));
            const int next = (rank + 1) % header.ranks;
            const int prev = (rank + header.ranks - 1) % header.ranks;
            b.lane(0).step({to(next)}, {in(0)});
            b.lane(0).step({box}, {from(prev)}).shaped_as(in(0));
            b.lane(0).step({to(rank, 2)}, {});
            b.lane(1).step({}, {from(rank, 2)});
            b.lane(1).step({out(0)}, {box});
            if (rank != wrong) {
              b.lane(0).step({}, {from(rank, 3)});
              b.lane(1).step({to(rank, 3)}, {});
            }
            return b.finish();
          }};
}

// More lanes than clocks of all of them fit in memory for.
TEST(Verify, FindsARaceAmongVeryManyLanes) {
  constexpr int kRanks = 10'000;
  const Verdict good = verify(hand_overs(kRanks, -1));
  EXPECT_TRUE(good.proved) << good.story;
  for (const int wrong : {0, 5000, kRanks - 1}) {
    const Verdict bad = verify(hand_overs(kRanks, wrong));
    EXPECT_FALSE(bad.proved);
    EXPECT_NE(bad.story.find(fmt::format("tmp[0] of rank {}, ", wrong)), std::string::npos)
        << bad.story;
  }
}

TEST(Verify, FindsARaceWithTheNextTile) {
  std::string text = with(kHandOver, "    () <- from(0).3\n", "");
  text = with(text, "    to(0).3 <- ()\n", "");
  expect_refuted(text, {"race: rank 0 lane 1 step 1 (out[0] <- tmp[0]) reads tmp[0] of rank 0, and "
                        "rank 0 lane 0 step 0 (tmp[0] <- in[0]) of the next tile writes it"});
}

// A free slot is no order: with two slots nothing would wait.
TEST(Verify, DoesNotCountFreedSlotsAsOrder) {
  expect_refuted(R"(send_recv bad  ranks 1  pieces 1  slots 1  lanes 2
rank 0  tmp 1
  lane 0
    tmp[0] <- in[0]
    to(0).2 <- ()
    to(0).2 <- ()
    tmp[0] <- in[0]
  lane 1
    () <- from(0).2
    out[0] <- tmp[0]
    () <- from(0).2
)",
                 {"race: ", "tmp[0] of rank 0"});
}

TEST(Verify, LetsManyReadAtATime) {
  expect_proved(R"(broadcast two_lanes  ranks 2  root 0  pieces 2  slots 1  lanes 2
rank 0
  lane 0
    to(1) <- in[0]
    out[0:2] <- in[0:2]
  lane 1
    to(1) <- in[1]
rank 1
  lane 0
    out[0] <- from(0)
  lane 1
    out[1] <- from(0)
)");
}

TEST(Verify, FollowsOrderThroughOtherRanks) {
  const std::string text = R"(send_recv round_trip  ranks 2  pieces 1  slots 1  lanes 2
rank 0  tmp 1
  lane 0
    tmp[0] <- in[0]
    to(1).2 <- ()
    () <- from(0).4
    out[0] <- from(1).5
  lane 1
    () <- from(1).3
    to(1).6 <- tmp[0] as in[0]
    to(0).4 <- ()
rank 1
  lane 0
    () <- from(0).2
    to(0).3 <- ()
    to(0).5 <- in[0]
    out[0] <- from(0).6
)";
  expect_proved(text);
  expect_refuted(with(text, "    () <- from(0).2\n    to(0).3 <- ()\n",
                      "    to(0).3 <- ()\n    () <- from(0).2\n"),
                 {"tmp[0]"});
}

// --- Windows -------------------------------------------------------------------------------------

TEST(Verify, FindsRemoteMemoryThatIsUsedTooEarly) {
  std::string text = with(kTwoShot2, "    () <- from(1)\n    out[0]", "    out[0]");
  text = with(text, "    to(1) <- ()\n    () <- from(1)\nrank 1",
              "    to(1) <- ()\n    () <- from(1)\n    () <- from(1)\nrank 1");
  expect_refuted(text, {"rank 0 lane 0 step 1", "need not have received a signal from rank 1"});
}

TEST(Verify, FindsRemoteMemoryWhoseAddressNobodyTold) {
  const std::string text = R"(broadcast window  ranks 2  root 0  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- in[0]
    to(1) <- ()
    () <- from(1)
rank 1  tmp 1
  lane 0
    () <- from(0)
    out[0] <- in[0]@0
    to(0) <- ()
)";
  expect_proved(text);
  // Data orders as well as a signal does, but does not say where the memory is.
  std::string data = with(text, "    to(1) <- ()\n", "    to(1) <- in[0]\n");
  data = with(data, "    () <- from(0)\n    out", "    tmp[0] <- from(0) as out[0]\n    out");
  expect_refuted(data, {"rank 1 lane 0 step 1", "need not have received a signal from rank 0"});
}

TEST(Verify, FindsRemoteMemoryThatIsUsedTooLate) {
  std::string text = with(kTwoShot2, "in[0]@1\n    to(1) <- ()\n    () <- from(1)\n",
                          "in[0]@1\n    () <- from(1)\n");
  text = with(text, "out[1]@0 <= in[1]@0 + in[1]\n    to(0) <- ()\n    () <- from(0)\n",
              "out[1]@0 <= in[1]@0 + in[1]\n    to(0) <- ()\n");
  expect_refuted(text, {"rank 0 lane 0 step 2", "rank 1 can end the call"});
}

TEST(Verify, FindsARaceInRemoteMemory) {
  // Rank 0 writes both chunks in rank 1's memory; rank 1 has the same sum for the second one.
  expect_refuted(with(kTwoShot2, "out[0], out[0]@1 <= in[0] + in[0]@1",
                      "out[0], out[0]@1 <= in[0] + in[0]@1\n    out[1]@1 <= in[1] + in[1]@1"),
                 {"race: ", "out[1] of rank 1", "and no message puts one before the other"});
}

TEST(Verify, LetsLanesShareWhatARankWasTold) {
  const std::string text = R"(send_recv window  ranks 2  pieces 1  slots 1  lanes 2
rank 0
  lane 0
    to(1).2 <- ()
    () <- from(1).2
    to(0).4 <- ()
    () <- from(1).3
  lane 1
    () <- from(0).4
    out[0] <- in[0]@1
    to(1).3 <- ()
rank 1
  lane 0
    to(0).2 <- ()
    () <- from(0).2
    to(1).4 <- ()
    () <- from(0).3
  lane 1
    () <- from(1).4
    out[0] <- in[0]@0
    to(0).3 <- ()
)";
  expect_proved(text);
  std::string early = with(text, "    () <- from(0).4\n    out[0] <- in[0]@1\n",
                           "    out[0] <- in[0]@1\n    () <- from(0).4\n");
  expect_refuted(early, {"rank 0 lane 1 step 0 (out[0] <- in[0]@1)"});
}

TEST(Verify, KeepsRemoteTmpOfTwoTilesApart) {
  // Rank 0 pushes into rank 1's tmp, by leave that rank 1 gives once a tile.
  const std::string text = R"(broadcast push  ranks 2  root 0  pieces 1  slots 2  lanes 2
rank 0
  lane 0
    () <- from(1)
    out[0], tmp[0]@1 <- in[0]
    to(1) <- ()
rank 1  tmp 1
  lane 0
    to(0) <- ()
    () <- from(0)
    out[0] <- tmp[0]
)";
  expect_proved(text);
  // Ranks use windows here, so their lanes meet before the next tile; lane 1 is not in the way.
  expect_proved(with(text, "    () <- from(0)\n    out[0] <- tmp[0]\n",
                     "    () <- from(0)\n    to(1).1 <- ()\n  lane 1\n    () <- from(1)\n"
                     "    out[0] <- tmp[0]\n"));
}

// --- Barriers ------------------------------------------------------------------------------------

TEST(Verify, FindsABarrierThatLetsARankThrough) {
  expect_refuted(R"(barrier bad  ranks 3  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    to(1) <- ()
    () <- from(2)
rank 1
  lane 0
    to(2) <- ()
    () <- from(0)
rank 2
  lane 0
    to(0) <- ()
    () <- from(1)
)",
                 {"can leave the barrier before rank", "has come: no message tells it"});
}

}  // namespace
}  // namespace tutti
