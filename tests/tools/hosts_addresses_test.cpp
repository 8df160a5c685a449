// At which address the ranks of several hosts meet, and those of one: on hosts that have more than
// a network card, or less. The hosts are network namespaces.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"
#include "tests/transport/network_job.h"
#include "tools/namespaces.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Settings = std::vector<std::pair<std::string, std::string>>;

const std::vector<std::string> kProgram{NETWORK_RANK, "40000", "0.05"};

bool ip(const Namespaces& hosts, int host, const std::string& arguments) {
  return std::system(fmt::format("ip -n {} {}", hosts.space(host), arguments).c_str()) == 0;
}

/// Two hosts with docker0 and eth0, and without a default route.
class Hosts : public testing::Test {
 protected:
  Hosts() {
    folder.write("launcher", "#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host \"$@\"\n");
    chmod(folder.path("launcher").c_str(), 0755);
  }
  /// Three ranks, started by hand.
  void expect_meeting(const Settings& settings) const {
    NetworkJob job(hosts, {0, 1, 1}, kProgram, settings);
    expect_right(job, 30s);
  }
  std::vector<std::string> on_both(const std::vector<std::string>& program) const {
    std::vector<std::string> arguments{"-H",
                                       fmt::format("{}:1,{}:1", hosts.space(0), hosts.space(1)),
                                       "--launcher", folder.path("launcher")};
    arguments.insert(arguments.end(), program.begin(), program.end());
    return arguments;
  }
  std::string doctor(int host, const std::string& variables,
                     const std::string& arguments = "") const {
    FILE* const pipe = popen(fmt::format("ip netns exec {} env {} {} doctor {} 2>&1",
                                         hosts.space(host), variables, TUTTI_COMMAND, arguments)
                                 .c_str(),
                             "r");
    std::string text;
    char piece[4096];
    while (fgets(piece, sizeof piece, pipe) != nullptr) text += piece;
    pclose(pipe);
    return text;
  }

  const Namespaces hosts{2, false, Namespaces::Joined::by_switch, 1, true};
  const TemporaryFolder folder;
};

TEST_F(Hosts, OfContainersMeetByAFile) {
  NEED_HOSTS(hosts);
  expect_meeting({});
}

TEST_F(Hosts, MeetByTheInterfacesThatAreNotExcluded) {
  NEED_HOSTS(hosts);
  expect_meeting({{"TUTTI_SOCKET_IFNAME", "^docker"}});
  expect_meeting({{"TUTTI_SOCKET_IFNAME", "^docker"}, {"TUTTI_ADDRESS", hosts.address(0)}});
  for (const int host : {0, 1}) {
    ASSERT_TRUE(ip(hosts, host, "route add default dev eth0"));
  }
  expect_meeting({{"TUTTI_SOCKET_IFNAME", "^docker"}});
}

TEST_F(Hosts, OfContainersMeetUnderTuttiRun) {
  NEED_HOSTS(hosts);
  Job job(on_both(kProgram), "", [&] { EXPECT_TRUE(hosts.enter(0)); });
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
}

/// The ranks have the variables that users of PyTorch set by hand.
std::vector<std::string> with_master_port(int port) {
  return {"sh", "-c",
          fmt::format("export RANK=$TUTTI_RANK WORLD_SIZE=$TUTTI_SIZE MASTER_PORT={}; unset "
                      "TUTTI_RANK TUTTI_SIZE TUTTI_ID_FILE; exec {} 40000 0.05",
                      port, NETWORK_RANK)};
}

TEST_F(Hosts, OfContainersMeetByTheStoreAtMasterAddr) {
  NEED_HOSTS(hosts);
  NetworkJob job(hosts, {0, 1}, with_master_port(29411), {{"MASTER_ADDR", hosts.address(0)}});
  expect_right(job, 30s);
}

TEST(HostsWithTwoNetworks, MeetInTheOneInWhichRanksHaveReachedTheStore) {
  const Namespaces hosts(2, false, Namespaces::Joined::directly, 2);
  NEED_HOSTS(hosts);
  // In the other network rank 0's host has an address, too, but rank 1's has none.
  ASSERT_TRUE(ip(hosts, 1, "addr flush dev eth0"));
  NetworkJob job(hosts, {0, 1}, with_master_port(29412), {{"MASTER_ADDR", hosts.address(0, 1)}});
  expect_right(job, 30s);
}

TEST_F(Hosts, MeetAtALinkLocalAddress) {
  NEED_HOSTS(hosts);
  for (const int host : {0, 1}) {
    ASSERT_TRUE(ip(hosts, host, fmt::format("addr add fe80::99:{}/64 dev eth0 nodad", host + 1)));
  }
  expect_meeting({{"TUTTI_ADDRESS", "fe80::99:1%eth0"}});
  expect_meeting({{"TUTTI_ADDRESS", "fe80::99:1"}});
}

TEST_F(Hosts, WithALoopbackMeetingPlaceAreToldThatItIsOne) {
  NEED_HOSTS(hosts);
  for (const char* const address : {"127.0.0.1", "::1"}) {
    Job job(on_both(kProgram), "", [&] {
      EXPECT_TRUE(hosts.enter(0));
      setenv("TUTTI_ADDRESS", address, 1);
      setenv("TUTTI_RENDEZVOUS_TIMEOUT", "3", 1);
    });
    EXPECT_NE(job.wait(), 0);
    EXPECT_CONTAINS(job.err(), fmt::format("tutti run: the ranks are to meet at {}, a loopback "
                                           "address of this host, to which no way leads from ",
                                           address));
    EXPECT_CONTAINS(job.err(), "unset TUTTI_ADDRESS");
    EXPECT_CONTAINS(job.out(), "a loopback address leads nowhere but to the own host");
  }
  NetworkJob job(hosts, {0, 1}, kProgram,
                 {{"TUTTI_ADDRESS", "127.0.0.1"}, {"TUTTI_RENDEZVOUS_TIMEOUT", "2"}});
  EXPECT_EQ(job.wait(1, 20s), 3);
  EXPECT_CONTAINS(job.text(1), "a loopback address leads nowhere but to the own host");
}

TEST_F(Hosts, AreShownByDoctorWithTheAddressThatRanksTake) {
  NEED_HOSTS(hosts);
  for (const char* const variables : {"", "TUTTI_SOCKET_IFNAME=^docker", "TUTTI_SOCKET_IFNAME=e"}) {
    EXPECT_CONTAINS(doctor(0, variables), "  would be used          10.99.0.1 (eth0)");
  }
  EXPECT_CONTAINS(doctor(0, "MASTER_ADDR=172.17.0.1"), "172.17.0.1 (docker0), which leads no");
  const std::string excluded = doctor(0, "TUTTI_SOCKET_IFNAME=^docker,eth");
  EXPECT_CONTAINS(excluded, "! would be used          127.0.0.1 (lo)");
  EXPECT_CONTAINS(excluded, "TUTTI_SOCKET_IFNAME=^docker,eth leaves no other interface");
  ASSERT_TRUE(ip(hosts, 0, "link del eth0"));
  const std::string alone = doctor(0, "");
  EXPECT_CONTAINS(alone, "! would be used          172.17.0.1 (docker0), which leads no further");
  ASSERT_TRUE(ip(hosts, 0, "link del docker0"));
  EXPECT_CONTAINS(doctor(0, ""), "there is no other interface that is up with an address");
}

/// As hosts of virtual machines have it: the address of the host is that of the bridge.
TEST_F(Hosts, TakeABridgeThatJoinsANetworkForOne) {
  NEED_HOSTS(hosts);
  if (!ip(hosts, 0, "link add link eth0 name card0 type macvlan mode bridge")) {
    GTEST_SKIP() << "this kernel has no macvlan";
  }
  for (const char* const change :
       {"addr flush dev eth0", "link add br1 type bridge", "addr add 198.18.0.1/24 dev br1",
        "link set card0 master br1 up", "link set br1 up"}) {
    ASSERT_TRUE(ip(hosts, 0, change)) << change;
  }
  EXPECT_TRUE(eventually([&] {  // until the kernel says that it has a carrier
    return doctor(0, "").find("  would be used          198.18.0.1 (br1);") != std::string::npos;
  }));
}

TEST_F(Hosts, AreWaitedForByDoctorAtBothFamilies) {
  NEED_HOSTS(hosts);
  for (const int host : {0, 1}) {
    ASSERT_TRUE(ip(hosts, host, fmt::format("addr add fd00:99::{}/64 dev eth0 nodad", host + 1)));
  }
  for (const char* const there : {"10.99.0.2", "fd00:99::2"}) {
    std::string listener;
    std::thread waits([&] { listener = doctor(1, "", "--listen 20000 --wait 20"); });
    EXPECT_TRUE(eventually([&] {
      return std::system(
                 fmt::format("ip netns exec {} cat /proc/net/tcp | grep -q ' 0A '", hosts.space(1))
                     .c_str()) == 0;
    }));
    std::string caller;
    EXPECT_TRUE(eventually([&] {  // it may listen at one of them already
      caller = doctor(0, "", fmt::format("--to [{}]:20000", there));
      return caller.find("Connection refused") == std::string::npos;
    }));
    if (caller.find("from it                connected to") == std::string::npos) {
      ADD_FAILURE() << caller;
      doctor(0, "", "--to 10.99.0.2:20000");  // so that the other one ends
    }
    waits.join();
    EXPECT_CONTAINS(listener, "Waiting at 10.99.0.2:20000 and [fd00:99::2]:20000");
    EXPECT_CONTAINS(listener, "to it                  connected to");
  }
}

// --- one host ---

class OneHost : public testing::Test {
 protected:
  /// Two ranks there; the exit status.
  int run_two() {
    Job job({"-n", "2", kProgram[0], kProgram[1], kProgram[2]}, "",
            [&] { EXPECT_TRUE(hosts.enter(0)); });
    const int status = job.wait();
    said = job.out() + job.err();
    return status;
  }

  const Namespaces hosts{1};
  std::string said;
};

TEST_F(OneHost, WithoutAnIpv4LoopbackAddressServesItsRanks) {
  NEED_HOSTS(hosts);
  ASSERT_TRUE(ip(hosts, 0, "addr del 127.0.0.1/8 dev lo"));
  EXPECT_EQ(run_two(), 0) << said;  // by ::1
  ASSERT_TRUE(ip(hosts, 0, "addr flush dev lo"));
  EXPECT_EQ(run_two(), 0) << said;  // by eth0's
}

TEST_F(OneHost, WithLoDownIsToldSo) {
  NEED_HOSTS(hosts);
  for (const char* const change : {"link set lo down", "link del eth0"}) {
    ASSERT_TRUE(ip(hosts, 0, change));
    EXPECT_NE(run_two(), 0);
    EXPECT_CONTAINS(said, "its loopback interface is down: bring it up (`ip link set lo up`)");
  }
}

}  // namespace
}  // namespace tutti::test
