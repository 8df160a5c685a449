// `tutti run -H` by the tests' own launcher, a script that runs an agent of "another host" on this
// one: which host gets which ranks, what travels with them, what a host in trouble does to the job,
// and that no process is left.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

class RunOnHosts : public testing::Test {
 protected:
  RunOnHosts() { launcher(""); }

  /// The launcher: it has the host in $host, and writes its process's number to a file; then come
  /// these lines, and then it becomes the agent.
  void launcher(const std::string& lines) const {
    folder.write("launcher", fmt::format("#!/bin/sh\nhost=$1; shift\necho $$ >{}/pid.$host\n{}\n"
                                         "exec \"$@\"\n",
                                         folder.path(), lines));
    chmod(folder.path("launcher").c_str(), 0755);
  }
  std::vector<std::string> on(const std::string& hosts, std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"-H", hosts, "--launcher", folder.path("launcher")});
    return rest;
  }
  std::vector<std::string> shell_on(const std::string& hosts, const std::string& script) const {
    return on(hosts, std::vector<std::string>{"sh", "-c", script});
  }
  pid_t agent_of(const std::string& host) const { return std::stoi(folder.read("pid." + host)); }
  bool is_ready(const Job& job, std::size_t ranks) const {
    return eventually([&] { return lines(job.out()).size() == ranks; });
  }

  const TemporaryFolder folder;
};

// --- what the ranks get ---

TEST_F(RunOnHosts, RanksAreNumberedHostByHost) {
  const std::string show =
      "echo $TUTTI_RANK of $TUTTI_SIZE, $TUTTI_LOCAL_RANK of $TUTTI_LOCAL_SIZE";
  const std::vector<std::string> expected{"0 of 5, 0 of 2", "1 of 5, 1 of 2", "2 of 5, 0 of 1",
                                          "3 of 5, 0 of 2", "4 of 5, 1 of 2"};
  // The one in the middle, the last one or none is this host.
  for (const char* const hosts : {"a:2,localhost:1,c:2", "a:2,b:1,localhost:2", "a:2,b:1,c:2"}) {
    Job job(shell_on(hosts, show));
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(sorted_lines(job.out()), expected) << hosts;
    EXPECT_EQ(job.err(), "");
  }
}

TEST_F(RunOnHosts, RanksMeetAsOftenAsTheyLike) {
  Job job(on("a:2,b:2,localhost:1", {ENVIRONMENT_RANK, "5"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(lines(job.out()).size(), 5U);
}

TEST_F(RunOnHosts, AFileOrABatchSystemNamesTheHosts) {
  folder.write("hosts", "a slots=2\nb:1 # one\n");
  Job file({"--hostfile", folder.path("hosts"), "--launcher", folder.path("launcher"), "sh", "-c",
            "echo $TUTTI_RANK $TUTTI_LOCAL_SIZE"});
  EXPECT_EQ(file.wait(), 0) << file.err();
  EXPECT_EQ(sorted_lines(file.out()), (std::vector<std::string>{"0 2", "1 2", "2 1"}));
  Job slurm(
      {"--launcher", folder.path("launcher"), "sh", "-c", "echo $TUTTI_RANK $TUTTI_LOCAL_SIZE"}, "",
      [] {
        setenv("SLURM_JOB_NODELIST", "n[08-09]", 1);
        setenv("SLURM_TASKS_PER_NODE", "1,2", 1);
      });
  EXPECT_EQ(slurm.wait(), 0) << slurm.err();
  EXPECT_EQ(sorted_lines(slurm.out()), (std::vector<std::string>{"0 1", "1 2", "2 2"}));
  EXPECT_NE(folder.read("pid.n08"), "");
  // -n asks for this host, also there.
  Job here({"-n", "2", "sh", "-c", "echo $TUTTI_SIZE"}, "",
           [] { setenv("SLURM_JOB_NODELIST", "n[08-09]", 1); });
  EXPECT_EQ(here.wait(), 0);
  EXPECT_EQ(here.out(), "2\n2\n");
}

TEST_F(RunOnHosts, TheFolderAndVariablesGoAlong) {
  launcher("cd /; exec env -i PATH=\"$PATH\" HERE=$host \"$@\"");
  const TemporaryFolder work;
  Job job(on("a:1,b:1",
             {"-x", "WORD", "-x", "LIST=[1,2] 'x'", "-x", "PATH=/bin:/usr/bin", "sh", "-c",
              "echo \"$TUTTI_RANK $HERE $WORD $LIST $TUTTI_SLOTS $PATH <$OTHER$TUTTI_HOST_ID> "
              "$(pwd)\""}),
          "", [&] {
            setenv("WORD", "some words", 1);
            setenv("OTHER", "not this one", 1);
            setenv("TUTTI_SLOTS", "4", 1);
            setenv("TUTTI_HOST_ID", "mine", 1);
            if (chdir(work.path().c_str()) != 0) _exit(1);
          });
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(
      sorted_lines(job.out()),
      (std::vector<std::string>{"0 a some words [1,2] 'x' 4 /bin:/usr/bin <> " + work.path(),
                                "1 b some words [1,2] 'x' 4 /bin:/usr/bin <> " + work.path()}));
  Job missing(on("a", {"-x", "NO_SUCH_VARIABLE", "true"}));
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_CONTAINS(missing.err(), "-x NO_SUCH_VARIABLE: it is not set here");
}

TEST_F(RunOnHosts, ArgumentsArriveAsTheyWere) {
  const std::vector<std::string> words{"--tag", "-H", "[1,2]", "",   "a  b",    "'",
                                       "$HOME", "\\", "*",     "\n", "\xff\xfe"};
  std::vector<std::string> rest{"printf", "<%s>"};
  rest.insert(rest.end(), words.begin(), words.end());
  Job job(on("a:1", rest));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), fmt::format("<{}>\n", fmt::join(words, "><")));
}

TEST_F(RunOnHosts, InputGoesToRankZeroWhereverItIs) {
  std::string much;
  for (int i = 0; i < 100'000; ++i) much += fmt::format("line {}\n", i);
  for (const char* const hosts : {"a:2,b:1", "a:1,localhost:2", "localhost:1,b:2"}) {
    Job job(shell_on(hosts, "echo $TUTTI_RANK: $(wc -c)"), much);
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(sorted_lines(job.out()),
              (std::vector<std::string>{fmt::format("0: {}", much.size()), "1: 0", "2: 0"}));
    // Nobody has to read it.
    Job deaf(shell_on(hosts, "exec <&-; exit 0"), much);
    EXPECT_EQ(deaf.wait(), 0) << deaf.err();
  }
}

TEST_F(RunOnHosts, BindCountsTheCoresOfEachHost) {
  const std::string show = "grep Cpus_allowed_list /proc/self/status | cut -f 2";
  Job one(on("a:1,b:1", {"--bind", "core", "sh", "-c", show}));
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(one.err(), "");
  const auto got = lines(one.out());
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0], got[1]);
  Job many(on("a:1,b:1000", {"--bind", "core", "--timeout", "100", "true"}));
  EXPECT_EQ(many.wait(), 0) << many.err();
  EXPECT_EQ(many.err(), "tutti run: b: fewer cores than ranks: --bind core has no effect\n");
}

// --- output ---

TEST_F(RunOnHosts, LinesStayWholeAndInOrder) {
  constexpr int kRanks = 6, kLines = 300;
  for (const bool tag : {true, false}) {
    std::vector<std::string> rest{
        "sh", "-c",
        fmt::format("i=0; while [ $i -lt {} ]; do echo \"$TUTTI_RANK $i $(printf '%0200d' "
                    "$TUTTI_RANK)\"; i=$((i+1)); done; printf unfinished",
                    kLines)};
    if (tag) rest.insert(rest.begin(), "--tag");
    Job job(on("a:2,b:2,localhost:2", rest));
    ASSERT_EQ(job.wait(), 0) << job.err();
    std::map<int, int> next;
    int unfinished = 0;
    for (const auto& line : lines(job.out())) {
      const std::string text = tag ? line.substr(4) : line;
      if (text == "unfinished") {
        ++unfinished;
        continue;
      }
      const int rank = text.at(0) - '0';
      const std::string expected = fmt::format("{0} {1} {0:0200}", rank, next[rank]);
      EXPECT_EQ(line, tag ? fmt::format("[{}] {}", rank, expected) : expected);
      ++next[rank];
    }
    EXPECT_EQ(unfinished, kRanks);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(next[rank], kLines);
  }
}

TEST_F(RunOnHosts, EndlessLinesAreCutAndNothingIsLost) {
  Job job(on("a:2,b:2",
             {"--tag", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; printf oops >&2"}));
  EXPECT_EQ(job.wait(), 0);
  std::map<char, std::size_t> characters;
  for (const auto& line : lines(job.out())) {
    EXPECT_LT(line.size(), 100'000U);
    characters[line.at(1)] += line.size() - 4;
  }
  EXPECT_EQ(characters,
            (std::map<char, std::size_t>{
                {'0', 3'000'000}, {'1', 3'000'000}, {'2', 3'000'000}, {'3', 3'000'000}}));
  EXPECT_EQ(sorted_lines(job.err()),
            (std::vector<std::string>{"[0] oops", "[1] oops", "[2] oops", "[3] oops"}));
}

TEST_F(RunOnHosts, OutputWithoutAReaderEndsLikeAPipeline) {
  EXPECT_EQ(status_without_reader(on("a:1,b:1", {"yes"})), 128 + SIGPIPE);
}

TEST_F(RunOnHosts, ASlowReaderLosesNothingAndTheClockStillRuns) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Job job(on("a:1,b:1", {"--tag", "--timeout", "1", "yes"}), "", [&] { dup2(ends[1], 1); });
  close(ends[1]);
  std::this_thread::sleep_for(1500ms);
  EXPECT_TRUE(eventually([&] {
    return job.err().find("ranks 0 and 1 still ran after 1 s (--timeout)") != std::string::npos;
  }));
  std::string text;
  char buffer[65536];
  ssize_t got = 0;
  while ((got = read(ends[0], buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(job.wait(), 124);
  for (const auto& line : lines(text)) ASSERT_TRUE(line == "[0] y" || line == "[1] y") << line;
}

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

TEST_F(RunOnHosts, StopAndContinueReachAllRanks) {
  Job job(shell_on("a:1,b:1", "trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done"));
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

// --- many hosts ---

TEST_F(RunOnHosts, HostsStartFurtherHosts) {
  std::string hosts = "h0:1";
  for (int h = 1; h < 15; ++h) hosts += fmt::format(",h{}:{}", h, 1 + h % 2);
  Job job(on(hosts, {"--fan-out", "2", "--tag", ENVIRONMENT_RANK, "2"}), "some input");
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(lines(job.out()).size(), 22U);
  Job tree(on(hosts, {"--fan-out", "2", "sh", "-c", "echo ready; exec sleep 100"}));
  ASSERT_TRUE(is_ready(tree, 22));
  const auto parent_of = [](pid_t pid) {
    const std::string stat = contents_of(fmt::format("/proc/{}/stat", pid));
    return std::stoi(stat.substr(stat.rfind(')') + 4));
  };
  // The launcher has started two; those have started two each, of the hosts that follow them.
  EXPECT_EQ(parent_of(agent_of("h0")), tree.pid());
  EXPECT_EQ(parent_of(agent_of("h7")), tree.pid());
  EXPECT_EQ(parent_of(agent_of("h8")), agent_of("h7"));
  EXPECT_EQ(parent_of(agent_of("h1")), agent_of("h0"));
  // With a host, those behind it are lost.
  kill(agent_of("h7"), SIGKILL);
  EXPECT_EQ(tree.wait(), 125);
  EXPECT_CONTAINS(tree.err(), "host h7 is lost (so are the 7 hosts behind it): ");
  EXPECT_TRUE(tree.processes().empty());
}

TEST_F(RunOnHosts, SixtyFourRanksOfFourHostsMeet) {
  Job job(on("a:16,b:16,c:16,d:16", {ENVIRONMENT_RANK}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(lines(job.out()).size(), 64U);
}

// --- wrong use ---

TEST_F(RunOnHosts, WrongUseIsStatus2AndASentence) {
  const std::vector<std::vector<std::string>> wrong{
      {"-H", "", "true"},
      {"-H", "a:0", "true"},
      {"-H", "a:2", "-n", "3", "true"},
      {"-H", "-oProxyCommand=x", "true"},
      {"-H", "a", "--hostfile", "b", "true"},
      {"--hostfile", "/no/file", "true"},
      {"-H", "a", "--launcher", " ", "true"},
      {"-H", "a", "--fan-out", "0", "true"},
      {"true"},
  };
  for (const auto& arguments : wrong) {
    Job job(arguments);
    EXPECT_EQ(job.wait(), 2) << fmt::format("{}", fmt::join(arguments, " "));
    EXPECT_GT(job.err().size(), 10U);
    EXPECT_EQ(job.out(), "");
  }
}

}  // namespace
}  // namespace tutti
