// Networks that are down for a while, or for ever: an outage that TUTTI_PEER_TIMEOUT allows harms
// nobody, a longer one parts hosts, and the ranks of each host go on together.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/network_job.h"
#include "tools/namespaces.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Ranks of these hosts that make calls until a part of `left` ranks has gone on without the
/// others.
NetworkJob survivors(const Namespaces& hosts, const std::vector<int>& host_of, std::size_t left,
                     Variables environment = {}) {
  environment.emplace_back("TUTTI_PEER_TIMEOUT", "2");
  return {hosts,
          host_of,
          {FAULT_RANK, "call", "kept", "1", std::to_string(host_of.size() - left)},
          environment};
}

/// The ranks that a rank has lost, as the lines `which` ("ERROR", "ALSO") of its output say.
std::vector<int> lost_in(const std::string& text, const std::string& which) {
  std::vector<int> ranks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find(which + " peer_lost ");
    if (at == std::string::npos) continue;
    ranks.push_back(
        std::atoi(line.c_str() + at + which.size() + std::string(" peer_lost ").size()));
  }
  return ranks;
}

/// Each rank of `host` has lost all ranks of the other host, and none of its own, and goes on with
/// `left` ranks.
void expect_parted(NetworkJob& job, const std::vector<int>& host_of, int host, int left) {
  for (std::size_t r = 0; r < job.size(); ++r) {
    if (host_of[r] != host) continue;
    EXPECT_EQ(job.wait(r, 60s), 0) << job.texts();
    EXPECT_NE(job.text(r).find(fmt::format("SURVIVED {}\n", left)), std::string::npos)
        << job.texts();
    for (const char* which : {"FIRST", "ERROR", "ALSO"}) {
      for (const int lost : lost_in(job.text(r), which)) {
        EXPECT_TRUE(lost >= 0 && host_of[static_cast<std::size_t>(lost)] != host) << job.texts();
      }
    }
  }
}

TEST(Outage, OfLessThanThePeerTimeoutLosesNothing) {
  // Two at once: one in the middle of calls, and one of connections that say nothing.
  const Namespaces busy(2), quiet(2);
  NEED_HOSTS(busy);
  NEED_HOSTS(quiet);
  const Variables patience{{"TUTTI_PEER_TIMEOUT", "3"}};
  NetworkJob calls(busy, {0, 0, 1, 1}, {NETWORK_RANK, "300000", "5"}, patience);
  NetworkJob idle(quiet, {0, 1}, {NETWORK_RANK, "300000", "5"}, patience);
  ASSERT_TRUE(calls.all_say("READY")) << calls.texts();
  ASSERT_TRUE(idle.all_say("READY")) << idle.texts();
  kill(idle.pid(0), SIGSTOP);
  std::this_thread::sleep_for(700ms);
  busy.link(1, false);
  quiet.link(1, false);
  std::this_thread::sleep_for(2900ms);
  busy.link(1, true);
  quiet.link(1, true);
  std::this_thread::sleep_for(500ms);
  kill(idle.pid(0), SIGCONT);
  for (NetworkJob* job : {&calls, &idle}) {
    for (std::size_t r = 0; r < job->size(); ++r) {
      EXPECT_EQ(job->wait(r, 60s), 0) << "rank " << r << ": " << job->text(r);
    }
  }
}

TEST(Outage, OfAHostForEverIsSurvivedByAllRanksOfTheOther) {
  const std::vector<int> three{0, 0, 0, 1, 1, 1}, two{0, 0, 1, 1};
  const Namespaces first(2), second(2);
  NEED_HOSTS(first);
  NEED_HOSTS(second);
  NetworkJob large = survivors(first, three, 3), small = survivors(second, two, 2);
  ASSERT_TRUE(large.all_say("READY")) << large.texts();
  ASSERT_TRUE(small.all_say("READY")) << small.texts();
  first.link(1, false);
  second.link(1, false);
  for (const int host : {0, 1}) {
    expect_parted(large, three, host, 3);
    expect_parted(small, two, host, 2);
  }
}

TEST(Outage, OfThriceThePeerTimeoutPartsTheHostsAndOnlyOneHasTheQuorum) {
  const std::vector<int> host_of{0, 0, 0, 1, 1, 1};
  const Namespaces first(2), second(2);
  NEED_HOSTS(first);
  NEED_HOSTS(second);
  NetworkJob all = survivors(first, host_of, 3);
  NetworkJob one = survivors(second, host_of, 3, {{"TUTTI_QUORUM", "1"}});
  ASSERT_TRUE(all.all_say("READY")) << all.texts();
  ASSERT_TRUE(one.all_say("READY")) << one.texts();
  first.link(1, false);
  second.link(1, false);
  std::this_thread::sleep_for(6s);
  first.link(1, true);
  second.link(1, true);
  expect_parted(all, host_of, 0, 3);
  expect_parted(all, host_of, 1, 3);
  expect_parted(one, host_of, 0, 3);
  for (std::size_t r = 3; r < 6; ++r) {
    EXPECT_EQ(one.wait(r, 60s), 5) << one.texts();
    EXPECT_NE(one.text(r).find("LATER invalid_usage"), std::string::npos) << one.texts();
    EXPECT_NE(one.text(r).find("TUTTI_QUORUM"), std::string::npos) << one.texts();
  }
}

TEST(Outage, BetweenTwoOfThreeHostsLeavesOutOneOfThem) {
  const std::vector<int> host_of{0, 0, 1, 1, 2, 2};
  const Namespaces hosts(3);
  NEED_HOSTS(hosts);
  NetworkJob job = survivors(hosts, host_of, 4, {{"TUTTI_RENDEZVOUS_TIMEOUT", "5"}});
  ASSERT_TRUE(job.all_say("READY")) << job.texts();
  hosts.part(0, 2);
  // Host 1 reaches both, and takes the side of the one that it has heard of first.
  for (std::size_t r = 0; r < 6; ++r) EXPECT_GE(job.wait(r, 60s), 0) << job.texts();
  const auto survived = [&](std::size_t r) {
    return job.text(r).find("SURVIVED 4\n") != std::string::npos;
  };
  EXPECT_TRUE(survived(2) && survived(3)) << job.texts();
  EXPECT_EQ(survived(0), survived(1)) << job.texts();
  EXPECT_EQ(survived(4), survived(5)) << job.texts();
  EXPECT_NE(survived(0), survived(4)) << job.texts();
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(Outage, ForEverNamesWhoIsBehindItInTime) {
  const Namespaces hosts(3);
  NEED_HOSTS(hosts);
  NetworkJob job(hosts, {0, 0, 1, 2}, {NETWORK_RANK, "300000", "60"},
                 {{"TUTTI_PEER_TIMEOUT", "2"}});
  ASSERT_TRUE(job.all_say("READY")) << job.texts();
  std::this_thread::sleep_for(300ms);
  const double down = seconds_now();
  hosts.link(2, false);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(job.wait(r, 30s), 3) << job.text(r);
    const PrintedError e = error_in(job.text(r));
    EXPECT_EQ(e.code, "peer_lost") << job.text(r);
    // Kernels that cannot ask every second take as long again.
    EXPECT_GT(e.when - down, 2.0) << job.text(r);
    EXPECT_LT(e.when - down, 8.0) << job.text(r);
    // The ranks that are cut off blame the others.
    if (r < 3) {
      EXPECT_EQ(e.rank, 3) << job.text(r);
      EXPECT_NE(e.text.find("out of reach"), std::string::npos) << job.text(r);
      EXPECT_NE(e.text.find("all_reduce"), std::string::npos) << job.text(r);
    }
  }
}

}  // namespace
}  // namespace tutti::test
