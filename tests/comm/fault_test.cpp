// Ranks that die, whatever they and the others are doing: every survivor must notice within a
// second, name the right rank, and go on with the others, with right data; and nothing is left
// behind. Ranks that are stopped are waited for, or named when the time is up.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/unique_id.h"
#include "tests/support/leftovers.h"
#include "tests/support/processes.h"
#include "tests/support/variable.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// The ranks of one job, started directly so that nobody cleans up after them.
class Job {
 public:
  /// With `arguments` of fault_rank.
  Job(int ranks, const std::vector<std::string>& arguments) {
    static int jobs = 0;
    mark_ = fmt::format("fault-{}-{}-", getpid(), ++jobs);
    const std::string id = tutti::to_string(tutti::make_unique_id());
    std::vector<char*> argv{const_cast<char*>(FAULT_RANK)};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    for (int r = 0; r < ranks; ++r) {
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
      const std::string rank = std::to_string(r);
      const std::string size = std::to_string(ranks);
      const pid_t pid = fork();
      if (pid == 0) {
        setenv("TUTTI_RANK", rank.c_str(), 1);
        setenv("TUTTI_SIZE", size.c_str(), 1);
        setenv("TUTTI_UNIQUE_ID", id.c_str(), 1);
        setenv("TUTTI_TEST_MARK", mark_.c_str(), 1);
        if (const char* each = std::getenv("TUTTI_TEST_RANKS_PER_HOST")) {
          setenv("TUTTI_HOST_ID", fmt::format("host{}", r / std::atoi(each)).c_str(), 1);
        }
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv(FAULT_RANK, argv.data());
        _exit(127);
      }
      close(ends[1]);
      ranks_.push_back({pid, ends[0], {}});
    }
  }
  ~Job() {
    for (Rank& rank : ranks_) {
      if (!rank.ended) {
        kill(rank.pid, SIGKILL);
        waitpid(rank.pid, nullptr, 0);
      }
      close(rank.output);
    }
    EXPECT_TRUE(tutti::eventually([&] { return tutti::marked_processes(mark_).empty(); }));
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  std::size_t size() const { return ranks_.size(); }
  pid_t pid(std::size_t rank) const { return ranks_[rank].pid; }
  const std::string& text(std::size_t rank) const { return ranks_[rank].text; }

  /// Stops the rank; returns when it stands.
  void stop(std::size_t rank) const {
    kill(pid(rank), SIGSTOP);
    waitpid(pid(rank), nullptr, WUNTRACED);
  }
  /// Reads until `rank` has said `what` so many times; false when it does not, for 20 s.
  bool says(std::size_t rank, const std::string& what, std::size_t times = 1) {
    const auto deadline = Clock::now() + 20s;
    while (count(rank, what) < times) {
      if (!read_some(rank, deadline)) return false;
    }
    return true;
  }
  bool all_say(const std::string& what) {
    for (std::size_t r = 0; r < size(); ++r) {
      if (!says(r, what)) return false;
    }
    return true;
  }
  std::size_t count(std::size_t rank, const std::string& what) const {
    std::size_t found = 0;
    for (auto at = text(rank).find(what); at != std::string::npos;
         at = text(rank).find(what, at + what.size())) {
      ++found;
    }
    return found;
  }
  /// Reads until `rank` has said nothing for so long.
  bool falls_silent(std::size_t rank, std::chrono::milliseconds silence) {
    const auto deadline = Clock::now() + 20s;
    while (Clock::now() < deadline) {
      if (!read_some(rank, Clock::now() + silence)) return true;
    }
    return false;
  }
  /// The exit code of `rank` (-signal when killed), or nothing by then. Collects its output.
  std::optional<int> wait(std::size_t rank, Clock::time_point deadline) {
    while (read_some(rank, deadline)) {
    }
    int status = 0;
    while (waitpid(pid(rank), &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(1ms);
    }
    ranks_[rank].ended = true;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  struct Rank {
    pid_t pid = -1;
    int output = -1;
    std::string text;
    bool ended = false;
  };

  bool read_some(std::size_t rank, Clock::time_point deadline) {
    Rank& r = ranks_[rank];
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd p{r.output, POLLIN, 0};
    if (left <= 0 || poll(&p, 1, static_cast<int>(left)) <= 0) return false;
    std::array<char, 4096> buffer{};
    const ssize_t n = read(r.output, buffer.data(), buffer.size());
    if (n <= 0) return false;
    r.text.append(buffer.data(), static_cast<std::size_t>(n));
    return true;
  }

  std::string mark_;
  std::vector<Rank> ranks_;
};

/// A setting for the ranks, also where an assertion ends the test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

/// In each of the kinds of tests below.
int kills() { return tutti::test::number_from("TUTTI_TEST_KILLS", 9); }

/// Every rank of 2, of 3 and of 4 is killed in turn.
struct Victim {
  std::size_t ranks, victim;
};
Victim victim_of(int round) {
  constexpr std::array<Victim, 9> kVictims{
      {{3, 0}, {4, 3}, {2, 1}, {4, 0}, {3, 2}, {2, 0}, {4, 1}, {3, 1}, {4, 2}}};
  return kVictims[static_cast<std::size_t>(round) % kVictims.size()];
}

/// What a survivor has said behind `which` ("ERROR"): the code, the rank, when, and the sentence.
struct Said {
  std::string code;
  std::size_t rank = SIZE_MAX;
  Clock::time_point when{};
  std::string text;
};
Said said(const std::string& text, const std::string& which) {
  std::size_t at = text.find(which + " ");
  if (at == std::string::npos) return {};
  at += which.size() + 1;
  char code[32] = {};
  long rank = -1;
  long long when = 0;
  int used = 0;
  if (std::sscanf(text.c_str() + at, "%31s %ld %lld %n", code, &rank, &when, &used) != 3) return {};
  const auto sentence = at + static_cast<std::size_t>(used);
  return {code, static_cast<std::size_t>(rank), Clock::time_point(std::chrono::nanoseconds(when)),
          text.substr(sentence, text.find('\n', sentence) - sentence)};
}

struct Doing {
  const char* action;
  const char* memory;
  bool one_communicator;  // the victim is a part of it: the first error names the victim
};

class KillsDuring : public testing::TestWithParam<Doing> {};
INSTANTIATE_TEST_SUITE_P(
    Faults, KillsDuring,
    testing::Values(Doing{"call", "kept", true}, Doing{"message", "kept", true},
                    Doing{"group", "kept", false}, Doing{"start", "kept", false},
                    Doing{"split", "kept", true}, Doing{"shrink", "kept", true},
                    Doing{"call", "windows", true}, Doing{"call", "registered", true},
                    Doing{"mixed", "any", false}),
    [](const auto& test) { return std::string(test.param.action) + "_" + test.param.memory; });

TEST_P(KillsDuring, AreNoticedAndSurvivedByAllOthers) {
  const Doing& doing = GetParam();
  std::mt19937 random(20240);
  const std::size_t before = tutti::test::files_left();
  double slowest = 0;  // until a survivor knew
  for (int round = 0; round < kills(); ++round) {
    const auto [ranks, victim] = victim_of(round);
    Job job(static_cast<int>(ranks), {doing.action, doing.memory, std::to_string(round), "1"});
    ASSERT_TRUE(job.all_say("READY")) << "round " << round << ": " << job.text(0) << job.text(1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const auto killed = Clock::now();
    kill(job.pid(victim), SIGKILL);
    const auto deadline = killed + 30s;
    EXPECT_EQ(job.wait(victim, deadline), -SIGKILL) << job.text(victim);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == victim) continue;
      SCOPED_TRACE(fmt::format("round {}: rank {} of {}, victim {}", round, r, ranks, victim));
      const auto code = job.wait(r, deadline);
      ASSERT_TRUE(code.has_value()) << "hangs: " << job.text(r);
      ASSERT_EQ(*code, 0) << job.text(r);
      const Said error = said(job.text(r), "ERROR");
      EXPECT_EQ(error.code, "peer_lost") << job.text(r);
      EXPECT_EQ(error.rank, victim) << job.text(r);
      EXPECT_NE(error.text.find(fmt::format("rank {} (pid {}", victim, job.pid(victim))),
                std::string::npos)
          << job.text(r);
      EXPECT_NE(job.text(r).find(fmt::format("SURVIVED {}\n", ranks - 1)), std::string::npos)
          << job.text(r);
      EXPECT_LT(Clock::now() - killed, 5s) << job.text(r);
      const double took = std::chrono::duration<double>(error.when - killed).count();
      EXPECT_LT(took, 1.0);
      slowest = std::max(slowest, took);
      if (doing.one_communicator) {
        // A rank that knew before may have ended the call in which this rank waited.
        const Said first = said(job.text(r), "FIRST");
        if (first.text.find("the test stops here") != std::string::npos) continue;
        EXPECT_EQ(first.code, "peer_lost") << job.text(r);
        EXPECT_EQ(first.rank, victim) << job.text(r);
      }
    }
  }
  fmt::print("{} kills, the slowest survivor knew after {:.3f} s\n", kills(), slowest);
  EXPECT_EQ(tutti::test::files_left(), before);
}

TEST(Kills, WhileTheRanksMeetAreNamedAndTheOthersMeetAgain) {
  std::mt19937 random(7);
  const Setting setting("TUTTI_RENDEZVOUS_TIMEOUT", "1");
  for (int round = 0; round < kills(); ++round) {
    const auto [ranks, victim] = victim_of(round);
    tutti::MeetingPlace patient;
    patient.timeout = 20s;
    const std::string again = tutti::to_string(tutti::make_unique_id(patient));
    Job job(static_cast<int>(ranks), {"mixed", "kept", std::to_string(round), "1", again});
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
    kill(job.pid(victim), SIGKILL);
    const auto deadline = Clock::now() + 30s;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == victim) continue;
      SCOPED_TRACE(fmt::format("round {}: rank {} of {}, victim {}", round, r, ranks, victim));
      const auto code = job.wait(r, deadline);
      ASSERT_TRUE(code.has_value()) << "hangs: " << job.text(r);
      ASSERT_EQ(*code, 0) << job.text(r);
      const Said error = said(job.text(r), "ERROR");
      EXPECT_EQ(error.rank, victim) << job.text(r);
      EXPECT_NE(error.text.find(fmt::format("rank {}", victim)), std::string::npos) << job.text(r);
      EXPECT_NE(job.text(r).find(fmt::format("SURVIVED {}\n", ranks - 1)), std::string::npos)
          << job.text(r);
    }
  }
}

TEST(Kills, OfTwoAtOnceAndOneAfterTheOtherAreSurvived) {
  std::mt19937 random(11);
  for (int round = 0; round < kills(); ++round) {
    // The second one dies while the others go on without the first, or at the same time.
    const std::size_t first = random() % 4, second = (first + 1 + random() % 3) % 4;
    const auto pause = std::chrono::microseconds(round % 3 == 0 ? 0 : random() % 30'000);
    Job job(4, {round % 2 == 0 ? "call" : "split", "kept", std::to_string(round), "2"});
    ASSERT_TRUE(job.all_say("READY"));
    kill(job.pid(first), SIGKILL);
    std::this_thread::sleep_for(pause);
    kill(job.pid(second), SIGKILL);
    for (std::size_t r = 0; r < 4; ++r) {
      if (r == first || r == second) continue;
      SCOPED_TRACE(fmt::format("round {}: rank {}, victims {} and {}", round, r, first, second));
      const auto code = job.wait(r, Clock::now() + 30s);
      ASSERT_TRUE(code.has_value()) << "hangs: " << job.text(r);
      EXPECT_EQ(*code, 0) << job.text(r);
      EXPECT_NE(job.text(r).find("SURVIVED 2\n"), std::string::npos) << job.text(r);
      // Whatever has failed, and on whatever communicator, it names one of the two.
      for (const char* const which : {"FIRST", "ERROR", "ALSO"}) {
        EXPECT_EQ(job.count(r, which),
                  job.count(r, fmt::format("{} peer_lost {} ", which, first)) +
                      job.count(r, fmt::format("{} peer_lost {} ", which, second)))
            << job.text(r);
      }
    }
  }
}

TEST(Kills, AreFoundByWhoAsks) {
  for (int round = 0; round < 3; ++round) {
    const auto [ranks, victim] = victim_of(round);
    Job job(static_cast<int>(ranks), {"idle", "kept", "1", "1"});
    ASSERT_TRUE(job.all_say("READY"));
    kill(job.pid(victim), SIGKILL);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == victim) continue;
      EXPECT_EQ(job.wait(r, Clock::now() + 30s), 0) << job.text(r);
      const Said first = said(job.text(r), "FIRST");
      EXPECT_EQ(first.code, "peer_lost") << job.text(r);
      EXPECT_EQ(first.rank, victim) << job.text(r);
      EXPECT_NE(first.text.find("shrink"), std::string::npos) << job.text(r);
    }
  }
}

// --- ranks that are stopped ---

TEST(Stops, AreWaitedForAndReportedAndTheJobGoesOn) {
  const Setting setting("TUTTI_REPORT_AFTER", "0.3");
  for (std::size_t stopped = 0; stopped < 3; ++stopped) {
    Job job(3, {"call", "kept", "7", "0"});
    ASSERT_TRUE(job.all_say("READY"));
    job.stop(stopped);
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == stopped) continue;
      EXPECT_TRUE(job.says(r, "has been waiting in step")) << job.text(r);
      EXPECT_TRUE(job.falls_silent(r, 700ms));
      EXPECT_EQ(job.count(r, "FIRST"), 0U) << job.text(r);
      EXPECT_EQ(job.count(r, "has been waiting in step"), 1U) << job.text(r);
      EXPECT_EQ(job.count(r, fmt::format("for rank {}", stopped)), 1U) << job.text(r);
    }
    kill(job.pid(stopped), SIGCONT);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(job.says(r, ".", job.count(r, ".") + 4)) << job.text(r);
      EXPECT_EQ(job.count(r, "FIRST"), 0U) << job.text(r);
      EXPECT_EQ(job.count(r, "WRONG"), 0U) << job.text(r);
    }
  }
}

TEST(Stops, AreNamedWhenTheTimeIsUp) {
  const Setting setting("TUTTI_TIMEOUT", "0.5");
  for (int round = 0; round < 9; ++round) {
    const auto [ranks, stopped] = victim_of(round);
    Job job(static_cast<int>(ranks), {"call", "kept", std::to_string(round), "0"});
    ASSERT_TRUE(job.all_say("READY"));
    job.stop(stopped);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == stopped) continue;
      EXPECT_TRUE(job.says(r, "ERROR")) << job.text(r);
    }
    // It finds out when it goes on, and all start anew together.
    kill(job.pid(stopped), SIGCONT);
    for (std::size_t r = 0; r < ranks; ++r) {
      SCOPED_TRACE(
          fmt::format("round {}: rank {} of {}, {} was stopped", round, r, ranks, stopped));
      EXPECT_EQ(job.wait(r, Clock::now() + 20s), 0) << job.text(r);
      const Said error = said(job.text(r), "ERROR");
      EXPECT_EQ(error.code, "timed_out") << job.text(r);
      EXPECT_EQ(error.rank, stopped) << job.text(r);
      EXPECT_NE(job.text(r).find(fmt::format("SURVIVED {}\n", ranks)), std::string::npos)
          << job.text(r);
    }
  }
}

}  // namespace
