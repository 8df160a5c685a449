// Two jobs that were started apart, between which weights go; ranks of either are killed at any
// time. All receivers have the old version or all have the new one, every element of it; whoever
// has died is named within a second; and those that come back go on.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/leftovers.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

constexpr int kSenders = 2, kReceivers = 3;

/// "kind" of two jobs: on one host, or each job on a host of its own.
std::vector<std::string> job_of(int ranks, const std::string& host, const std::string& arguments) {
  const std::string id = host.empty() ? "" : "export TUTTI_HOST_ID=" + host + "; ";
  return {"-n",           std::to_string(ranks),
          "--keep-going", "--timeout",
          "60",           "sh",
          "-c",           id + "echo PID $TUTTI_RANK $$; exec " WEIGHTS_RANK " " + arguments};
}

int pid_of(const Job& job, int rank) {
  const std::string out = job.out(), mark = "PID " + std::to_string(rank) + " ";
  return std::stoi(out.substr(out.find(mark) + mark.size()));
}

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// The lines that have `word` behind their time: the time, and the rest.
struct Line {
  std::int64_t time;
  std::string text;
};
std::vector<Line> lines_with(const Job& job, const std::string& word) {
  std::vector<Line> found;
  for (const std::string& line : lines(job.out())) {
    const std::size_t blank = line.find(' ');
    if (line.compare(blank + 1, word.size(), word) != 0) continue;
    found.push_back({std::stoll(line), line.substr(blank + 1)});
  }
  return found;
}

/// No rank has ever had a part of a version, and no two ranks of a job had different ones.
void expect_whole_versions(const Job& receivers) {
  const std::string out = receivers.out();
  EXPECT_EQ(out.find("MIXTURE"), std::string::npos) << out;
  for (const char* const word : {"HAS ", "KEEPS ", "SETTLED "}) {
    for (const Line& line : lines_with(receivers, word)) {
      EXPECT_CONTAINS(line.text, " wrong 0");
    }
  }
}

/// `count` ranks of the job have said after `killed` that they lost rank `victim`: of `other`,
/// which is the other job; of its own where that is empty.
void expect_named(const Job& job, int count, int victim, const std::string& other,
                  std::int64_t killed) {
  std::string mark = fmt::format("LOST peer_lost {}: rank {}", victim, victim);
  if (!other.empty()) mark += fmt::format(" of the {} job", other);
  EXPECT_TRUE(eventually([&] { return static_cast<int>(lines_with(job, mark).size()) >= count; }))
      << mark << "\n"
      << job.out() << job.err();
  for (const Line& line : lines_with(job, mark)) {
    EXPECT_LT(static_cast<double>(line.time - killed) / 1e9, 1.0) << line.text;
  }
}

/// Ends a job that is still running.
void end(Job& job) {
  job.signal(SIGTERM);
  job.wait();
}

class Kills {
 public:
  explicit Kills(std::uint64_t seed) : random_(seed) {}

  /// Kills one rank, as the round's number and chance say.
  void round(int number) {
    TemporaryFolder folder;
    const std::string place = folder.path() + "/place";
    const bool apart = number % 2 == 0;
    const bool kills_sender = number / 2 % 2 == 0;
    Job senders(job_of(kSenders, apart ? "a" : "", "send " + place + " 1"));
    Job receivers(job_of(kReceivers, apart ? "b" : "", "receive " + place + " 1000000"));
    const int victim = static_cast<int>(random_() % (kills_sender ? kSenders : kReceivers));
    const bool early = random_() % 5 == 0;  // while the jobs meet
    ASSERT_TRUE(early || receivers.out_has(" HAS ")) << receivers.out() << receivers.err();
    for (const auto& [job, ranks] : {std::pair(&senders, kSenders), {&receivers, kReceivers}}) {
      for (int r = 0; r < ranks; ++r) ASSERT_TRUE(job->out_has(fmt::format(" READY {}\n", r)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (early ? 300'000 : 150'000)));
    const std::int64_t killed = now();
    kill(pid_of(kills_sender ? senders : receivers, victim), SIGKILL);
    if (kills_sender) {
      expect_after_sender(senders, receivers, victim, killed, place, apart, early);
    } else {
      expect_after_receiver(senders, receivers, victim, killed, early);
    }
    expect_whole_versions(receivers);
    if (!kills_sender) end(senders);
    end(receivers);
  }

 private:
  /// The receivers keep what they have, and take versions of the next job of senders.
  static void expect_after_sender(Job& senders, Job& receivers, int victim, std::int64_t killed,
                                  const std::string& place, bool apart, bool early) {
    expect_named(senders, kSenders - 1, victim, "", killed);
    if (!early) {
      expect_named(receivers, kReceivers, victim, "sending", killed);
      EXPECT_TRUE(eventually([&] {
        return lines_with(receivers, "KEEPS ").size() == static_cast<std::size_t>(kReceivers);
      })) << receivers.out();
    }
    senders.wait();
    Job next(job_of(kSenders, apart ? "a" : "", "send " + place + " 500000"));
    EXPECT_TRUE(receivers.out_has(" HAS 500")) << receivers.out() << receivers.err() << next.err();
    end(next);
  }

  /// The ranks that are left agree on a version; the senders go on.
  static void expect_after_receiver(Job& senders, Job& receivers, int victim, std::int64_t killed,
                                    bool early) {
    expect_named(receivers, kReceivers - 1, victim, "", killed);
    if (!early) expect_named(senders, kSenders, victim, "receiving", killed);
    EXPECT_TRUE(eventually([&] {
      return lines_with(receivers, "SETTLED ").size() == static_cast<std::size_t>(kReceivers - 1);
    })) << receivers.out()
        << receivers.err();
  }

  std::mt19937_64 random_;
};

TEST(WeightsKills, LeaveTheOldVersionOrTheNewOne) {
  const char* const rounds = std::getenv("TUTTI_TEST_KILLS");
  const std::size_t before = test::files_left();
  Kills kills(41);
  for (int round = 0; round < (rounds == nullptr ? 4 : std::atoi(rounds)); ++round) {
    SCOPED_TRACE(round);
    kills.round(round);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_EQ(test::files_left(), before);
}

TEST(WeightsJobs, MayJoinLeaveAndComeBack) {
  TemporaryFolder folder;
  const std::string place = folder.path() + "/place";
  Job senders(job_of(kSenders, "a", "send " + place + " 1"));
  int last = 20;
  for (const int ranks : {3, 1, 2}) {
    Job receivers(job_of(ranks, "b", fmt::format("receive {} {}", place, last)));
    EXPECT_EQ(receivers.wait(), 0)
        << receivers.out() << receivers.err() << senders.out() << senders.err();
    EXPECT_EQ(lines_with(receivers, "LEAVES ").size(), static_cast<std::size_t>(ranks));
    expect_whole_versions(receivers);
    const auto left = lines_with(receivers, "LEAVES ");
    if (!left.empty()) last = std::stoi(left.front().text.substr(7)) + 20;
    EXPECT_TRUE(senders.out_has(fmt::format(" to {}\n", ranks))) << senders.out();
  }
  EXPECT_EQ(lines_with(senders, "LOST").size(), 0U) << senders.out();
  end(senders);
}

}  // namespace
}  // namespace tutti
