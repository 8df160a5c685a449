// `tutti run` as users meet it: what the ranks get, what its exit status says, and where their
// output goes.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

// --- what the ranks get ---

TEST(RunCommand, RanksKnowThemselves) {
  Job job(shell(3, "echo $TUTTI_RANK of $TUTTI_SIZE id ${#TUTTI_UNIQUE_ID}"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(sorted_lines(job.out()),
            (std::vector<std::string>{"0 of 3 id 256", "1 of 3 id 256", "2 of 3 id 256"}));
  EXPECT_EQ(job.err(), "");
}

// --- what torchrun sets ---

constexpr const char* kTorchruns =
    "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT "
    "$TORCHELASTIC_RUN_ID$TORCHELASTIC_USE_AGENT_STORE";

TEST(RunCommand, SetsWhatTorchrunSets) {
  // Inside torchrun, too, whose variables are about another job.
  Job job(shell(3, kTorchruns), "", [] {
    setenv("RANK", "7", 1);
    setenv("WORLD_SIZE", "9", 1);
    setenv("MASTER_PORT", "1", 1);
    setenv("TORCHELASTIC_RUN_ID", "outer", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  });
  EXPECT_EQ(job.wait(), 0) << job.err();
  const auto got = sorted_lines(job.out());
  ASSERT_EQ(got.size(), 3U) << job.out();
  const std::string port = got[0].substr(std::string("0 3 0 3 127.0.0.1 ").size());
  EXPECT_GT(std::stoi(port), 1023);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(got[static_cast<std::size_t>(rank)],
              fmt::format("{0} 3 {0} 3 127.0.0.1 {1}", rank, port));
  }
}

TEST(RunCommand, WhatIsChosenStaysAsItIs) {
  Job job(shell(2, kTorchruns, {"-x", "MASTER_ADDR=there", "-x", "MASTER_PORT=29500"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(sorted_lines(job.out()),
            (std::vector<std::string>{"0 2 0 2 there 29500", "1 2 1 2 there 29500"}));
}

/// Rank 0 listens there as PyTorch's store does, twice, and the others reach it.
TEST(RunCommand, RankZeroCanListenAtTheMasterPort) {
  const TemporaryFolder folder;
  folder.write("store.py",
               "import os, socket, sys, time\n"
               "place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
               "for turn in range(2):\n"
               "    if os.environ['RANK'] == '0':\n"
               "        listener = socket.socket(socket.AF_INET6)\n"
               "        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
               "        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)\n"
               "        listener.bind(('::', place[1]))\n"
               "        listener.listen()\n"
               "        peer = listener.accept()[0]\n"
               "        listener.close()\n"
               "        peer.sendall(b'turn %d' % turn)\n"
               "        peer.recv(1)\n"
               "        peer.close()\n"
               "    else:\n"
               "        for attempt in range(500):\n"
               "            try:\n"
               "                peer = socket.create_connection(place)\n"
               "                break\n"
               "            except ConnectionRefusedError:\n"
               "                time.sleep(0.02)\n"
               "        print(peer.recv(100).decode(), flush=True)\n"
               "        peer.close()\n");
  Job job({"-n", "2", "python3", folder.path("store.py")});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "turn 0\nturn 1\n") << job.err();
}

TEST(RunCommand, RanksMeetAsOftenAsTheyLike) {
  Job job(shell(4, ENVIRONMENT_RANK " 3 && " ENVIRONMENT_RANK " 2"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const auto got = sorted_lines(job.out());
  ASSERT_EQ(got.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(got[i], fmt::format("tutti run {} 4", i / 2));
}

TEST(RunCommand, OuterVariablesAreReplaced) {
  Job job(shell(2, ENVIRONMENT_RANK), "", [] {
    setenv("TUTTI_RANK", "7", 1);
    setenv("TUTTI_SIZE", "9", 1);
    setenv("TUTTI_UNIQUE_ID", "none", 1);
  });
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(RunCommand, ArgumentsArriveAsTheyWere) {
  const std::vector<std::string> words{"--tag", "-n", "3",  "[1,2]", "[]",  "",         "a b",
                                       "--",    "{}", "%%", "-h",    "run", "settings", "++"};
  for (const bool separated : {false, true}) {
    std::vector<std::string> arguments{"-n", "1"};
    if (separated) arguments.push_back("--");
    arguments.insert(arguments.end(), {"printf", "<%s>\\n"});
    arguments.insert(arguments.end(), words.begin(), words.end());
    Job job(arguments);
    EXPECT_EQ(job.wait(), 0) << job.err();
    const auto got = lines(job.out());
    ASSERT_EQ(got.size(), words.size());
    for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(got[i], "<" + words[i] + ">");
  }
}

TEST(RunCommand, InputGoesToRankZero) {
  Job job(shell(3, "echo $TUTTI_RANK: $(cat)"), "some input\n");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(sorted_lines(job.out()), (std::vector<std::string>{"0: some input", "1:", "2:"}));
}

TEST(RunCommand, BindGivesEveryRankItsCore) {
  const std::string show = "echo cpus: $(grep Cpus_allowed_list /proc/self/status | cut -f 2)";
  Job one(shell(1, show, {"--bind", "core"}));
  EXPECT_EQ(one.wait(), 0);
  Job free_choice(shell(1, show));
  EXPECT_EQ(free_choice.wait(), 0);
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1 && one.err().empty()) {
    Job two(shell(2, show, {"--bind", "core"}));
    EXPECT_EQ(two.wait(), 0);
    const auto got = lines(two.out());
    ASSERT_EQ(got.size(), 2U);
    // On one core with two threads there is no binding, and it says so.
    EXPECT_NE(got[0] == got[1], two.err().empty());
  }
  Job many(shell(1000, "exit 0", {"--bind", "core", "--timeout", "60"}));
  // More ranks than cores: it says so, and goes on.
  EXPECT_EQ(many.wait(), 0) << many.err();
  EXPECT_CONTAINS(many.err(), "fewer cores than ranks");
}

// --- exit status ---

TEST(RunCommand, ExitStatusIsTheFailedRanks) {
  for (const int status : {1, 2, 42, 255}) {
    Job job(shell(3, fmt::format("test $TUTTI_RANK = 1 && exit {}; exit 0", status)));
    EXPECT_EQ(job.wait(), status);
    EXPECT_CONTAINS(job.err(), "tutti run: rank 1 (pid ");
    EXPECT_CONTAINS(job.err(), fmt::format("exited with status {}", status));
    EXPECT_LT(job.seconds(), 2);
  }
}

TEST(RunCommand, AKilledRankEndsTheJob) {
  Job job(shell(4, "echo $TUTTI_RANK $$; exec sleep 100"));
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == 4; }));
  pid_t victim = 0;
  for (const auto& line : lines(job.out())) {
    if (line.starts_with("2 ")) victim = std::stoi(line.substr(2));
  }
  kill(victim, SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_CONTAINS(job.err(), fmt::format("tutti run: rank 2 (pid {}) was killed by signal 9 "
                                         "(Killed); ending the other ranks",
                                         victim));
  EXPECT_LT(job.seconds(), 4);
}

TEST(RunCommand, TheOthersMayReportTheirErrors) {
  Job job(shell(3, "test $TUTTI_RANK = 0 && kill -SEGV $$; sleep 1; echo report; exit 5"));
  EXPECT_EQ(job.wait(), 128 + SIGSEGV);
  EXPECT_EQ(job.out(), "report\nreport\n");
}

TEST(RunCommand, RanksThatDoNotListenAreKilled) {
  Job job(shell(2, "test $TUTTI_RANK = 0 && exit 3; trap '' TERM; while :; do sleep 0.1; done"));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_GT(job.seconds(), 4.5);
  EXPECT_LT(job.seconds(), 8);
}

TEST(RunCommand, StoppedRanksAreKilled) {
  Job job(shell(2, "test $TUTTI_RANK = 0 && sleep 0.2 && exit 3; kill -STOP $$"));
  EXPECT_EQ(job.wait(), 3);
}

// --- --keep-going ---

TEST(RunCommand, TheOthersKeepGoing) {
  Job job(shell(4,
                "test $TUTTI_RANK = 2 && kill -KILL $$; trap 'echo done; exit 0' USR1; "
                "echo ready; while :; do sleep 0.05; done",
                {"--keep-going"}));
  // The death is reported while they run.
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\nready\n"; }));
  ASSERT_TRUE(eventually(
      [&] { return job.err().find("was killed by signal 9 (Killed)\n") != std::string::npos; }));
  EXPECT_CONTAINS(job.err(), "tutti run: rank 2 (pid ");
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "ready\nready\nready\ndone\ndone\ndone\n");
  EXPECT_CONTAINS(job.err(), "tutti run: 3 of 4 ranks ended with status 0; rank 2 did not\n");
}

TEST(RunCommand, KeepGoingCountsTheRanksThatEndedWell) {
  const auto status = [](const std::string& script, std::string_view report) {
    Job job(shell(4, script, {"--keep-going"}));
    const int result = job.wait();
    if (report.empty()) {
      EXPECT_EQ(job.err(), "");
    }
    EXPECT_CONTAINS(job.err(), std::string(report));
    return result;
  };
  EXPECT_EQ(status("exit 0", ""), 0);
  EXPECT_EQ(status("test $TUTTI_RANK = 3 || kill -SEGV $$",
                   "1 of 4 ranks ended with status 0; "
                   "ranks 0, 1 and 2 did not\n"),
            0);
  EXPECT_EQ(status("kill -KILL $$", "0 of 4 ranks ended"), 128 + SIGKILL);
  // A rank that exits says itself whether its work is done.
  EXPECT_EQ(status("test $TUTTI_RANK = 1 && exit 6; sleep 0.3; exit 0", "3 of 4 ranks ended"), 6);
  EXPECT_EQ(status("test $TUTTI_RANK = 1 && kill -KILL $$; sleep 0.3; test $TUTTI_RANK = 2 && "
                   "exit 7; sleep 0.3; test $TUTTI_RANK != 3 || exit 8",
                   "1 of 4 ranks ended with status 0; ranks 1, 2 and 3 did not\n"),
            7);
}

TEST(RunCommand, KeepGoingEndsWhenTheUserOrTheClockSaysSo) {
  const std::string script = "test $TUTTI_RANK = 0 && kill -KILL $$; echo ready; exec sleep 100";
  for (const int number : {SIGINT, SIGTERM}) {
    Job job(shell(3, script, {"--keep-going"}));
    ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
    ASSERT_TRUE(eventually([&] { return job.err().find("rank 0") != std::string::npos; }));
    job.signal(number);
    EXPECT_EQ(job.wait(), 128 + number);
  }
  Job job(shell(3, script, {"--keep-going", "--timeout", "0.5"}));
  EXPECT_EQ(job.wait(), 124);
  EXPECT_CONTAINS(job.err(), "ranks 1 and 2 still ran after 0.5 s");
}

// --- other ends ---

TEST(RunCommand, ATimeoutEndsTheJob) {
  Job job(shell(3, "test $TUTTI_RANK = 1 || exec sleep 100", {"--timeout", "0.5"}));
  EXPECT_EQ(job.wait(), 124);
  EXPECT_CONTAINS(job.err(), "ranks 0 and 2 still ran after 0.5 s (--timeout)");
  EXPECT_LT(job.seconds(), 3);
  Job fast(shell(2, "exit 0", {"--timeout", "50"}));
  EXPECT_EQ(fast.wait(), 0);
}

TEST(RunCommand, ProgramsThatCannotRunAreNamed) {
  Job missing({"-n", "2", "no-such-program"});
  EXPECT_EQ(missing.wait(), 127);
  EXPECT_CONTAINS(missing.err(), "tutti run: cannot run 'no-such-program': there is no such");
  const std::string here = "script-" + std::to_string(getpid()) + ".py";
  std::ofstream(here) << "pass\n";
  Job script({"-n", "2", here});
  EXPECT_EQ(script.wait(), 127);
  EXPECT_CONTAINS(script.err(), "; the file of this folder is ./" + here);
  std::filesystem::remove(here);
  Job path({"-n", "2", "/no/such/program"});
  EXPECT_EQ(path.wait(), 127);
  Job data({"-n", "2", "/etc/passwd"});
  EXPECT_EQ(data.wait(), 126);
  EXPECT_CONTAINS(data.err(), "cannot run '/etc/passwd': it is not executable");
  Job folder({"-n", "2", "/tmp"});
  EXPECT_EQ(folder.wait(), 126);
}

TEST(RunCommand, WrongUseIsStatus2AndASentence) {
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"-n", "2"},
      {"true"},
      {"-n", "0", "true"},
      {"-n", "-1", "true"},
      {"-n", "two", "true"},
      {"-n", "1000000", "true"},
      {"-n", "2", "--no-such-option", "true"},
      {"-n", "2", "--timeout", "0", "true"},
      {"-n", "2", "--timeout", "soon", "true"},
      {"-n", "2", "--timeout", "nan", "true"},
      {"-n", "2", "--bind", "socket", "true"},
      {"-n", "2", "--"},
      {"-n", "2", "-x", "=1", "true"},
      {"-n", "2", "-x", "", "true"},
      {"-n", "2", "-x", "TUTTI_RANK=7", "true"},
      {"-n", "2", "-x", "TUTTI_UNIQUE_ID", "true"},
  };
  for (const auto& arguments : wrong) {
    Job job(arguments);
    EXPECT_EQ(job.wait(), 2) << fmt::format("{}", fmt::join(arguments, " "));
    EXPECT_GT(job.err().size(), 10U);
    EXPECT_EQ(job.out(), "");
  }
}

TEST(RunCommand, WordsOfOtherLaunchersAreAnswered) {
  const auto says = [](const std::vector<std::string>& arguments) {
    Job job(arguments);
    EXPECT_EQ(job.wait(), 2);
    return job.err();
  };
  EXPECT_CONTAINS(says({"-np", "4", "true"}), "it is -n here, not -np: tutti run -n 4 program");
  EXPECT_CONTAINS(says({"-n", "2", "--timeout", "1min", "true"}),
                  "--timeout: '1min' is no number of seconds from 0.001 to 1e+09");
  EXPECT_CONTAINS(says({"-n", "two", "true"}), "'two' is no number; it takes one from 1 to 100000");
  EXPECT_CONTAINS(says({"-n", "2", "-timeout", "5", "true"}),
                  "there is no option '-timeout' (did you mean '--timeout'?)");
  EXPECT_CONTAINS(says({"--rank", "2", "true"}), "did you mean '--ranks'?");
  EXPECT_CONTAINS(says({"-n", "2", "--oversubscribe", "true"}),
                  "there is no option '--oversubscribe'\n");
}

// --- tagged output ---

TEST(RunCommand, TagKeepsLinesWholeAndInOrder) {
  constexpr int kRanks = 4, kLines = 500;
  Job job(shell(kRanks,
                fmt::format("i=0; while [ $i -lt {} ]; do echo \"line $i of rank $TUTTI_RANK "
                            "$(printf '%0200d' $TUTTI_RANK)\"; "
                            "test $((i % 10)) = 0 && echo \"error $i\" >&2; i=$((i+1)); done",
                            kLines),
                {"--tag"}));
  ASSERT_EQ(job.wait(), 0);
  std::map<int, int> next, next_error;
  for (const auto& line : lines(job.out())) {
    const int rank = line.at(1) - '0';
    EXPECT_EQ(line, fmt::format("[{0}] line {1} of rank {0} {0:0200}", rank, next[rank]));
    ++next[rank];
  }
  for (const auto& line : lines(job.err())) {
    const int rank = line.at(1) - '0';
    EXPECT_EQ(line, fmt::format("[{}] error {}", rank, next_error[rank]));
    next_error[rank] += 10;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(next[rank], kLines);
    EXPECT_EQ(next_error[rank], kLines);
  }
}

TEST(RunCommand, TagLeavesLongLinesWhole) {
  constexpr std::size_t kLong = 10'000'000;
  Job job(
      shell(2, "head -c 10000000 /dev/zero | tr '\\0' $TUTTI_RANK; echo; echo short", {"--tag"}));
  EXPECT_EQ(job.wait(), 0);
  const auto got = sorted_lines(job.out());
  ASSERT_EQ(got.size(), 4U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string digit = std::to_string(rank);
    EXPECT_TRUE(got[2 * rank] == "[" + digit + "] " + std::string(kLong, digit[0])) << rank;
    EXPECT_EQ(got[2 * rank + 1], "[" + digit + "] short");
  }
  EXPECT_EQ(job.err(), "");
}

TEST(RunCommand, TagCompletesUnfinishedLinesAndCutsEndlessOnes) {
  Job job(shell(1, "printf 'a\\n\\nb'; printf 'oops' >&2", {"--tag"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "[0] a\n[0] \n[0] b\n");
  EXPECT_EQ(job.err(), "[0] oops\n");
  Job endless(shell(1, "head -c 80000000 /dev/zero | tr '\\0' x", {"--tag"}));
  EXPECT_EQ(endless.wait(), 0);
  std::size_t characters = 0;
  const auto parts = lines(endless.out());
  for (const auto& line : parts) {
    EXPECT_TRUE(line.starts_with("[0] x"));
    characters += line.size() - 4;
  }
  EXPECT_EQ(parts.size(), 3U);
  EXPECT_EQ(characters, 80'000'000U);
  EXPECT_EQ(endless.err(), "tutti run: rank 0 writes lines of more than 32 MiB: they are cut\n");
}

TEST(RunCommand, TagWithoutAReaderEndsLikeAPipeline) {
  EXPECT_EQ(status_without_reader({"-n", "2", "--tag", "yes"}), 128 + SIGPIPE);
}

TEST(RunCommand, OutputThatCannotBeWrittenFailsTheJob) {
  const auto onto_a_full_disk = [] { dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), 1); };
  // The ranks end well before that, or hear of it.
  for (const char* const script : {"printf x", "while echo x; do :; done"}) {
    Job job(shell(1, script, {"--tag"}), "", onto_a_full_disk);
    EXPECT_EQ(job.wait(), std::string(script) == "printf x" ? 1 : 128 + SIGPIPE) << script;
    EXPECT_TRUE(test::contains(job.err(),
                               "what the ranks write to standard output cannot be written: No "
                               "space left on device"))
        << job.err();
  }
}

TEST(RunCommand, ASlowReaderLosesNothingAndTheClockStillRuns) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Job job({"-n", "2", "--tag", "--timeout", "1", "yes"}, "", [&] { dup2(ends[1], 1); });
  close(ends[1]);
  // Nobody reads: the ranks are held up, the launcher is not.
  std::this_thread::sleep_for(1500ms);
  EXPECT_TRUE(eventually([&] { return job.err().find("--timeout") != std::string::npos; }));
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

}  // namespace
}  // namespace tutti
