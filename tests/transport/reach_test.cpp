// Hosts that do not reach each other as they should, as network namespaces: firewalls that let
// connections through in one direction alone, and ranks that are stopped when they are first
// contacted. Where one way works, it is used; a slow rank is waited for.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/network_job.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// How a firewall refuses.
class Firewall : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(That, Firewall, testing::Values(true, false),
                         [](const auto& reset) { return reset.param ? "Resets" : "Drops"; });

#define NEED_FIREWALL(refused) \
  if (!(refused)) GTEST_SKIP() << "needs nft (nftables)"

TEST_P(Firewall, ThatStopsOneDirectionStopsNoStart) {
  const Namespaces hosts(3);
  NEED_HOSTS(hosts);
  NEED_FIREWALL(hosts.refuse(1, 0, GetParam()) && hosts.refuse(1, 2, GetParam()));
  for (const std::vector<int>& host_of : {std::vector{0, 0, 1, 1}, std::vector{0, 1, 2}}) {
    for (int start = 0; start < 5; ++start) {
      NetworkJob job(hosts, host_of, {NETWORK_RANK, "100000", "0.02"});
      expect_right(job, 30s);
    }
  }
}

/// The last rank is in no call when the others need it, which cannot dial it.
TEST_P(Firewall, ThatStopsOneDirectionDoesNotHideALateRank) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  NEED_FIREWALL(hosts.refuse(1, 0, GetParam()));
  NetworkJob job(hosts, {0, 0, 1, 1}, {PAIRS_RANK, "0,0,0,2.5"}, {{"TUTTI_PEER_TIMEOUT", "1"}});
  expect_right(job, 30s);
}

TEST_P(Firewall, ThatStopsBothDirectionsIsNamed) {
  const Namespaces hosts(3);
  NEED_HOSTS(hosts);
  NEED_FIREWALL(hosts.refuse(1, 2, GetParam()) && hosts.refuse(2, 1, GetParam()));
  NetworkJob job(hosts, {0, 1, 2}, {PAIRS_RANK, "0,0,0"}, {{"TUTTI_PEER_TIMEOUT", "1"}});
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(job.wait(r, 30s), 3) << job.text(r);
    const std::string text = job.text(r);
    EXPECT_TRUE(text.find("ERROR peer_lost 1 ") != text.npos ||
                text.find("ERROR peer_lost 2 ") != text.npos)
        << text;
    EXPECT_NE(text.find("and no connection has come from there"), text.npos) << text;
    EXPECT_NE(text.find("firewall"), text.npos) << text;
  }
}

/// Rank 3, which ranks 0 and 1 have had nothing to do with so far, is stopped.
class Stopped : public testing::Test {
 protected:
  void stop(const std::vector<std::pair<std::string, std::string>>& environment) {
    if (!hosts_.missing().empty()) return;
    job_.emplace(hosts_, std::vector{0, 0, 1, 1}, std::vector<std::string>{PAIRS_RANK, "1,1,1,1"},
                 environment);
    ASSERT_TRUE(job_->all_say("READY")) << job_->texts();
    kill(job_->pid(3), SIGSTOP);
  }
  const Namespaces hosts_{2};
  std::optional<NetworkJob> job_;
};

TEST_F(Stopped, IsWaitedForAtItsFirstContact) {
  NEED_HOSTS(hosts_);
  stop({{"TUTTI_PEER_TIMEOUT", "1"}});
  std::this_thread::sleep_for(3s);
  kill(job_->pid(3), SIGCONT);
  expect_right(*job_, 30s);
}

TEST_F(Stopped, IsWaitedForAtItsFirstContactUntilTheTimeIsUp) {
  NEED_HOSTS(hosts_);
  stop({{"TUTTI_PEER_TIMEOUT", "1"}, {"TUTTI_TIMEOUT", "2"}});
  EXPECT_EQ(job_->wait(1, 30s), 3) << job_->text(1);
  EXPECT_NE(job_->text(1).find("ERROR timed_out 3 "), std::string::npos) << job_->text(1);
}

}  // namespace
}  // namespace tutti::test
