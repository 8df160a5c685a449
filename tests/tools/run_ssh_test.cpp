// `tutti run -H` over real ssh, to network namespaces that are hosts.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/ssh_hosts.h"

namespace tutti {
namespace {

constexpr int kHosts = 4;

class RunOverSsh : public testing::Test {
 protected:
  static void SetUpTestSuite() { hosts_ = std::make_unique<SshHosts>(kHosts); }
  static void TearDownTestSuite() { hosts_.reset(); }
  void SetUp() override {
    if (!hosts_->missing().empty()) GTEST_SKIP() << hosts_->missing();
  }

  static std::string all(int ranks) {
    std::vector<std::string> words;
    for (int h = 0; h < kHosts; ++h)
      words.push_back(fmt::format("{}:{}", hosts_->address(h), ranks));
    return fmt::format("{}", fmt::join(words, ","));
  }
  static std::vector<std::string> on(const std::string& hosts, std::vector<std::string> rest) {
    rest.insert(rest.begin(), {"-H", hosts});
    return rest;
  }
  static std::function<void()> from_outside() {
    return [] { hosts_->enter(); };
  }

  static std::unique_ptr<SshHosts> hosts_;
};

std::unique_ptr<SshHosts> RunOverSsh::hosts_;

TEST_F(RunOverSsh, RanksOfFourHostsMeet) {
  Job job(on(all(2), {ENVIRONMENT_RANK, "3"}), "", from_outside());
  EXPECT_EQ(job.wait(), 0) << job.err();
  std::vector<std::string> expected;
  for (int rank = 0; rank < 8; ++rank) expected.push_back(fmt::format("tutti run {} 8", rank));
  EXPECT_EQ(sorted_lines(job.out()), expected);
  EXPECT_EQ(job.err(), "");
  EXPECT_TRUE(hosts_->are_empty());
}

TEST_F(RunOverSsh, EachRankRunsOnItsHost) {
  // The launcher's own host is the second one here: it needs no ssh.
  Job job(on(all(2), {"sh", "-c",
                      "echo $TUTTI_RANK $TUTTI_LOCAL_RANK of $TUTTI_LOCAL_SIZE; "
                      "readlink /proc/self/ns/net; sleep 0.2"}),
          "", [] { hosts_->enter(1); });
  EXPECT_EQ(job.wait(), 0) << job.err();
  std::vector<std::string> ranks, spaces;
  for (const auto& line : sorted_lines(job.out()))
    (line.starts_with("net") ? spaces : ranks).push_back(line);
  EXPECT_EQ(ranks, (std::vector<std::string>{"0 0 of 2", "1 1 of 2", "2 0 of 2", "3 1 of 2",
                                             "4 0 of 2", "5 1 of 2", "6 0 of 2", "7 1 of 2"}));
  ASSERT_EQ(spaces.size(), 8U);
  for (std::size_t i = 1; i < 8; ++i) EXPECT_EQ(spaces[i] == spaces[i - 1], i % 2 == 1);
}

TEST_F(RunOverSsh, SixtyFourRanksMeet) {
  Job job(on(all(16), {"--tag", ENVIRONMENT_RANK}), "", from_outside());
  EXPECT_EQ(job.wait(), 0) << job.err();
  std::vector<std::string> expected;
  for (int rank = 0; rank < 64; ++rank) {
    expected.push_back(fmt::format("[{0}] tutti run {0} 64", rank));
  }
  std::ranges::sort(expected);
  EXPECT_EQ(sorted_lines(job.out()), expected);
  EXPECT_TRUE(hosts_->are_empty());
}

TEST_F(RunOverSsh, TheSecretIsOnNoCommandLine) {
  Job job(on(all(1), {"sh", "-c", "echo $TUTTI_UNIQUE_ID; exec sleep 100"}), "", from_outside());
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == kHosts; }));
  const std::string id = lines(job.out()).front();
  ASSERT_EQ(id.size(), 256U);
  EXPECT_NE(std::system(fmt::format("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q {}[{}]",
                                    id.substr(0, 255), id.substr(255))
                            .c_str()),
            0);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_TRUE(hosts_->are_empty());
}

TEST_F(RunOverSsh, AnInterruptEndsTheRanksOfAllHosts) {
  Job job(on(all(1),
             {"sh", "-c", "trap 'echo got; exit 9' INT; echo ready; while :; do sleep 0.05; done"}),
          "", from_outside());
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == kHosts; }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(sorted_lines(job.out()), (std::vector<std::string>{"got", "got", "got", "got", "ready",
                                                               "ready", "ready", "ready"}));
  EXPECT_EQ(job.err(), "");
  EXPECT_TRUE(hosts_->are_empty());
}

TEST_F(RunOverSsh, KillingTheLauncherKillsEverything) {
  Job job(on(all(2), {"sh", "-c", "trap '' TERM INT HUP; echo ready; while :; do sleep 1; done"}),
          "", from_outside());
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == 2 * kHosts; }));
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(hosts_->are_empty());
}

TEST_F(RunOverSsh, ABrokenConnectionOrADeadAgentLosesTheHostAndLeavesNothing) {
  // ssh, where the job was started, and what it has started on the other host.
  const std::vector<std::pair<int, std::string>> victims{
      {kHosts, fmt::format("ssh .*{} .*run-agent", hosts_->address(2))}, {2, "tutti run-agent"}};
  for (const auto& [host, command] : victims) {
    Job job(on(all(2), {"sh", "-c", "trap '' HUP; echo ready; while :; do sleep 1; done"}), "",
            from_outside());
    ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == 2 * kHosts; }));
    EXPECT_TRUE(hosts_->kill_one(host, command));
    EXPECT_EQ(job.wait(), 125);
    EXPECT_CONTAINS(job.err(), fmt::format("tutti run: host {} is lost: ", hosts_->address(2)));
    EXPECT_CONTAINS(job.err(), "with it ranks 4 and 5; ending the other ranks");
    EXPECT_TRUE(hosts_->are_empty());
  }
}

TEST_F(RunOverSsh, HostsThatCannotBeReachedAreNamed) {
  const std::string nobody = "10.99.0.77";
  Job job(on(hosts_->address(0) + "," + nobody, {"sh", "-c", "echo started"}), "", from_outside());
  EXPECT_EQ(job.wait(), 125);
  EXPECT_CONTAINS(job.err(),
                  "tutti run: host 10.99.0.77: it cannot be reached: ssh: connect to host "
                  "10.99.0.77 port 22: ");
  EXPECT_EQ(job.out(), "");
  Job stranger(on(hosts_->spaces().address(kHosts) + "x", {"true"}), "", from_outside());
  EXPECT_EQ(stranger.wait(), 125);
  EXPECT_CONTAINS(stranger.err(), "x: it cannot be reached: ssh: Could not resolve");
  EXPECT_TRUE(hosts_->are_empty());
}

TEST_F(RunOverSsh, AMissingTuttiAndAMissingProgramAreNamed) {
  Job tutti(on(hosts_->address(1), {"--tutti", "/no such/tutti", "true"}), "", from_outside());
  EXPECT_EQ(tutti.wait(), 125);
  EXPECT_CONTAINS(tutti.err(), "host 10.99.0.2: there is no /no such/tutti there (");
  Job program(on(all(2), {"no-such-program"}), "", from_outside());
  EXPECT_EQ(program.wait(), 127);
  EXPECT_CONTAINS(program.err(), "cannot run 'no-such-program': there is no such program");
  EXPECT_CONTAINS(program.err(), "tutti run: host 10.99.0.");
  EXPECT_EQ(lines(program.err()).size(), 1U) << program.err();
  EXPECT_TRUE(hosts_->are_empty());
}

TEST_F(RunOverSsh, ElasticRanksAreStartedAgainOverSsh) {
  const std::string three =
      fmt::format("{}:2,{}:2,{}:2", hosts_->address(0), hosts_->address(1), hosts_->address(2));
  Job job(on(three, {"--elastic", "2:4", ELASTIC, "1000000"}), "", from_outside());
  ASSERT_TRUE(job.out_has("step 20 on 4 ranks")) << job.err();
  // How often four ranks have met.
  const auto met = [&](int often) {
    return eventually([&] {
      return std::ranges::count_if(lines(job.out()), [](const std::string& line) {
               return line.find("4 ranks go on from step") != line.npos;
             }) >= often;
    });
  };
  ASSERT_TRUE(hosts_->kill_one(1, ELASTIC " 1000000"));
  EXPECT_TRUE(met(2)) << job.out() << job.err();
  EXPECT_CONTAINS(job.err(), fmt::format("on {}) was killed by signal 9 (Killed); starting it "
                                         "again\n",
                                         hosts_->address(1)));
  ASSERT_TRUE(hosts_->kill_one(1, "tutti run-agent"));
  EXPECT_TRUE(met(3)) << job.out() << job.err();
  EXPECT_CONTAINS(job.err(), fmt::format("starting instead rank 4 on {0}, rank 5 on {0}\n",
                                         hosts_->address(2)));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_TRUE(hosts_->are_empty());
}

}  // namespace
}  // namespace tutti
