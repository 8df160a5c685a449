// Several links between two hosts, network namespaces here: long messages take all of them, by
// themselves or as TUTTI_TCP_STREAMS says, and one that breaks ends the communicator as any broken
// connection does.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/network_job.h"
#include "tools/namespaces.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr int kWays = 4;
using Sent = std::array<std::uint64_t, kWays>;

Sent sent(const Namespaces& hosts, int host) {
  Sent bytes{};
  for (int w = 0; w < kWays; ++w) bytes[static_cast<std::size_t>(w)] = hosts.bytes_sent(host, w);
  return bytes;
}

/// What each host has sent over each way after a job of two ranks, which is right.
std::pair<Sent, Sent> sent_by_a_job(
    const std::vector<std::pair<std::string, std::string>>& settings) {
  const Namespaces hosts(2, false, Namespaces::Joined::directly, kWays);
  NetworkJob job(hosts, {0, 1}, {NETWORK_RANK, "4000000", "0.3"}, settings);
  expect_right(job, 30s);
  return {sent(hosts, 0), sent(hosts, 1)};
}

#define NEED_WAYS()                                                        \
  do {                                                                     \
    const Namespaces hosts(2, false, Namespaces::Joined::directly, kWays); \
    NEED_HOSTS(hosts);                                                     \
  } while (false)

TEST(Stripes, AreOneForEachWayAndCarryEquallyMuch) {
  NEED_WAYS();
  const auto [zero, one] = sent_by_a_job({});
  for (const Sent& bytes : {zero, one}) {
    EXPECT_GT(bytes[0], 1'000'000U);
    // The first also has the headers and the short messages.
    for (const std::uint64_t b : bytes) {
      EXPECT_GT(b, bytes[0] / 10 * 8);
      EXPECT_LE(b, bytes[0]);
    }
  }
}

TEST(Stripes, AreAsManyAsIsAskedFor) {
  NEED_WAYS();
  constexpr std::uint64_t kNothing = 100'000;  // but what the kernel says by itself
  const auto one_alone = sent_by_a_job({{"TUTTI_TCP_STREAMS", "1"}});
  for (const Sent& bytes : {one_alone.first, one_alone.second}) {
    EXPECT_GT(bytes[0], 1'000'000U);
    for (int w = 1; w < kWays; ++w) EXPECT_LT(bytes[static_cast<std::size_t>(w)], kNothing);
  }
  const auto two = sent_by_a_job({{"TUTTI_TCP_STREAMS", "2"}});
  for (const Sent& bytes : {two.first, two.second}) {
    EXPECT_GT(bytes[1], bytes[0] / 10 * 8);
    for (int w = 2; w < kWays; ++w) EXPECT_LT(bytes[static_cast<std::size_t>(w)], kNothing);
  }
  const auto named = sent_by_a_job({{"TUTTI_SOCKET_IFNAME", "=eth0,=eth3"}});
  for (const Sent& bytes : {named.first, named.second}) {
    EXPECT_GT(bytes[3], bytes[0] / 10 * 8);
    for (int w = 1; w < 3; ++w) EXPECT_LT(bytes[static_cast<std::size_t>(w)], kNothing);
  }
}

TEST(Stripes, SeveralMayTakeOneWay) {
  const Namespaces hosts(2, false, Namespaces::Joined::directly, 1);
  NEED_HOSTS(hosts);
  for (const char* protection : {"TUTTI_TCP_CHECKSUM", "TUTTI_ENCRYPT"}) {
    NetworkJob job(hosts, {0, 1}, {NETWORK_RANK, "4000000", "0.3"},
                   {{"TUTTI_TCP_STREAMS", "8"}, {protection, "1"}});
    expect_right(job, 30s);
  }
}

/// `what`: of network_rank, "" for an all_reduce, which also reads the stripes that it writes.
void expect_end_of_broken(const std::string& what) {
  const Namespaces hosts(2, false, Namespaces::Joined::directly, kWays);
  NEED_HOSTS(hosts);
  std::vector<std::string> program{NETWORK_RANK, "4000000", "60"};
  if (!what.empty()) program.push_back(what);
  NetworkJob job(hosts, {0, 1}, program);
  ASSERT_TRUE(job.all_say("READY")) << job.texts();
  std::this_thread::sleep_for(300ms);
  if (!hosts.reset_all(1, 2)) GTEST_SKIP() << "nftables is missing here";
  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(job.wait(r, 20s), 3) << job.texts();
    const PrintedError error = error_in(job.text(r));
    EXPECT_EQ(error.code, "peer_lost") << job.texts();
    EXPECT_EQ(error.rank, 1 - static_cast<int>(r)) << job.texts();
    EXPECT_NE(error.text.find("the connection for data broke"), std::string::npos) << job.texts();
  }
}

TEST(Stripes, OneThatBreaksEndsTheCommunicator) { expect_end_of_broken(""); }
TEST(Stripes, OneThatBreaksWhereOneSideOnlySendsEndsTheCommunicator) {
  expect_end_of_broken("broadcast");
}

TEST(Stripes, OneThatDoesNotComeAboutIsDoneWithout) {
  const Namespaces hosts(2, false, Namespaces::Joined::directly, kWays);
  NEED_HOSTS(hosts);
  for (const int host : {0, 1}) {
    if (!hosts.reset_new(host, 2)) GTEST_SKIP() << "nftables is missing here";
  }
  NetworkJob job(hosts, {0, 1}, {NETWORK_RANK, "4000000", "0.3"});
  expect_right(job, 30s);
  const Sent bytes = sent(hosts, 0);
  EXPECT_GT(bytes[1], bytes[0] / 10 * 8);  // before it
  EXPECT_LT(bytes[2], 100'000U);
  EXPECT_GT(bytes[3], bytes[0] / 10 * 8);  // behind it
}

}  // namespace
}  // namespace tutti::test
