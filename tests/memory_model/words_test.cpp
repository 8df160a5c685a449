// The words that processes and threads share keep their promises in every execution that was tried;
// and where an order of one is weaker, or a fence is left out, a program fails.
#include "tests/memory_model/words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "tests/memory_model/sites.h"

namespace tutti::model {
namespace {

/// TUTTI_MODEL_EXECUTIONS: so many of each kind for each program.
Bounds bounds(std::size_t executions) {
  if (const char* const given = std::getenv("TUTTI_MODEL_EXECUTIONS")) {
    executions = std::strtoull(given, nullptr, 10);
  }
  return {.preemptions = 3, .executions = executions, .random = executions};
}

class WordsTest : public testing::TestWithParam<Words> {};

TEST_P(WordsTest, KeepTheirPromise) {
  const Result result = explore(GetParam().program(), bounds(500));
  EXPECT_EQ(result.failure, "") << result.story;
  RecordProperty("executions", static_cast<int>(result.executions));
}

INSTANTIATE_TEST_SUITE_P(All, WordsTest, testing::ValuesIn(words()),
                         [](const auto& program) { return program.param.name; });

// At least nine in ten: docs/memory-model.md says why the others are needless.
TEST(MutantsTest, AreNoticed) {
  // Which programs run what.
  std::vector<std::set<std::uintptr_t>> calls;
  const auto run_all = [](auto&& each) {
    for (const Words& w : words()) {
      each();
      explore(w.program(), {.executions = 20, .random = 100});
    }
  };
  bool begun = false;
  run_all([&] {
    if (begun) calls.push_back(noted_calls());
    begun = true;
    note_sites();
  });
  calls.push_back(noted_calls());
  note_sites();
  run_all([] {});
  const std::vector<Mutant> mutants = mutants_of(noted_sites());
  ASSERT_GT(mutants.size(), 40U);
  std::size_t noticed = 0;
  std::string missed;
  for (const Mutant& m : mutants) {
    const Mutated mutated(m);
    bool found = false;
    for (std::size_t w = 0; w < words().size() && !found; ++w) {
      const bool runs = std::ranges::any_of(
          m.site.calls, [&](std::uintptr_t call) { return calls[w].contains(call); });
      if (runs) found = !explore(words()[w].program(), bounds(300)).failure.empty();
    }
    if (found) {
      ++noticed;
    } else {
      missed += m.text() + '\n';
    }
  }
  fmt::print("{} of {} mutants are noticed; these are not:\n{}", noticed, mutants.size(), missed);
}

}  // namespace
}  // namespace tutti::model
