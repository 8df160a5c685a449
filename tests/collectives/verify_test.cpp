// The verifier on plans written by hand: right ones are proved, and of each way to be wrong there
// is one that is not, with the story that it should tell. Here: deadlocks and wrong results.
#include "collectives/verify.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/collectives/verify_plans.h"

namespace tutti {
namespace {

TEST(Verify, ProvesRings) {
  for (const bool in_place : {false, true}) {
    expect_proved(kRing2, in_place);
    expect_proved(kRing3, in_place);
    expect_proved(kTwoShot2, in_place);
  }
}

TEST(Verify, CountsTrafficAndSteps) {
  const Verdict ring = check(kRing3);
  EXPECT_EQ(ring.steps, 15U);
  EXPECT_EQ(ring.traffic, std::vector<Traffic>(3, Traffic{4, 4}));
  const Verdict two_shot = check(kTwoShot2);
  EXPECT_EQ(two_shot.traffic, std::vector<Traffic>(2, Traffic{1, 1}));
}

// --- One plan of each collective -----------------------------------------------------------------

TEST(Verify, ProvesEveryCollective) {
  expect_proved(R"(all_gather direct  ranks 2  pieces 2  slots 1  lanes 1  widest 2
rank 0
  lane 0
    out[0:2], to(1) <- in[0:2]
    out[2:4] <- from(1)
rank 1
  lane 0
    out[2:4], to(0) <- in[0:2]
    out[0:2] <- from(0)
)",
                true);
  expect_proved(R"(reduce_scatter_v direct  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    to(1) <- in[1]
    out[0] <= in[0] + from(1)
rank 1
  lane 0
    to(0) <- in[0]
    out[0] <= from(0) + in[1]
)",
                true);
  expect_proved(R"(broadcast direct  ranks 3  root 1  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- from(1)
rank 1
  lane 0
    out[0], to(0), to(2) <- in[0]
rank 2
  lane 0
    out[0] <- from(1)
)",
                true);
  expect_proved(R"(reduce direct  ranks 2  root 1  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    to(1) <- in[0]
rank 1
  lane 0
    out[0] <= from(0) + in[0]
)",
                true);
  expect_proved(R"(gather direct  ranks 2  root 1  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    to(1) <- in[0]
rank 1
  lane 0
    out[1] <- in[0]
    out[0] <- from(0)
)",
                true);
  expect_proved(R"(scatter direct  ranks 2  root 1  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- from(1)
rank 1
  lane 0
    to(0) <- in[0]
    out[0] <- in[1]
)",
                true);
  for (const char* name : {"all_to_all", "all_to_all_v"}) {
    expect_proved(std::string(name) + R"( direct  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- in[0]
    to(1) <- in[1]
    out[1] <- from(1)
rank 1
  lane 0
    out[1] <- in[1]
    to(0) <- in[0]
    out[0] <- from(0)
)");
  }
  expect_proved(R"(send_recv direct  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    to(1) <- in[0]
    out[0] <- from(1)
rank 1
  lane 0
    to(0) <- in[0]
    out[0] <- from(0)
)");
  expect_proved(R"(barrier direct  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    to(1) <- ()
    () <- from(1)
rank 1
  lane 0
    to(0) <- ()
    () <- from(0)
)");
}

// --- Deadlocks -----------------------------------------------------------------------------------

TEST(Verify, TellsOfADeadlockForWantOfSlots) {
  expect_refuted(
      with(kRing3, "slots 2", "slots 1"),
      {"deadlock: rank 0 lane 0 step 1 (to(1) <- from(2) + in[1]) waits for a free slot towards "
       "rank 1, whose 1 slot(s) are all unread; rank 1 lane 0 step 1 (to(2) <- from(0) + in[2]) "
       "waits for a free slot towards rank 2, whose 1 slot(s) are all unread; rank 2 lane 0 step 1 "
       "(to(0) <- from(1) + in[0]) waits for a free slot towards rank 0, whose 1 slot(s) are all "
       "unread, which closes the circle"});
}

TEST(Verify, TellsOfADeadlockInWhichEveryoneReceivesFirst) {
  expect_refuted(
      R"(send_recv bad  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- from(1)
    to(1) <- in[0]
rank 1
  lane 0
    out[0] <- from(0)
    to(0) <- in[0]
)",
      {"deadlock: rank 0 lane 0 step 0 (out[0] <- from(1)) waits for a message from rank "
       "1 lane 0; rank 1 lane 0 step 0 (out[0] <- from(0)) waits for a message from rank "
       "0 lane 0, which closes the circle"});
}

TEST(Verify, TellsOfALaneThatWaitsForItself) {
  expect_refuted(R"(barrier bad  ranks 1  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    () <- from(0)
    to(0) <- ()
)",
                 {"rank 0 lane 0 step 0 (() <- from(0)) waits for a message from rank 0 lane 0, "
                  "which closes the circle"});
}

TEST(Verify, AbridgesALongCircle) {
  std::string text = "send_recv bad  ranks 9  pieces 1  slots 1  lanes 1\n";
  for (int r = 0; r < 9; ++r) {
    text += "rank " + std::to_string(r) + "\n  lane 0\n    out[0] <- from(" +
            std::to_string((r + 8) % 9) + ")\n    to(" + std::to_string((r + 1) % 9) +
            ") <- in[0]\n";
  }
  expect_refuted(text,
                 {"deadlock: rank 0 lane 0 step 0", "and so on through 4 more lanes; rank 1 "});
}

TEST(Verify, CountsSendsAndReceives) {
  expect_refuted(with(kRing3, "    out[1] <- from(2)\n", ""),
                 {"rank 2 sends 4 message(s) to rank 0 on channel 0, but rank 0 receives 3"});
}

// --- Wrong results -------------------------------------------------------------------------------

TEST(Verify, FindsAnInputThatIsCountedTwice) {
  expect_refuted(
      with(kRing2, "out[0], to(1) <= from(1) + in[0]", "out[0], to(1) <= from(1) + in[0] + in[0]"),
      {"rank 0 lane 0 step 1", "counts the input of rank 0 twice"});
}

TEST(Verify, FindsAnInputThatIsMissing) {
  expect_refuted(with(kRing3, "to(1) <- from(2) + in[1]", "to(1) <- from(2) as in[1]"),
                 {"rank 1 lane 0 step 2 (out[1], to(2) <= from(0) + in[1])",
                  "is marked to complete the reduction of in[1], which lacks the input of rank 0"});
}

TEST(Verify, FindsChunksThatDoNotBelongTogether) {
  expect_refuted(with(kRing3, "to(1) <- from(2) + in[1]", "to(1) <- from(2) + in[2]"),
                 {"rank 0 lane 0 step 1", "adds up different chunks", "in[1]@2", "in[2]@0"});
}

TEST(Verify, FindsAMisplacedResult) {
  const std::string gather = R"(all_gather bad  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0], to(1) <- in[0]
    out[1] <- from(1)
rank 1
  lane 0
    out[1], to(0) <- in[0]
    out[0] <- from(0)
)";
  expect_refuted(
      with(gather, "out[0], to(1) <- in[0]\n    out[1]", "out[1], to(1) <- in[0]\n    out[0]"),
      {"out[0] of rank 0 should be in[0]@0, but is in[0]@1"});
  expect_refuted(with(gather, "out[0], to(1) <- in[0]", "to(1) <- in[0]"),
                 {"out[0] of rank 0 is never written"});
  expect_refuted(with(gather, "out[0], to(1) <- in[0]", "out[0], to(1) <- in[0] + in[0]"),
                 {"has 2 sources, but all_gather reduces nothing"});
}

TEST(Verify, FindsMemoryThatIsReadBeforeItIsWritten) {
  expect_refuted(with(kRing2, "rank 0\n  lane 0\n    to(1) <- in[1]",
                      "rank 0  tmp 1\n  lane 0\n    to(1) <- tmp[0] as in[1]"),
                 {"rank 0 lane 0 step 0", "reads tmp[0], which nothing has written"});
}

TEST(Verify, ChecksWhereTheReductionIsComplete) {
  expect_refuted(with(kRing3, "out[0], to(1) <= from(2)", "out[0], to(1) <- from(2)"),
                 {"completes the reduction of in[0], but is not marked so"});
  expect_refuted(with(kRing3, "out[1] <- from(2)", "out[1] <= from(2)"),
                 {"is marked to complete the reduction of in[1], which was complete"});
  expect_refuted(with(kRing3, "to(1) <- from(2) + in[1]", "to(1) <= from(2) + in[1]"),
                 {"is marked to complete the reduction of in[1], which lacks the input of rank 1"});
  expect_refuted(
      "broadcast bad  ranks 1  root 0  pieces 1  slots 1  lanes 1\nrank 0\n  lane 0\n"
      "    out[0] <= in[0]\n",
      {"completes a reduction, but broadcast is none"});
  expect_proved(
      "reduce alone  ranks 1  root 0  pieces 1  slots 1  lanes 1\nrank 0\n  lane 0\n"
      "    out[0] <= in[0]\n",
      true);
}

// --- Equal bits ----------------------------------------------------------------------------------

TEST(Verify, DemandsTheSameOrderOnAllRanks) {
  expect_proved(kExchange, true);
  expect_refuted(with(kExchange, "from(0) + out[0]", "out[0] + from(0)"),
                 {"out[0] can have other bits on rank 0 than on rank 1",
                  "copy of in[0]@0 + copy of in[0]@1 on the one",
                  "copy of in[0]@1 + copy of in[0]@0 on the other"});
}

// avg and pre_multiplied_sum scale what is read from `in`. The product is rounded when it is copied
// or sent, but not when it is added at once.
TEST(Verify, TellsACopyOfAnInputFromTheInput) {
  std::string text = with(kExchange, "out[0], to(1) <- in[0]", "to(1) <- in[0]");
  text = with(text, "out[0] + from(1)", "in[0] + from(1)");
  expect_refuted(text, {"out[0] can have other bits on rank 0 than on rank 1",
                        "in[0]@0 + copy of in[0]@1 on the one"});
}

// --- In place ------------------------------------------------------------------------------------

TEST(Verify, FindsAnInputThatIsOverwrittenInPlace) {
  const std::string text = R"(all_reduce exchange  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- in[0]
    to(1) <- in[0]
    out[0] <= out[0] + from(1)
rank 1
  lane 0
    out[0] <- in[0]
    to(0) <- in[0]
    out[0] <= from(0) + out[0]
)";
  expect_proved(text);
  expect_refuted(text, {"rank 0 lane 0 step 1", "reads in[0], which was overwritten"}, true);
}

TEST(Verify, FindsAnInputThatACopyDestroysInPlace) {
  // Rank 1's in[0] is out[1].
  const std::string text = R"(all_gather direct  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0], to(1) <- in[0]
    out[1] <- from(1)
rank 1  tmp 1
  lane 0
    out[0], out[1] <- from(0)
    out[1], to(0) <- in[0]
)";
  expect_proved(text);
  expect_refuted(text, {"out[1] of rank 0 should be in[0]@1, but is in[0]@0"}, true);
}

TEST(Verify, RefusesInPlaceWhereThereIsNone) {
  expect_refuted(
      "all_to_all alone  ranks 1  pieces 1  slots 1  lanes 1\nrank 0\n  lane 0\n"
      "    out[0] <- in[0]\n",
      {"all_to_all has no in-place form"}, true);
}

// --- Sizes ---------------------------------------------------------------------------------------

TEST(Verify, TellsPiecesOfDifferentSizesApart) {
  expect_refuted(with(kRing2, "rank 0\n  lane 0\n    to(1) <- in[1]",
                      "rank 0  tmp 1\n  lane 0\n    tmp[0] <- in[1]\n    to(1) <- tmp[0] as in[0]"),
                 {"rank 0 lane 0 step 1", "moves copy of in[1]@0 as if it were as large as in[0]"});
  expect_refuted(with(kRing2, "out[0], to(1) <=", "out[0], out[1], to(1) <="),
                 {"is as large as out[0], but out[1] can have another size"});
}

TEST(Verify, TellsBlocksOfDifferentSizesApart) {
  const std::string text = R"(all_to_all_v direct  ranks 2  pieces 1  slots 1  lanes 1
rank 0  tmp 1
  lane 0
    out[0] <- in[0]
    to(1) <- in[1]
    tmp[0] <- from(1) as out[1]
    out[1] <- tmp[0]
rank 1
  lane 0
    out[1] <- in[1]
    to(0) <- in[0]
    out[0] <- from(0)
)";
  expect_proved(text);
  expect_refuted(with(text, "from(1) as out[1]", "from(1) as out[0]"),
                 {"moves in[0]@1 as if it were as large as out[0]"});
  expect_proved(
      with(with(text, "all_to_all_v", "all_to_all"), "from(1) as out[1]", "from(1) as out[0]"));
}

TEST(Verify, ComparesWhatIsSentWithWhatIsExpected) {
  const std::string text = R"(broadcast bad  ranks 2  root 0  pieces 2  slots 2  lanes 1  widest 2
rank 0
  lane 0
    out[0:2], to(1) <- in[0:2]
rank 1
  lane 0
    out[0:2] <- from(0)
)";
  expect_proved(text, true);
  expect_refuted(with(with(text, "out[0:2], to(1) <- in[0:2]",
                           "out[0], to(1) <- in[0]\n    out[1], to(1) <- in[1]"),
                      "out[0:2] <- from(0)", "out[0:2] <- from(0)\n    () <- from(0)"),
                 {"rank 1 lane 0 step 0", "expects 2 chunk(s) from rank 0, whose message has 1"});
  expect_refuted(with(text, "  widest 2", ""),
                 {"puts 2 chunks into one message, but the header says that the widest has 1"});
}

}  // namespace
}  // namespace tutti
