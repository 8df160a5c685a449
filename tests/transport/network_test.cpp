// Ranks on several hosts, which are network namespaces: everything is right over TCP, the wire
// carries what the plan says, and a rank that dies is named.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/network_job.h"
#include "tools/namespaces.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

class Matrix : public testing::TestWithParam<std::vector<int>> {};

// A part of the matrix: all of it runs on hosts that are told apart by hand (tests/comm).
TEST_P(Matrix, EveryCollectiveIsRight) {
  const auto& host_of = GetParam();
  const Namespaces hosts(3);
  NEED_HOSTS(hosts);
  NetworkJob job(hosts, host_of, {MATRIX_RANK, "--brief", "--every", "9"});
  expect_right(job, 120s);
}
INSTANTIATE_TEST_SUITE_P(Hosts, Matrix,
                         testing::Values(std::vector{0, 1}, std::vector{0, 0, 1, 1},
                                         std::vector{0, 1, 0, 2}),
                         [](const auto& param) {
                           std::string name;
                           for (const int h : param.param) name += std::to_string(h);
                           return "On" + name;
                         });

TEST(Network, SpeaksIpv6) {
  const Namespaces hosts(2, true);
  NEED_HOSTS(hosts);
  NetworkJob job(hosts, {0, 1}, {NETWORK_RANK, "100000", "0.5"});
  expect_right(job, 30s);
}

TEST(Network, CarriesWhatThePlanSays) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  constexpr double kBytes = 8 << 20;
  const std::uint64_t before = hosts.bytes_sent(0);
  NetworkJob job(hosts, {0, 1}, {NETWORK_RANK, fmt::format("{:.0f}", kBytes), "2"});
  expect_right(job, 60s);
  const auto sent = static_cast<double>(hosts.bytes_sent(0) - before);
  const double calls = std::stod(job.text(0).substr(job.text(0).find("RIGHT ") + 6));
  // A ring of two sends half of the vector twice. Headers: 66 bytes of each 1,514 at most.
  EXPECT_GT(sent, calls * kBytes);
  EXPECT_LT(sent, calls * kBytes * 1.08 + 1e6);
}

#ifdef TUTTI_TEST_UCX
TEST(Network, CarriesTheSameOverUcx) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  constexpr double kBytes = 1 << 20;
  const std::uint64_t before = hosts.bytes_sent(0);
  NetworkJob job(hosts, {0, 1}, {NETWORK_RANK, fmt::format("{:.0f}", kBytes), "2"},
                 {{"TUTTI_TRANSPORT", "ucx"}, {"TUTTI_UCX_TLS", "tcp"}});
  expect_right(job, 60s);
  const auto sent = static_cast<double>(hosts.bytes_sent(0) - before);
  const double calls = std::stod(job.text(0).substr(job.text(0).find("RIGHT ") + 6));
  EXPECT_GT(sent, calls * kBytes);
  EXPECT_LT(sent, calls * kBytes * 1.15 + 1e6);
}
#endif

/// A job of two hosts, of whose ranks number `rank` alone has set this.
NetworkJob job_with(const Namespaces& hosts, int rank, const std::string& setting) {
  return {hosts,
          {0, 1},
          {"sh", "-c",
           fmt::format("[ $TUTTI_RANK = {} ] && export {}; exec {} 300000 0.3", rank, setting,
                       NETWORK_RANK)},
          {{"TUTTI_LOG", "debug"}}};
}

TEST(Network, IsProtectedAsRankZeroAsks) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  for (const auto& [setting, says] : {std::pair{"TUTTI_ENCRYPT=1", ", encrypted"},
                                      std::pair{"TUTTI_TCP_CHECKSUM=1", ", with checksums"}}) {
    NetworkJob job = job_with(hosts, 0, setting);
    expect_right(job, 30s);
    for (const std::size_t r : {0, 1}) {
      EXPECT_NE(job.text(r).find(says), std::string::npos) << job.text(r);
    }
  }
}

TEST(Network, RefusesARankThatAsksForMoreProtectionThanRankZero) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  NetworkJob job = job_with(hosts, 1, "TUTTI_ENCRYPT=1");
  for (const std::size_t r : {0, 1}) {
    EXPECT_EQ(job.wait(r, 30s), 3) << job.text(r);
    const PrintedError e = error_in(job.text(r));
    EXPECT_EQ(e.code, "mismatch") << job.text(r);
    EXPECT_EQ(e.rank, 1) << job.text(r);
    EXPECT_NE(e.text.find("rank 1 has set TUTTI_ENCRYPT=1, but rank 0"), std::string::npos)
        << job.text(r);
  }
}

TEST(Network, NamesWhoDiesWithinASecond) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  for (const std::size_t victim : {0, 2, 3}) {
    NetworkJob job(hosts, {0, 0, 1, 1}, {NETWORK_RANK, "300000", "60"});
    ASSERT_TRUE(job.all_say("READY")) << job.texts();
    // Longer than an answer about the first call counts, if a slow machine has asked for one.
    std::this_thread::sleep_for(1200ms);
    const double killed = now();
    kill(job.pid(victim), SIGKILL);
    for (std::size_t r = 0; r < 4; ++r) {
      if (r == victim) continue;
      EXPECT_EQ(job.wait(r, 30s), 3) << job.text(r);
      const PrintedError e = error_in(job.text(r));
      EXPECT_EQ(e.code, "peer_lost") << job.text(r);
      EXPECT_EQ(e.rank, static_cast<int>(victim)) << job.text(r);
      EXPECT_LT(e.when - killed, 1.0) << job.text(r);
      // All were far beyond their first call, of which a rank of another host has not been told.
      EXPECT_EQ(job.text(r).find("its operation #0"), std::string::npos) << job.text(r);
      EXPECT_EQ(job.text(r).find("between its calls"), std::string::npos) << job.text(r);
    }
  }
}

TEST(Network, WhatARankHasSentComesBeforeTheNewsThatItHasLeft) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  if (!hosts.limit(0, 1)) GTEST_SKIP() << "`tc qdisc add ... tbf` does not work here";
  // The first 128 KiB go at once, the rest takes more than a second. Meanwhile rank 1 asks rank 0
  // what it does, and the answer comes by another connection.
  NetworkJob job(hosts, {0, 1}, {LEAVING_RANK, "75000"});
  expect_right(job, 30s);
}

TEST(Network, WaitsForAStoppedHostUntilTheTimeIsUp) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  NetworkJob job(hosts, {0, 1}, {NETWORK_RANK, "3000000", "60"}, {{"TUTTI_TIMEOUT", "2"}});
  ASSERT_TRUE(job.all_say("READY")) << job.texts();
  std::this_thread::sleep_for(200ms);
  kill(job.pid(1), SIGSTOP);
  EXPECT_EQ(job.wait(0, 30s), 3) << job.text(0);
  const PrintedError e = error_in(job.text(0));
  EXPECT_EQ(e.code, "timed_out") << job.text(0);
  EXPECT_EQ(e.rank, 1) << job.text(0);
}

}  // namespace
}  // namespace tutti::test
