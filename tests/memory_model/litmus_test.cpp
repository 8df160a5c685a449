// The explorer shows what the memory model allows, and nothing else, in the classic programs.
#include "tests/memory_model/litmus.h"

#include <gtest/gtest.h>

namespace tutti::model {
namespace {

class LitmusTest : public testing::TestWithParam<Litmus> {};

TEST_P(LitmusTest, ShowsWhatIsAllowed) {
  std::set<std::string> outcomes;
  const Result result =
      explore(GetParam().program(outcomes), {.preemptions = 9, .executions = 200'000});
  EXPECT_TRUE(result.complete) << result.executions;
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(outcomes, GetParam().allowed);
}

INSTANTIATE_TEST_SUITE_P(All, LitmusTest, testing::ValuesIn(litmus()), [](const auto& program) {
  std::string name;
  for (const char c : program.param.name) name += c == '+' ? 'x' : c;
  return name;
});

TEST(ExplorerTest, FindsDataRaces) {
  EXPECT_EQ(explore(passes_plain_data(true)).failure, "");
  EXPECT_NE(explore(passes_plain_data(false)).failure.find("data race"), std::string::npos);
}

TEST(ExplorerTest, FindsAThreadThatWaitsForEver) {
  EXPECT_EQ(explore(waits_for_ever()).failure, "a thread waits for ever");
}

TEST(ExplorerTest, ReplaysAFailure) {
  const Program program = passes_plain_data(false);
  const Result found = explore(program);
  const Result again = replay(program, found.choices);
  EXPECT_NE(again.failure.find("data race"), std::string::npos);
  EXPECT_NE(again.story.find("thread 1: load"), std::string::npos) << again.story;
}

TEST(ExplorerTest, ARandomExecutionFindsItToo) {
  EXPECT_NE(explore(passes_plain_data(false), {.executions = 1, .random = 200}).failure, "");
}

}  // namespace
}  // namespace tutti::model
