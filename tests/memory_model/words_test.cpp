// The words that processes and threads share keep their promises in every execution that was tried;
// and where an order of one is weaker, or a fence is left out, a program fails.
#include "tests/memory_model/words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "tests/memory_model/sites.h"

namespace tutti::model {
namespace {

/// MODEL_EXECUTIONS: so many of each kind for each program.
Bounds bounds(std::size_t executions) {
  if (const char* const given = std::getenv("MODEL_EXECUTIONS")) {
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

/// Orders that may be weaker for all that these programs know, and why.
struct Needless {
  std::string file, line;  // what the line has in it
  std::string why;
};
const std::vector<Needless>& needless() {
  const std::string claims = "it claims something, and hands on nothing";
  const std::string locked = "the queue's mutex is held, or a fence follows";
  const std::string kernel = "holds the compiler alone: the kernel looks when the thread has ended";
  static const std::vector<Needless> all{
      {"core/asymmetric_fence.cpp", "atomic_thread_fence",
       "the fence where there is no membarrier"},
      {"core/turns.cpp", "first_.compare_exchange_strong", claims},
      {"core/turns.cpp", "busy_.store(false) : holder_.store", locked},
      {"core/turns.cpp", "wanted_.fetch_", locked},
      {"core/turns.cpp", "shared_.exchange", locked},
      {"core/turns.h", "!busy_.load(std::memory_order_acquire)", "for a thread that has ended"},
      {"transport/host/doorbell.cpp", "rings.fetch_add", "a ring that is missed costs a time-out"},
      {"transport/host/doorbell.h", "asleep.store", "a ring that is missed costs a time-out"},
      {"transport/host/failure.cpp", "compare_exchange_strong(none, 1", claims},
      {"transport/host/life_word.cpp", "static auto* const instance", "the compiler's own guard"},
      {"transport/host/life_word.cpp", "compare_exchange_strong(unborn", claims},
      {"transport/host/life_word.cpp", "std::atomic_ref(", kernel},
      {"transport/host/signal_board.h", "state_line().load(order)", "announce() has a fence"},
      {"transport/host_losses.h", "words_[", "the failure that follows hands it on"},
  };
  return all;
}

std::string source_line(const std::string& place) {
  const std::size_t colon = place.rfind(':');
  std::ifstream file(std::string(TUTTI_SOURCE_DIR "/") + place.substr(0, colon));
  std::string line;
  for (int n = std::stoi(place.substr(colon + 1)); n > 0; --n) std::getline(file, line);
  return line;
}

bool is_needless(const Mutant& m) {
  const std::string line = source_line(m.site.place);
  return std::ranges::any_of(needless(), [&](const Needless& n) {
    return m.site.place.starts_with(n.file + ':') && line.find(n.line) != std::string::npos;
  });
}

TEST(MutantsTest, AreNoticedUnlessTheyAreNeedless) {
  // Which programs run what.
  std::vector<std::set<std::uintptr_t>> calls;
  for (const Words& w : words()) {
    note_sites();
    explore(w.program(), {.executions = 20, .random = 100});
    calls.push_back(noted_calls());
  }
  note_sites();
  for (const Words& w : words()) explore(w.program(), {.executions = 20, .random = 100});
  std::size_t all = 0, noticed = 0, without_need = 0;
  std::string missed;
  for (const Mutant& m : mutants_of(noted_sites())) {
    ++all;
    if (is_needless(m)) {
      ++without_need;
      continue;
    }
    const Mutated mutated(m);
    bool found = false;
    for (std::size_t w = 0; w < words().size() && !found; ++w) {
      const bool runs = std::ranges::any_of(
          m.site.calls, [&](std::uintptr_t call) { return calls[w].contains(call); });
      if (runs) found = !explore(words()[w].program(), bounds(400)).failure.empty();
    }
    if (found) {
      ++noticed;
    } else {
      missed += m.text() + '\n';
    }
  }
  fmt::print("{} mutants: {} are needless, {} of {} are noticed; these are not:\n{}", all,
             without_need, noticed, all - without_need, missed);
  EXPECT_GT(all, 60U);
  EXPECT_GE(10 * noticed, 9 * (all - without_need)) << missed;
}

}  // namespace
}  // namespace tutti::model
