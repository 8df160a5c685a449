// `tutti run --elastic -H` by the tests' own launcher, a script that runs the agent of "another
// host" here or in a network namespace: where ranks are started again when they die, when their
// host does, and how such a job ends. The ranks are those of examples/elastic.cpp.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"
#include "tools/namespaces.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

/// Of a rank's environment; "": it has none of that name.
std::string variable_of(pid_t pid, const std::string& name) {
  std::string text = contents_of(fmt::format("/proc/{}/environ", pid));
  std::ranges::replace(text, '\0', '\n');
  for (const std::string& line : lines(text)) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

class ElasticOnHosts : public testing::Test {
 protected:
  ElasticOnHosts() { launcher("export TUTTI_HOST_ID=$host; exec \"$@\""); }

  /// It has the host in $host, and writes its process's number to a file.
  void launcher(const std::string& line) const {
    folder.write("launcher", fmt::format("#!/bin/sh\nhost=$1; shift\necho $$ >{}/pid.$host\n{}\n",
                                         folder.path(), line));
    chmod(folder.path("launcher").c_str(), 0755);
  }
  std::vector<std::string> elastic(const std::string& ranks, const std::string& hosts,
                                   std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"--elastic", ranks, "--launcher", folder.path("launcher")});
    if (!hosts.empty()) rest.insert(rest.begin(), {"-H", hosts});
    return rest;
  }
  pid_t agent_of(const std::string& host) const { return std::stoi(folder.read("pid." + host)); }
  /// The number of the process that is rank `rank` now; -1: there is none.
  static pid_t process_of(const Job& job, int rank) {
    for (const pid_t pid : job.processes()) {
      if (test::contains(contents_of(fmt::format("/proc/{}/comm", pid)), "elastic") &&
          variable_of(pid, "TUTTI_RANK") == std::to_string(rank)) {
        return pid;
      }
    }
    return -1;
  }
  static void kill_rank(const Job& job, int rank) {
    const pid_t pid = process_of(job, rank);
    ASSERT_GT(pid, 0);  // kill(-1) would end all processes of the machine
    kill(pid, SIGKILL);
  }
  /// Whether so many ranks have gone on from some step that often.
  static bool go_on(const Job& job, int ranks, std::size_t often) {
    const std::string what = fmt::format("{} ranks go on from step", ranks);
    return eventually([&] { return test::count(job.out(), what) >= often; });
  }

  const TemporaryFolder folder;
};

TEST_F(ElasticOnHosts, RanksOfAllHostsTrain) {
  Job job(elastic("2:4", "a:2,b:2", {"--tag", ELASTIC, "60"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  EXPECT_TRUE(go_on(job, 4, 1)) << job.out();
  EXPECT_CONTAINS(job.out(), "step 60 on 4 ranks: loss ");
}

TEST_F(ElasticOnHosts, AKilledRankIsReplacedOnItsHost) {
  Job job(elastic("2:4", "a:2,b:2", {ELASTIC, "1000000"}));
  ASSERT_TRUE(job.out_has("step 20 on 4 ranks")) << job.err();
  for (const auto& [rank, host] : {std::pair(3, "b"), std::pair(0, "a")}) {
    const std::size_t before = test::count(job.out(), "4 ranks go on from step");
    const pid_t victim = process_of(job, rank);
    ASSERT_GT(victim, 0);
    kill(victim, SIGKILL);
    EXPECT_TRUE(go_on(job, 4, before + 1)) << job.out() << job.err();
    EXPECT_CONTAINS(job.err(),
                    fmt::format("tutti run: rank {} (pid {} on {}) was killed by signal 9 "
                                "(Killed); starting it again\n",
                                rank, victim, host));
    const pid_t next = process_of(job, rank);
    EXPECT_NE(next, victim);
    EXPECT_EQ(variable_of(next, "TUTTI_HOST_ID"), host);
  }
  EXPECT_EQ(test::count(job.out(), "go on from step 0\n"), 1U) << job.out();
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
}

TEST_F(ElasticOnHosts, TheRanksOfADeadHostMoveToOneWithRoom) {
  Job job(elastic("2:4", "a:2,b:2,c:3", {ELASTIC, "1000000"}));
  ASSERT_TRUE(job.out_has("step 20 on 4 ranks")) << job.err();
  kill(agent_of("b"), SIGKILL);
  EXPECT_TRUE(go_on(job, 4, 2)) << job.out() << job.err();
  EXPECT_CONTAINS(job.err(), "host b is lost: its agent, or the connection to it, ended");
  EXPECT_CONTAINS(job.err(),
                  "; with it ranks 2 and 3; starting instead rank 4 on c, rank 5 on c\n");
  EXPECT_EQ(variable_of(process_of(job, 5), "TUTTI_HOST_ID"), "c");
  EXPECT_EQ(variable_of(process_of(job, 5), "TUTTI_SIZE"), "7");
  // There, too, a rank is started again where it was.
  kill_rank(job, 5);
  EXPECT_TRUE(go_on(job, 4, 3)) << job.out() << job.err();
  EXPECT_EQ(test::count(job.out(), "go on from step 0\n"), 1U) << job.out();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
}

TEST_F(ElasticOnHosts, WithoutRoomTheOthersGoOn) {
  Job job(elastic("2:4", "a:2,b:2", {ELASTIC, "300"}));
  ASSERT_TRUE(job.out_has("step 20 on 4 ranks")) << job.err();
  kill(agent_of("b"), SIGKILL);
  EXPECT_TRUE(go_on(job, 2, 1)) << job.out() << job.err();
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_CONTAINS(job.out(), "step 300 on 2 ranks");
  EXPECT_CONTAINS(job.err(), "the job goes on with 2 ranks fewer, as no other host has room");
  EXPECT_CONTAINS(job.err(), "2 of 4 ranks ended with status 0; ranks 2 and 3 did not\n");
}

TEST_F(ElasticOnHosts, FewerThanTheLeastEndTheJob) {
  Job job(elastic("3:4", "a:2,b:2", {ELASTIC, "1000000"}));
  ASSERT_TRUE(job.out_has("step 20 on 4 ranks")) << job.err();
  kill(agent_of("b"), SIGKILL);
  EXPECT_EQ(job.wait(), 125);
  EXPECT_CONTAINS(job.err(), "fewer than 3 ranks are left (--elastic); ending them, as no other");
}

TEST_F(ElasticOnHosts, ASpareHostMayDie) {
  Job job(elastic("1:1", "a:1,b:1,c:1", {ELASTIC, "200"}));
  ASSERT_TRUE(job.out_has("step 20 on 1 ranks")) << job.err();
  kill(agent_of("b"), SIGKILL);
  ASSERT_TRUE(eventually([&] { return test::contains(job.err(), "host b is lost"); }));
  kill_rank(job, 0);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_CONTAINS(job.err(), "with it no rank\n");
  EXPECT_CONTAINS(job.out(), "step 200 on 1 ranks");
}

TEST_F(ElasticOnHosts, ABatchSystemOrAFileNamesTheHosts) {
  const auto in_slurm = [] {
    setenv("SLURM_JOB_NODELIST", "n[08-09]", 1);
    setenv("SLURM_TASKS_PER_NODE", "2,1", 1);
  };
  Job slurm(elastic("1:3", "", {ELASTIC, "40"}), "", in_slurm);
  EXPECT_EQ(slurm.wait(), 0) << slurm.err();
  EXPECT_CONTAINS(slurm.out(), "3 ranks go on from step 0");
  EXPECT_NE(folder.read("pid.n09"), "");
  folder.write("hosts", "a slots=2\nb:2\n");
  Job file(elastic("1:3", "", {"--hostfile", folder.path("hosts"), ELASTIC, "40"}));
  EXPECT_EQ(file.wait(), 0) << file.err();
  EXPECT_CONTAINS(file.out(), "3 ranks go on from step 0");
}

TEST_F(ElasticOnHosts, TheTimeLimitAndASecondInterruptEndTheJob) {
  Job late(elastic("2:2", "a:1,b:1", {"--timeout", "1", ELASTIC, "1000000"}));
  EXPECT_EQ(late.wait(), 124);
  EXPECT_CONTAINS(late.err(), "ranks 0 and 1 still ran after 1 s (--timeout)");
  // Also where no rank runs at that moment: each is to be started again a second later.
  Job pause(elastic("1:1", "a:1", {"--timeout", "0.5", "sh", "-c", "exit 3"}));
  EXPECT_EQ(pause.wait(), 124);
  Job stubborn(elastic("2:2", "a:1,b:1", {"sh", "-c", "trap '' INT TERM; echo ready; sleep 100"}));
  ASSERT_TRUE(eventually([&] { return test::count(stubborn.out(), "ready") == 2; }));
  stubborn.signal(SIGINT);
  std::this_thread::sleep_for(300ms);  // two that come at once are one
  stubborn.signal(SIGINT);
  EXPECT_EQ(stubborn.wait(), 130);
  EXPECT_LT(stubborn.seconds(), 5);
}

// In network namespaces the ranks have nothing but TCP.
TEST_F(ElasticOnHosts, AcrossNamespacesRanksAndAHostDieAndTheOthersGoOn) {
  const Namespaces spaces(3);
  if (!spaces.missing().empty()) GTEST_SKIP() << spaces.missing();
  std::string cases;
  std::vector<std::string> hosts;
  for (int h = 0; h < 3; ++h) {
    cases += fmt::format("{}) space={};; ", spaces.address(h), spaces.space(h));
    hosts.push_back(spaces.address(h) + ":2");
  }
  launcher("case $host in " + cases + "esac; exec ip netns exec $space \"$@\"");
  Job job(elastic("2:4", fmt::format("{}", fmt::join(hosts, ",")), {ELASTIC, "1000000"}), "", [&] {
    const int fd = open(("/run/netns/" + spaces.space(0)).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) _exit(98);
  });
  ASSERT_TRUE(job.out_has("step 20 on 4 ranks")) << job.err();
  kill_rank(job, 3);
  EXPECT_TRUE(go_on(job, 4, 2)) << job.out() << job.err();
  kill(agent_of(spaces.address(1)), SIGKILL);
  EXPECT_TRUE(go_on(job, 4, 3)) << job.out() << job.err();
  EXPECT_CONTAINS(
      job.err(), fmt::format("starting instead rank 4 on {0}, rank 5 on {0}\n", spaces.address(2)));
  EXPECT_EQ(test::count(job.out(), "go on from step 0\n"), 1U) << job.out();
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
}

}  // namespace
}  // namespace tutti
