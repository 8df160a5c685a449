// `tutti run` and signals: passed on, typed at a terminal, or deadly; and that no process is left.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

// --- signals ---

TEST(RunCommand, SignalsArePassedOn) {
  Job job(shell(2,
                "trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo ready; "
                "while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  job.signal(SIGUSR1);
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\nusr1\nusr1\n"; }));
  job.signal(SIGUSR2);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "ready\nready\nusr1\nusr1\nusr2\nusr2\n");
}

TEST(RunCommand, EndingSignalsGiveTheirStatus) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Job job(shell(2, fmt::format("trap 'echo got {0}; exit 9' {0}; echo ready; "
                                 "while :; do sleep 0.05; done",
                                 number)));
    ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
    job.signal(number);
    EXPECT_EQ(job.wait(), 128 + number);
    EXPECT_EQ(job.out(), fmt::format("ready\nready\ngot {0}\ngot {0}\n", number));
    EXPECT_LT(job.seconds(), 4);
  }
}

TEST(RunCommand, AnIgnoredHangUpStaysIgnored) {
  Job job(shell(1, "echo ready; sleep 0.5; echo done"), "", [] { ::signal(SIGHUP, SIG_IGN); });
  ASSERT_TRUE(job.out_has("ready"));
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "ready\ndone\n");
}

TEST(RunCommand, StopAndContinueReachEveryRank) {
  Job job(shell(2, "trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done"), "",
          Job::have_own_group);
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  job.signal(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return job.stopped() >= 3; }));
  job.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return job.stopped() == 0; }));
  // A SIGCONT that comes while the launcher is about to stop is not lost.
  for (int k = 0; k < 100; ++k) {
    job.signal(SIGTSTP);
    std::this_thread::sleep_for(std::chrono::microseconds(3 * k));
    job.signal(SIGCONT);
    ASSERT_TRUE(eventually([&] { return job.stopped() == 0; })) << "after " << 3 * k << " us";
  }
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 0);
}

TEST(RunCommand, TheSecondInterruptKills) {
  Job job(shell(2, "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  job.signal(SIGINT);
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(job.processes().empty());
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_LT(job.seconds(), 4);
}

TEST(RunCommand, OneInterruptIsEnoughInTheEnd) {
  Job job(shell(2, "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_GT(job.seconds(), 4.5);
  EXPECT_LT(job.seconds(), 8);
}

// --- nothing is left ---

TEST(RunCommand, KillingTheLauncherKillsEverything) {
  // With a grandchild that ignores what can be ignored.
  Job job(shell(3, "sh -c \"trap '' TERM INT HUP; echo ready; while :; do sleep 1; done\"; true"));
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == 3; }));
  EXPECT_GE(job.processes().size(), 7U);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return job.processes().empty(); }, 2s));
}

TEST(RunCommand, LeftoversOfAFailedJobAreKilled) {
  Job job(shell(2,
                "(trap '' TERM; while :; do sleep 1; done) & test $TUTTI_RANK = 0 && exit 4; "
                "wait"));
  EXPECT_EQ(job.wait(), 4);
  EXPECT_TRUE(job.processes().empty());
}

TEST(RunCommand, LeftoversOfASuccessfulRankMayFinishBriefly) {
  Job job(shell(2, "(sleep 0.3; echo late) & (sleep 100; echo never) & exit 0", {"--tag"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(sorted_lines(job.out()), (std::vector<std::string>{"[0] late", "[1] late"}));
  EXPECT_TRUE(job.processes().empty());
  EXPECT_LT(job.seconds(), 4);
}

/// What leaves the rank's process group: `timeout` makes a group, job control one for each command,
/// and a daemon has a session, and a parent that dies at once. Some ignore what can be ignored, and
/// the last ones do not name their rank.
const std::vector<std::string> kOutOfTheGroup{
    "timeout 1000 sleep 1000; true",
    "setsid sleep 1000; true",
    "(setsid sleep 1000 &); sleep 1000",
    "exec bash -m -c 'sleep 1000 & sleep 1000; true'",
    "exec bash -c 'trap \"\" TERM; setsid bash -c \"trap \\\"\\\" TERM; sleep 1000; true\" & wait; "
    "wait'",
    "(env -i M=$TUTTI_TEST_MARK sh -c 'TUTTI_TEST_MARK=$M setsid -f timeout 1000 sleep 1000'); "
    "sleep 1000"};

TEST(RunCommand, ProcessesInGroupsOfTheirOwnAreKilled) {
  std::vector<std::unique_ptr<Job>> late, asked;
  for (const std::string& script : kOutOfTheGroup) {
    late.push_back(std::make_unique<Job>(shell(2, "echo ready; " + script, {"--timeout", "0.5"})));
    asked.push_back(std::make_unique<Job>(shell(2, "echo ready; " + script)));
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    ASSERT_TRUE(eventually([&] { return lines(asked[i]->out()).size() == 2; }));
  }
  std::this_thread::sleep_for(100ms);
  for (const auto& job : asked) job->signal(SIGTERM);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    SCOPED_TRACE(kOutOfTheGroup[i]);
    EXPECT_EQ(late[i]->wait(), 124);
    EXPECT_TRUE(late[i]->processes().empty());
    EXPECT_EQ(asked[i]->wait(), 128 + SIGTERM);
    EXPECT_TRUE(asked[i]->processes().empty());
  }
}

TEST(RunCommand, ProcessesInGroupsOfTheirOwnAreKilledWhenARankFails) {
  Job job(shell(2, "setsid -f sleep 1000; test $TUTTI_RANK = 1 && exit 3; exec sleep 1000"));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_TRUE(job.processes().empty());
}

TEST(RunCommand, WhatARankLeavesIsKilledWhileTheOthersGoOn) {
  Job job(shell(2,
                "test $TUTTI_RANK = 1 && setsid -f sleep 1000 && exit 3; "
                "setsid -f sleep 1000; exec sleep 2.5",
                {"--keep-going"}));
  EXPECT_TRUE(eventually([&] { return job.processes().size() >= 5; }));
  // The launcher, its keeper, rank 0 and its child.
  EXPECT_TRUE(eventually([&] { return job.processes().size() == 4; }, 2s));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_TRUE(job.processes().empty());
}

TEST(RunCommand, KillingTheLauncherKillsProcessesInGroupsOfTheirOwn) {
  Job job(shell(2, "setsid -f sleep 1000; echo ready; timeout 1000 sleep 1000; true"));
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == 2; }));
  EXPECT_TRUE(eventually([&] { return job.processes().size() >= 10; }));
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return job.processes().empty(); }, 3s));
}

TEST(RunCommand, WhatARankLeavesMayFinishBrieflyInAGroupOfItsOwnToo) {
  Job job(shell(2, "(setsid -f sh -c 'sleep 0.3; echo late'); (setsid -f sleep 100); exit 0",
                {"--tag"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(sorted_lines(job.out()), (std::vector<std::string>{"[0] late", "[1] late"}));
  EXPECT_TRUE(job.processes().empty());
  EXPECT_LT(job.seconds(), 4);
}

TEST(RunCommand, AChildOfTheShellThatBecameTheLauncherLivesOn) {
  const TemporaryFolder folder;
  const std::string command =
      fmt::format("(setsid -f sleep 3; true); sleep 3 & echo $! >{0}/pid; exec " TUTTI_COMMAND
                  " run -n 1 true >{0}/out 2>&1",
                  folder.path());
  EXPECT_EQ(std::system(("sh -c '" + command + "'").c_str()), 0) << folder.read("out");
  EXPECT_EQ(kill(std::stoi(folder.read("pid")), SIGTERM), 0);
}

TEST(RunCommand, ARankThatDiesBeforeAllHaveMetIsNamed) {
  Job job(shell(3, "test $TUTTI_RANK = 2 && exit 6; exec " ENVIRONMENT_RANK " 1 1", {"--tag"}));
  EXPECT_EQ(job.wait(), 6);
  EXPECT_CONTAINS(job.err(), "tutti run: rank 2 (pid ");
  EXPECT_CONTAINS(job.err(), "[0] rendezvous: rank 2 of 3 did not appear in time");
  EXPECT_CONTAINS(job.err(), "[1] rendezvous: rank 2 of 3 did not appear in time");
}

TEST(RunCommand, StartsThirtyTwoRanks) {
  Job job(shell(32, ENVIRONMENT_RANK));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(lines(job.out()).size(), 32U);
}

// --- at a terminal ---

class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments) {
    child_ = forkpty(&master_, nullptr, nullptr, nullptr);
    if (child_ != 0) return;
    std::vector<char*> argv{const_cast<char*>("tutti"), const_cast<char*>("run")};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(TUTTI_COMMAND, argv.data());
    _exit(99);
  }
  ~Terminal() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text) const {
    EXPECT_EQ(write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  bool shows(const std::string& text) {
    return eventually([&] {
      pollfd entry{master_, POLLIN, 0};
      char buffer[4096];
      while (poll(&entry, 1, 0) > 0) {
        const ssize_t got = read(master_, buffer, sizeof buffer);
        if (got <= 0) break;
        screen_.append(buffer, static_cast<std::size_t>(got));
      }
      return screen_.find(text) != std::string::npos;
    });
  }
  int wait() {
    int status = -1;
    eventually([&] { return waitpid(child_, &status, WNOHANG) == child_; });
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int master_ = -1;
  pid_t child_ = -1;
  std::string screen_;
};

TEST(RunCommandTerminal, RankZeroReadsWhatIsTyped) {
  Terminal terminal(shell(2,
                          "echo start; read word && echo \"$TUTTI_RANK got $word\"; cat; "
                          "echo \"$TUTTI_RANK at the end\""));
  ASSERT_TRUE(terminal.shows("1 at the end"));
  terminal.type("hello\n");
  EXPECT_TRUE(terminal.shows("0 got hello"));
  terminal.type("\x04");
  EXPECT_TRUE(terminal.shows("0 at the end"));
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(RunCommandTerminal, ControlCInterruptsEveryRank) {
  Terminal terminal(shell(2,
                          "trap 'echo interrupted $TUTTI_RANK; exit 0' INT; echo ready "
                          "$TUTTI_RANK; while :; do sleep 0.05; done"));
  ASSERT_TRUE(terminal.shows("ready 0"));
  ASSERT_TRUE(terminal.shows("ready 1"));
  terminal.type("\x03");
  EXPECT_TRUE(terminal.shows("interrupted 0"));
  EXPECT_TRUE(terminal.shows("interrupted 1"));
  EXPECT_EQ(terminal.wait(), 130);
}

}  // namespace
}  // namespace tutti
