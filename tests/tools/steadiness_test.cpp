// What `tutti calibrate` concludes from rounds that do not agree, and from other processes' load.
#include "tools/calibrate/steadiness.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/contains.h"

namespace tutti {
namespace {

/// So many rounds, in which every constant of the `disturbed` is `factor` as large.
std::vector<Machine> rounds_of(std::size_t rounds, std::vector<std::size_t> disturbed,
                               double factor) {
  Machine m = default_machine();
  double value = 1;
  for (const MachineConstant& c : machine_constants()) m.*c.value = value++;
  std::vector<Machine> all(rounds, m);
  for (const std::size_t round : disturbed) {
    for (const MachineConstant& c : machine_constants()) all[round].*c.value *= factor;
  }
  return all;
}

TEST(Steadiness, RoundsThatAgreeOnAnIdleMachineAreNoReasonToWarn) {
  EXPECT_EQ(warning_of_load(0.1, rounds_of(7, {}, 1)), "");
  EXPECT_EQ(warning_of_load(std::nullopt, rounds_of(7, {1, 3, 4}, 1.9)), "");
}

TEST(Steadiness, OneRoundThatIsDisturbedDoesNoHarmToAMedian) {
  for (const std::size_t rounds : {3U, 5U, 7U, 12U}) {
    EXPECT_TRUE(unsteady_constants(rounds_of(rounds, {1}, 40)).empty()) << rounds;
  }
}

TEST(Steadiness, RoundsThatDisagreeAreNamed) {
  const auto rounds = rounds_of(7, {0, 2, 5}, 40);
  EXPECT_EQ(unsteady_constants(rounds).size(), machine_constants().size());
  const std::string text = warning_of_load(std::nullopt, rounds);
  EXPECT_CONTAINS(text, "the rounds differ by more than a factor of 2 in ");
  EXPECT_CONTAINS(text, std::string(machine_constants().front().name));
  EXPECT_EQ(text.find("other processes"), std::string::npos);
}

TEST(Steadiness, TheLoadOfOthersCountsWithOneRound) {
  EXPECT_CONTAINS(warning_of_load(1.5, rounds_of(1, {}, 1)),
                  "other processes used 1.5 cores meanwhile");
  EXPECT_TRUE(unsteady_constants(rounds_of(1, {0}, 40)).empty());
}

}  // namespace
}  // namespace tutti
