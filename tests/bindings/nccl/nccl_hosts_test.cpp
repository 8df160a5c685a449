// Programs made for NCCL on several hosts, network namespaces here: the id that rank 0 makes leads
// the others to it, with no setting, whatever else the hosts have.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"
#include "tests/transport/network_job.h"
#include "tools/namespaces.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Settings = std::vector<std::pair<std::string, std::string>>;

/// Three ranks on two hosts, whose program carries the id.
void expect_meeting(const Namespaces& hosts, Settings settings = {}) {
  const TemporaryFolder folder;
  settings.emplace_back("TUTTI_RENDEZVOUS_TIMEOUT", "10");  // NCCL's is 30 minutes
  NetworkJob job(hosts, {0, 1, 0}, {NCCL_RANK, "carried", folder.path("id")}, settings);
  expect_right(job, 40s);
}

TEST(Hosts, MeetWithoutASetting) {
  const Namespaces hosts(2);
  NEED_HOSTS(hosts);
  expect_meeting(hosts);
}

TEST(Hosts, MeetOverIpv6) {
  const Namespaces hosts(2, true);
  NEED_HOSTS(hosts);
  expect_meeting(hosts);
}

TEST(Hosts, OfContainersMeetOverTheirNetworkAndByTheInterfacesThatAreNamed) {
  const Namespaces hosts(2, false, Namespaces::Joined::by_switch, 1, true);
  NEED_HOSTS(hosts);
  for (const Settings& settings :
       {Settings{}, Settings{{"TUTTI_SOCKET_IFNAME", "eth0"}},
        Settings{{"TUTTI_SOCKET_IFNAME", "^docker"}}, Settings{{"NCCL_SOCKET_IFNAME", "^docker"}},
        Settings{{"MASTER_ADDR", hosts.address(0)}}}) {
    SCOPED_TRACE(settings.empty() ? "" : settings.front().first + "=" + settings.front().second);
    expect_meeting(hosts, settings);
  }
}

TEST(Hosts, MeetUnderTuttiRun) {
  const Namespaces hosts(2, false, Namespaces::Joined::by_switch, 1, true);
  NEED_HOSTS(hosts);
  const TemporaryFolder folder;
  folder.write("launcher", "#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host \"$@\"\n");
  chmod(folder.path("launcher").c_str(), 0755);
  const std::string list = fmt::format("{}:1,{}:2", hosts.space(0), hosts.space(1));
  const auto in_first = [&] { EXPECT_TRUE(hosts.enter(0)); };
  Job job({"-H", list, "--launcher", folder.path("launcher"), "-x", "TUTTI_RENDEZVOUS_TIMEOUT=10",
           NCCL_RANK, "carried", folder.path("id")},
          "", in_first);
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_EQ(sorted_lines(job.out()),
            (std::vector<std::string>{"rank 0 is right", "rank 1 is right", "rank 2 is right"}));
}

/// A network namespace with lo alone.
TEST(Hosts, WithLoopbackAloneServeTheirOwnRanks) {
  const Namespaces hosts(1);
  NEED_HOSTS(hosts);
  ASSERT_EQ(std::system(fmt::format("ip -n {} link del eth0", hosts.space(0)).c_str()), 0);
  const TemporaryFolder folder;
  NetworkJob job(hosts, {0, 0}, {NCCL_RANK, "carried", folder.path("id")},
                 {{"TUTTI_RENDEZVOUS_TIMEOUT", "10"}});
  expect_right(job, 40s);
}

}  // namespace
}  // namespace tutti::test
