// How a `tutti run -H` ends: by failures, signals and its time, by hosts in trouble; and that no
// process is left. Part of run_hosts_test.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/processes.h"
#include "tests/support/run_job.h"
#include "tests/tools/run_hosts_fixture.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

// --- how it ends ---

TEST_F(RunOnHosts, TheFirstFailureCounts) {
  Job exits(shell_on("a:2,b:2", "test $TUTTI_RANK = 2 && exit 42; exec sleep 100"));
  EXPECT_EQ(exits.wait(), 42);
  EXPECT_CONTAINS(exits.err(), " on b) exited with status 42; ending the other ranks\n");
  EXPECT_LT(exits.seconds(), 6);
  // A death by a signal is the cause of what the others report meanwhile.
  const std::string flag = folder.path("flag");
  Job dies(shell_on("a:2,b:2", fmt::format("test $TUTTI_RANK = 3 && echo >{0} && kill -SEGV $$; "
                                           "while test ! -e {0}; do sleep 0.01; done; exit 1",
                                           flag)));
  EXPECT_EQ(dies.wait(), 128 + SIGSEGV);
  EXPECT_CONTAINS(dies.err(), "tutti run: rank 3 (pid ");
  EXPECT_CONTAINS(dies.err(), " on b) was killed by signal 11");
}

TEST_F(RunOnHosts, KeepGoingDoesSoOnAllHosts) {
  Job job(on("a:2,b:2", {"--keep-going", "sh", "-c",
                         "test $TUTTI_RANK = 2 && kill -KILL $$; sleep 0.3; echo done"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "done\ndone\ndone\n");
  EXPECT_CONTAINS(job.err(), "3 of 4 ranks ended with status 0; rank 2 did not\n");
}

TEST_F(RunOnHosts, SignalsReachAllRanks) {
  Job job(
      shell_on("a:1,b:1,localhost:1",
               "trap 'echo usr1' USR1; trap 'echo int; exit 5' INT; echo ready; while :; do sleep "
               "0.05; done"));
  ASSERT_TRUE(is_ready(job, 3));
  job.signal(SIGUSR1);
  ASSERT_TRUE(is_ready(job, 6));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(sorted_lines(job.out()),
            (std::vector<std::string>{"int", "int", "int", "ready", "ready", "ready", "usr1",
                                      "usr1", "usr1"}));
  EXPECT_TRUE(job.processes().empty());
}

TEST_F(RunOnHosts, TheSecondInterruptKillsAndTheThirdWaitsForNobody) {
  const std::string stubborn = "trap '' INT TERM; echo ready; while :; do sleep 0.05; done";
  Job job(shell_on("a:1,b:1", stubborn));
  ASSERT_TRUE(is_ready(job, 2));
  job.signal(SIGINT);
  std::this_thread::sleep_for(300ms);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_LT(job.seconds(), 4);
  Job stuck(shell_on("a:1,b:1", stubborn));
  ASSERT_TRUE(is_ready(stuck, 2));
  kill(agent_of("b"), SIGSTOP);
  for (int i = 0; i < 3; ++i) {
    stuck.signal(SIGINT);
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_EQ(stuck.wait(), 130);
  EXPECT_LT(stuck.seconds(), 6);
}

TEST_F(RunOnHosts, AHostThatSaysNothingAfterTheKillIsLeftAlone) {
  Job job(shell_on("a:1,b:1", "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(is_ready(job, 2));
  kill(agent_of("b"), SIGSTOP);
  for (int i = 0; i < 2; ++i) {
    job.signal(SIGINT);
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_EQ(job.wait(), 130);
  EXPECT_GT(job.seconds(), 4.5);
  EXPECT_LT(job.seconds(), 10);
  EXPECT_CONTAINS(
      job.err(),
      "b has not said that its ranks have ended; its agent ends them as soon as it runs and no "
      "longer hears this host");
}

TEST_F(RunOnHosts, StopAndContinueReachAllRanks) {
  Job job(shell_on("a:1,b:1", "trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done"), "",
          Job::have_own_group);
  ASSERT_TRUE(is_ready(job, 2));
  job.signal(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return job.stopped() >= 3; }));
  job.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return job.stopped() == 0; }));
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 0);
}

TEST_F(RunOnHosts, ATimeoutEndsTheJob) {
  Job job(on("a:1,b:2", {"--timeout", "1", "sh", "-c", "test $TUTTI_RANK = 1 || exec sleep 100"}));
  EXPECT_EQ(job.wait(), 124);
  EXPECT_CONTAINS(job.err(), "ranks 0 and 2 still ran after 1 s (--timeout)");
  launcher("test $host = b && exec sleep 100");
  Job mute(on("a:1,b:2", {"--timeout", "1", "true"}));
  EXPECT_EQ(mute.wait(), 124);
  EXPECT_CONTAINS(mute.err(), "host b was not ready after 1 s (--timeout)");
}

TEST_F(RunOnHosts, KillingTheLauncherKillsEverything) {
  for (const char* const hosts : {"a:2,b:2", "a:1,b:1,c:1,d:1,e:1,f:1"}) {
    const std::size_t ranks = std::string(hosts).size() > 10 ? 6 : 4;
    Job job(on(hosts, {"--fan-out", "2", "sh", "-c",
                       "trap '' TERM INT HUP; echo ready; while :; do sleep 1; done"}));
    ASSERT_TRUE(is_ready(job, ranks));
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait(), 1000 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return job.processes().empty(); }));
  }
}

TEST_F(RunOnHosts, ProcessesInGroupsOfTheirOwnAreKilled) {
  const std::string script = "setsid -f sleep 1000; echo ready; timeout 1000 sleep 1000; true";
  Job late(on("a:1,b:2", {"--timeout", "1", "sh", "-c", script}));
  EXPECT_EQ(late.wait(), 124);
  EXPECT_TRUE(late.processes().empty());

  Job asked(shell_on("localhost:1,b:1", script));
  ASSERT_TRUE(is_ready(asked, 2));
  asked.signal(SIGTERM);
  EXPECT_EQ(asked.wait(), 128 + SIGTERM);
  EXPECT_TRUE(asked.processes().empty());

  Job killed(shell_on("a:1,b:1", script));
  ASSERT_TRUE(is_ready(killed, 2));
  EXPECT_TRUE(eventually([&] { return killed.processes().size() >= 10; }));
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_TRUE(eventually([&] { return killed.processes().empty(); }, 5s));
}

TEST_F(RunOnHosts, AKilledAgentLeavesNothingAndTheOtherHostsProcessesLive) {
  const std::string script = "setsid -f sleep 1000; echo ready; exec sleep 1000";
  Job job(on("a:1,b:1", {"--keep-going", "sh", "-c", script}));
  ASSERT_TRUE(is_ready(job, 2));
  const std::size_t all = job.processes().size();
  kill(agent_of("b"), SIGKILL);
  // The agent, its keeper, its rank, and what that has started.
  EXPECT_TRUE(eventually([&] { return job.processes().size() <= all - 4; }, 3s));
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(job.processes().size(), all - 4);
  job.signal(SIGTERM);
  job.wait();
  EXPECT_TRUE(job.processes().empty());
}

// --- hosts in trouble ---

TEST_F(RunOnHosts, AHostThatCannotBeReachedIsNamedAndNoRankStarts) {
  launcher("case $host in down*) echo 'no route to it' >&2; exit 255;; esac");
  Job job(shell_on("a:1,down1:1,down2:1", "echo started"));
  EXPECT_EQ(job.wait(), 125);
  EXPECT_EQ(job.out(), "");
  EXPECT_EQ(
      sorted_lines(job.err()),
      (std::vector<std::string>{"tutti run: host down1: it cannot be reached: no route to it",
                                "tutti run: host down2: it cannot be reached: no route to it"}));
  Job no_launcher({"-H", "a", "--launcher", "/no/launcher", "true"});
  EXPECT_EQ(no_launcher.wait(), 125);
  EXPECT_CONTAINS(no_launcher.err(),
                  "host a: cannot run '/no/launcher': No such file or directory");
}

TEST_F(RunOnHosts, AHostThatSaysNothingIsGivenUp) {
  launcher("test $host = b && exec sleep 100");
  Job job(shell_on("a:1,b:1", "echo started"), "",
          [] { setenv("TUTTI_RENDEZVOUS_TIMEOUT", "1", 1); });
  EXPECT_EQ(job.wait(), 125);
  EXPECT_EQ(job.err(), "tutti run: host b: nothing has come from it for 1 s\n");
}

TEST_F(RunOnHosts, ATerminalInBetweenIsRefused) {
  launcher("printf 'tutti-agent 0.0.1\\r\\n'; exec sleep 100");
  Job job(on("a:1", {"true"}));
  EXPECT_EQ(job.wait(), 125);
  EXPECT_CONTAINS(job.err(), "host a: a terminal stands between it and this host");
}

TEST_F(RunOnHosts, AnotherVersionIsRefused) {
  launcher("test $host = b && echo 'tutti-agent 0.0.1' && exec sleep 100");
  Job job(shell_on("a:1,b:1", "echo started"));
  EXPECT_EQ(job.wait(), 125);
  EXPECT_CONTAINS(job.err(), "tutti run: host b: " TUTTI_COMMAND
                             " there is of version 0.0.1, and this host's of version ");
  EXPECT_EQ(job.out(), "");
}

TEST_F(RunOnHosts, AMissingTuttiAndAMissingProgramAreNamed) {
  Job tutti(on("a:1", {"--tutti", "/no/tutti", "true"}));
  EXPECT_EQ(tutti.wait(), 125);
  EXPECT_CONTAINS(tutti.err(), "host a: there is no /no/tutti there");
  Job program(on("a:2,b:2", {"no-such-program"}));
  EXPECT_EQ(program.wait(), 127);
  EXPECT_CONTAINS(program.err(), "cannot run 'no-such-program': there is no such program");
  EXPECT_EQ(lines(program.err()).size(), 1U) << program.err();
  Job data(on("a:2", {"/etc/passwd"}));
  EXPECT_EQ(data.wait(), 126);
  EXPECT_CONTAINS(data.err(), "host a: cannot run '/etc/passwd': it is not executable");
}

TEST_F(RunOnHosts, AMissingFolderIsNamed) {
  const std::string work = folder.path("work");
  mkdir(work.c_str(), 0755);
  launcher("test $host = b && rmdir " + work);
  Job job(on("b:1", {"true"}), "", [&] {
    if (chdir(work.c_str()) != 0) _exit(1);
  });
  EXPECT_EQ(job.wait(), 125);
  EXPECT_EQ(
      job.err(),
      fmt::format(
          "tutti run: host b: cannot go to the working directory {}: No such file or directory\n",
          work));
}

TEST_F(RunOnHosts, WhatAShellPrintsBeforeDoesNoHarmAndJunkIsRefused) {
  launcher("echo 'Welcome to this host!'; echo a warning >&2");
  Job job(shell_on("a:1,b:1", "echo started"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "started\nstarted\n");
  EXPECT_EQ(job.err(), "");
  launcher("yes; exit 0");
  Job junk(shell_on("a:1", "true"));
  EXPECT_EQ(junk.wait(), 125);
  EXPECT_CONTAINS(junk.err(), "host a: it is no agent of Tutti");
  launcher("echo tutti-agent $(" TUTTI_COMMAND " version | cut -d' ' -f 2); yes; exit 0");
  Job late(shell_on("a:1", "true"));
  EXPECT_EQ(late.wait(), 125);
  EXPECT_CONTAINS(late.err(), "host a: what comes from it is no message of `tutti run`");
}

TEST_F(RunOnHosts, AKilledAgentLosesItsRanks) {
  const std::string wait = "echo ready; while :; do sleep 0.05; done";
  Job job(shell_on("a:2,b:2", wait));
  ASSERT_TRUE(is_ready(job, 4));
  kill(agent_of("b"), SIGKILL);
  EXPECT_EQ(job.wait(), 125);
  EXPECT_CONTAINS(job.err(),
                  "tutti run: host b is lost: its agent, or the connection to it, ended ('" +
                      folder.path("launcher") +
                      "' was killed by signal 9); with it ranks 2 and 3; ending the other ranks\n");
  EXPECT_TRUE(job.processes().empty());

  Job going(on("a:2,b:2", {"--keep-going", "sh", "-c", "trap 'exit 0' USR1; " + wait}));
  ASSERT_TRUE(is_ready(going, 4));
  kill(agent_of("b"), SIGKILL);
  ASSERT_TRUE(eventually([&] { return going.err().find("is lost") != std::string::npos; }));
  going.signal(SIGUSR1);
  EXPECT_EQ(going.wait(), 0);
  EXPECT_CONTAINS(going.err(), "2 of 4 ranks ended with status 0; ranks 2 and 3 did not\n");
}

}  // namespace
}  // namespace tutti
