// Ranks that die: every survivor must notice within a second, name the right rank, and leave
// nothing behind. Also ranks that are stopped, which must harm nobody.
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
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/unique_id.h"
#include "tests/leftovers.h"

namespace {

using namespace std::chrono_literals;
using tutti::test::leftovers;
using Clock = std::chrono::steady_clock;

/// The ranks of one job, started directly so that nobody cleans up after them.
class Job {
 public:
  Job(int ranks, unsigned seed, const char* mode = nullptr) {
    const std::string id = tutti::to_string(tutti::make_unique_id());
    const std::string seed_text = std::to_string(seed);
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
        dup2(ends[1], STDOUT_FILENO);
        execl(FAULT_RANK, FAULT_RANK, seed_text.c_str(), mode, nullptr);
        _exit(127);
      }
      close(ends[1]);
      pids_.push_back(pid);
      outputs_.push_back(ends[0]);
      texts_.emplace_back();
    }
  }
  ~Job() {
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      if (pids_[r] > 0) {
        kill(pids_[r], SIGKILL);
        waitpid(pids_[r], nullptr, 0);
      }
      close(outputs_[r]);
    }
  }
  pid_t pid(std::size_t rank) const { return pids_[rank]; }
  /// Waits until every rank has said so much.
  bool wait_ready() {
    const auto deadline = Clock::now() + 20s;
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      while (texts_[r].find("READY") == std::string::npos) {
        if (!read_some(r, deadline)) return false;
      }
    }
    return true;
  }
  /// The exit code of `rank` (-signal when killed), or nothing by then. Collects its output.
  std::optional<int> wait(std::size_t rank, Clock::time_point deadline) {
    while (read_some(rank, deadline)) {
    }
    int status = 0;
    while (waitpid(pids_[rank], &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(1ms);
    }
    pids_[rank] = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  const std::string& text(std::size_t rank) const { return texts_[rank]; }

 private:
  bool read_some(std::size_t rank, Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd p{outputs_[rank], POLLIN, 0};
    if (left <= 0 || poll(&p, 1, static_cast<int>(left)) <= 0) return false;
    std::array<char, 4096> buffer{};
    const ssize_t n = read(outputs_[rank], buffer.data(), buffer.size());
    if (n <= 0) return false;
    texts_[rank].append(buffer.data(), static_cast<std::size_t>(n));
    return true;
  }
  std::vector<pid_t> pids_;
  std::vector<int> outputs_;
  std::vector<std::string> texts_;
};

int rounds() {
  const char* text = std::getenv("TUTTI_TEST_KILLS");
  return text != nullptr ? std::atoi(text) : 25;
}

TEST(Faults, AKilledRankIsNoticedAndNamedByAllOthers) {
  std::mt19937 random(20240);
  const std::size_t before = leftovers();
  std::vector<double> seconds;  // until a survivor had noticed and ended
  for (int round = 0; round < rounds(); ++round) {
    const std::size_t ranks = 2 + random() % 3;
    Job job(static_cast<int>(ranks), static_cast<unsigned>(round));
    ASSERT_TRUE(job.wait_ready()) << "round " << round;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    const std::size_t victim = random() % ranks;
    const auto killed = Clock::now();
    kill(job.pid(victim), SIGKILL);
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto code = job.wait(r, killed + 10s);
      ASSERT_TRUE(code.has_value()) << "rank " << r << " hangs in round " << round;
      if (r == victim) {
        EXPECT_EQ(*code, -SIGKILL);
        continue;
      }
      seconds.push_back(std::chrono::duration<double>(Clock::now() - killed).count());
      EXPECT_EQ(*code, 3) << job.text(r);
      EXPECT_NE(job.text(r).find(fmt::format("ERROR peer_lost {} rank {} (pid", victim, victim)),
                std::string::npos)
          << "round " << round << ": " << job.text(r);
      EXPECT_NE(job.text(r).find("step"), std::string::npos) << job.text(r);
    }
  }
  // A busy machine may give some process no core for long; not half of them.
  std::sort(seconds.begin(), seconds.end());
  EXPECT_LT(seconds[seconds.size() / 2], 1.0);
  fmt::print("{} kills, survivors ended after {:.3f} s (median), {:.3f} s (the slowest)\n",
             rounds(), seconds[seconds.size() / 2], seconds.back());
  EXPECT_EQ(leftovers(), before);
}

TEST(Faults, AKilledRankIsFoundByWhoAsks) {
  Job job(3, 1, "idle");
  ASSERT_TRUE(job.wait_ready());
  const auto killed = Clock::now();
  kill(job.pid(1), SIGKILL);
  for (const std::size_t r : {1, 0, 2}) {
    const auto code = job.wait(r, killed + 10s);
    ASSERT_TRUE(code.has_value()) << "rank " << r << " hangs";
    EXPECT_EQ(*code, r == 1 ? -SIGKILL : 3);
    if (r == 1) continue;
    EXPECT_NE(job.text(r).find("ERROR peer_lost 1 rank 1 (pid"), std::string::npos) << job.text(r);
    EXPECT_NE(job.text(r).find("shrink"), std::string::npos) << job.text(r);
  }
}

TEST(Faults, ARankKilledWhileTheOthersConnectIsNamedToo) {
  std::mt19937 random(7);
  setenv("TUTTI_RENDEZVOUS_TIMEOUT", "1", 1);
  for (int round = 0; round < rounds() / 4; ++round) {
    const std::size_t ranks = 2 + random() % 3;
    Job job(static_cast<int>(ranks), static_cast<unsigned>(round));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
    const std::size_t victim = random() % ranks;
    const auto killed = Clock::now();
    kill(job.pid(victim), SIGKILL);
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto code = job.wait(r, killed + 10s);
      ASSERT_TRUE(code.has_value()) << "rank " << r << " hangs in round " << round;
      if (r == victim) continue;
      EXPECT_EQ(*code, 3) << job.text(r);
      EXPECT_NE(job.text(r).find(fmt::format("rank {}", victim)), std::string::npos)
          << "round " << round << ": " << job.text(r);
    }
  }
  unsetenv("TUTTI_RENDEZVOUS_TIMEOUT");
}

TEST(Faults, AStoppedRankHarmsNobody) {
  Job job(3, 7);
  ASSERT_TRUE(job.wait_ready());
  kill(job.pid(1), SIGSTOP);
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(kill(job.pid(0), 0), 0);
  EXPECT_FALSE(job.wait(0, Clock::now() + 1ms).has_value());
  kill(job.pid(1), SIGCONT);
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(job.wait(0, Clock::now() + 1ms).has_value()) << job.text(0);
  EXPECT_FALSE(job.wait(2, Clock::now() + 1ms).has_value()) << job.text(2);
}

}  // namespace
