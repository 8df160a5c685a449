// Hangs, made by hand, and the ranks that are named for them within 2 s: by `tutti top`, or by the
// error that the ranks throw. The default run takes a few kinds; TopNamesTheGuilty.InEveryKind
// (label long) takes all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/run_job.h"
#include "tools/output_of.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

struct Kind {
  const char* name;
  std::vector<int> ranks;  // one of the culprits has all of these, and the sentence
  const char* call;        // names this call
  const char* error = "";  // instead: some rank's error says so
  const char* also = "";   // the sentence has this too
  int processes = 4;
};

const std::vector<Kind>& kinds() {
  static constexpr char kNext[] = "all_reduce #41 (float32 x 1024, sum)";
  static const std::vector<Kind> all{
      {"sleeps", {2}, kNext, "", "its last was all_reduce #40"},
      {"computes", {2}, kNext, "", "computes ("},
      {"reads", {2}, kNext, "", "sleeps in the kernel"},
      {"locks", {2}, kNext, "", "sleeps in the kernel"},
      {"is-stopped", {2}, kNext, "", "kill -CONT"},
      {"dies", {}, "", ") died after step"},
      {"leaves", {}, "", "rank 2 has left the communicator"},
      {"raises", {2}, kNext, "", "a call of it was refused"},
      {"skips", {}, "", "rank 2 called barrier #41"},
      {"swaps", {}, "", "rank 2 called broadcast #41"},
      {"other-shape", {}, "", "rank 2 called all_reduce #41 (float32 x 1023, sum)"},
      {"other-group", {2}, "all_reduce #42 (float32 x 1024, sum)", "", "Rank 2 is the odd one out"},
      {"two-groups", {}, "all_reduce #1 (float32 x 1024, sum)", "", "wait for each other"},
      {"recv-without-send", {2}, "recv from rank 2 (float32 x 8)"},
      {"wrong-peer", {1, 2}, "recv from rank 2 (float32 x 8)", "", "barrier #41"},
      {"wrong-message", {}, "", "from rank 2, which sent float32 x 7"},
      {"subset", {2, 3}, "barrier #41"},
      {"no-signal", {2}, "wait_signal of window"},
      {"slow", {2}, "all_reduce #"},
      {"not-started", {2}, kNext},
      {"no-message-among-started-calls", {2}, kNext},
      {"threads", {2}, kNext, "", "4 ranks as threads", 1},
      {"does-not-begin", {2}, "new communicator", "", "has not called Tutti yet"},
      {"on-two-hosts", {2}, kNext},
  };
  return all;
}

bool has_all(const nlohmann::json& ranks, const std::vector<int>& wanted) {
  return std::ranges::all_of(
      wanted, [&](int r) { return std::ranges::find(ranks, nlohmann::json(r)) != ranks.end(); });
}

/// Whether `tutti top` names the ranks that are to blame. `seen`: what it says.
bool names(const Kind& kind, pid_t job, std::string& seen) {
  const Output out =
      output_of({TUTTI_COMMAND, "top", "--json", std::to_string(job)}, std::chrono::seconds(10));
  if (out.status != 0) {
    seen = fmt::format("status {}: {}", out.status, out.complaint);
    return false;
  }
  const auto all = nlohmann::json::parse(out.text);
  seen.clear();
  bool named = false;
  const auto look_at = [&](const nlohmann::json& culprits) {
    // The culprit that is named first counts.
    bool first = true;
    for (const auto& c : culprits) {
      const auto sentence = c.at("sentence").get<std::string>();
      seen += sentence + "\n";
      named = named || (first && has_all(c.at("ranks"), kind.ranks) &&
                        sentence.find(kind.call) != sentence.npos &&
                        sentence.find(kind.also) != sentence.npos);
      first = false;
    }
  };
  for (const auto& j : all.at("jobs")) look_at(j.at("culprits"));
  look_at(all.at("starting"));
  return named;
}

void expect_named(const Kind& kind) {
  SCOPED_TRACE(kind.name);
  Job job({"-n", std::to_string(kind.processes), "--keep-going", HUNG_RANK, kind.name});
  ASSERT_TRUE(job.out_has("now\n")) << job.err();
  const auto now = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - now).count(); };
  std::string seen;
  bool named = false;
  while (!named && seconds() < 10) {
    if (kind.error[0] != '\0') {
      seen = job.err();
      named = seen.find(kind.error) != seen.npos;
      if (!named) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else {
      named = names(kind, job.pid(), seen);
    }
  }
  EXPECT_TRUE(named) << seen;
  // On a machine that does other things too, twice as long is not late yet.
  EXPECT_LT(seconds(), 4);
  fmt::print("{:<32} {:.2f} s  {}\n", kind.name, seconds(), seen.substr(0, seen.find('\n')));
}

TEST(TopNamesTheGuilty, InAFewKinds) {
  for (const Kind& kind : kinds()) {
    const std::string_view name = kind.name;
    if (name == "sleeps" || name == "is-stopped" || name == "other-group" || name == "threads" ||
        name == "does-not-begin") {
      expect_named(kind);
    }
  }
}

TEST(TopNamesTheGuilty, InEveryKind) {
  if (std::getenv("TUTTI_TEST_ALL_HANGS") == nullptr) {
    GTEST_SKIP() << "all kinds: TUTTI_TEST_ALL_HANGS=1, as the test with the label long does";
  }
  for (const Kind& kind : kinds()) expect_named(kind);
}

}  // namespace
}  // namespace tutti
