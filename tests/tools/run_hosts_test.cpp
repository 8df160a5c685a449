// `tutti run -H`: which host gets which ranks, what travels with them, what comes back of their
// output, and hosts that start further hosts.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/run_hosts_fixture.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

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

TEST_F(RunOnHosts, SetsWhatTorchrunSets) {
  const std::string show = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR";
  Job there(shell_on("a:2,localhost:1", show + "; test $MASTER_PORT -gt 1023"));
  EXPECT_EQ(there.wait(), 0) << there.err();
  EXPECT_EQ(sorted_lines(there.out()),
            (std::vector<std::string>{"0 3 0 2 a", "1 3 1 2 a", "2 3 0 1 a"}));
  Job ports(shell_on("localhost:2,b:2", "echo $MASTER_ADDR $MASTER_PORT"));
  EXPECT_EQ(ports.wait(), 0) << ports.err();
  const auto got = lines(ports.out());
  ASSERT_EQ(got.size(), 4U);
  for (const std::string& line : got) EXPECT_EQ(line, got[0]);
  EXPECT_FALSE(got[0].starts_with(' ')) << got[0];
  EXPECT_FALSE(got[0].ends_with(' ')) << got[0];
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

TEST_F(RunOnHosts, LongLinesStayWholeAndEndlessOnesAreCut) {
  Job job(
      on("a:2,b:2", {"--tag", "sh", "-c",
                     "head -c $(($TUTTI_RANK == 3 ? 40000000 : 10000000)) /dev/zero | tr '\\0' x; "
                     "printf oops >&2"}));
  EXPECT_EQ(job.wait(), 0);
  std::map<char, std::size_t> characters, count;
  for (const auto& line : lines(job.out())) {
    characters[line.at(1)] += line.size() - 4;
    ++count[line.at(1)];
  }
  EXPECT_EQ(characters,
            (std::map<char, std::size_t>{
                {'0', 10'000'000}, {'1', 10'000'000}, {'2', 10'000'000}, {'3', 40'000'000}}));
  EXPECT_EQ(count, (std::map<char, std::size_t>{{'0', 1}, {'1', 1}, {'2', 1}, {'3', 2}}));
  EXPECT_EQ(sorted_lines(job.err()),
            (std::vector<std::string>{"[0] oops", "[1] oops", "[2] oops", "[3] oops",
                                      "tutti run: b: rank 3 writes lines of more than 32 MiB: "
                                      "they are cut"}));
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
      {"--hostfile", "/tmp", "true"},
      {"--hostfile", "/dev/zero", "true"},
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
