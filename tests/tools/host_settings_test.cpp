// What settings say of the ways between hosts: what cannot be had is refused, with a sentence, and
// what is no setting is named.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bootstrap/unique_id.h"
#include "core/error.h"
#include "core/settings_check.h"
#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/variable.h"
#include "tools/namespaces.h"
#include "transport/network/wire_choice.h"
#include "transport/sockets/rank_listener.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

using test::Variable;

template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

// --- addresses ---

TEST(MeetingAddress, HasToBeOneHosts) {
  for (const char* const address : {"0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1"}) {
    MeetingPlace place;
    place.address = address;
    const std::string what = refusal([&] { make_unique_id(place); });
    EXPECT_CONTAINS(what, fmt::format("TUTTI_ADDRESS is {}", address));
    EXPECT_CONTAINS(what, "127.0.0.1 (lo)");
  }
}

TEST(MeetingAddress, OfAnotherHostIsRefusedWithThoseOfThisOne) {
  MeetingPlace place;
  place.address = "192.0.2.77";
  try {
    make_unique_id(place);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_CONTAINS(error.what(), "cannot listen at 192.0.2.77");
    EXPECT_CONTAINS(error.what(), "127.0.0.1 (lo)");
  }
}

// --- ports ---

std::uint16_t port_of(const FileDescriptor& socket) {
  const SocketAddress address = bound_address(socket);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

/// The first of so many ports that were free a moment ago.
int free_ports(int count) {
  const SocketAddress any = *parse_address("127.0.0.1", 0);
  for (int first = 21000 + getpid() % 4000;; first += count) {
    const auto is_free = [&](int port) {
      return static_cast<bool>(listen_at(with_port(any, static_cast<std::uint16_t>(port))));
    };
    bool all = true;
    for (int p = first; p < first + count; ++p) all = all && is_free(p);
    if (all) return first;
  }
}

TEST(Ports, AreThoseOfTheRangeUntilNoneIsLeft) {
  const int first = free_ports(3);
  const Variable ports("TUTTI_PORTS", fmt::format("{}-{}", first, first + 2));
  const SocketAddress here = *parse_address("127.0.0.1", 0);
  std::vector<FileDescriptor> sockets;
  std::set<int> used;
  for (int i = 0; i < 3; ++i) {
    sockets.push_back(listen_for_ranks(here));
    ASSERT_TRUE(sockets.back());
    used.insert(port_of(sockets.back()));
  }
  EXPECT_EQ(used, (std::set<int>{first, first + 1, first + 2}));
  EXPECT_FALSE(listen_for_ranks(here));
  EXPECT_EQ(errno, EADDRINUSE);
  try {
    make_unique_id();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_CONTAINS(error.what(), fmt::format("at a port of TUTTI_PORTS={}-{}", first, first + 2));
  }
  sockets.pop_back();
  EXPECT_TRUE(listen_for_ranks(here));
}

TEST(Ports, OfConnectionsThatAreNotForgottenYetAreUsedAgain) {
  const int first = free_ports(1);
  const Variable ports("TUTTI_PORTS", fmt::format("{}", first));
  const SocketAddress here = *parse_address("127.0.0.1", 0);
  for (int repetition = 0; repetition < 3; ++repetition) {
    const FileDescriptor listener = listen_for_ranks(here);
    ASSERT_TRUE(listener) << repetition;
    const Deadline soon = deadline_after(std::chrono::seconds(5));
    const FileDescriptor peer = connect_to(bound_address(listener), soon);
    ASSERT_TRUE(wait_for(listener.fd(), 1 /* POLLIN */, soon));
    FileDescriptor accepted = accept_from(listener);
    accepted.reset();  // first, so this side remembers the connection
  }
}

TEST(Ports, OtherTextIsRefused) {
  for (const char* const text : {"x", "0", "20000-", "-20000", "20001-20000", "1-65536", "1-2-3"}) {
    const Variable ports("TUTTI_PORTS", text);
    EXPECT_CONTAINS(refusal([] { port_range(); }), fmt::format("TUTTI_PORTS is \"{}\"", text));
  }
}

/// The ports at which anybody listens in a namespace.
std::set<int> listening_in(const Namespaces& hosts, int host) {
  std::set<int> ports;
  FILE* const pipe =
      popen(fmt::format("ip netns exec {} cat /proc/net/tcp", hosts.space(host)).c_str(), "r");
  char line[512];
  while (pipe != nullptr && fgets(line, sizeof line, pipe) != nullptr) {
    unsigned port = 0, state = 0;
    if (std::sscanf(line, " %*d: %*x:%x %*x:%*x %x", &port, &state) == 2 && state == 0x0a) {
      ports.insert(static_cast<int>(port));
    }
  }
  if (pipe != nullptr) pclose(pipe);
  return ports;
}

/// Four ranks, each a host, in one namespace.
void expect_all_ports_in_range(const std::string& transport, std::size_t least) {
  const Namespaces hosts(1);
  if (!hosts.missing().empty()) GTEST_SKIP() << hosts.missing();
  const std::string id = fmt::format("/tmp/{}.id", hosts.spaces());
  // The launcher's own server is outside.
  Job job(shell(
      4,
      fmt::format(
          "unset TUTTI_UNIQUE_ID; exec ip netns exec {} env TUTTI_ID_FILE={} "
          "TUTTI_ADDRESS={} TUTTI_PORTS=20100-20119 TUTTI_TRANSPORT={} "
          "TUTTI_UCX_TLS=tcp UCX_TCP_PORT_RANGE=20100-20119 TUTTI_HOST_ID=h$TUTTI_RANK {} 1000 1",
          hosts.space(0), id, hosts.address(0), transport, NETWORK_RANK)));
  std::set<int> ports;
  const auto look = [&] {
    const auto now = listening_in(hosts, 0);
    ports.insert(now.begin(), now.end());
    return job.out().find("READY") != std::string::npos;
  };
  ASSERT_TRUE(eventually(look)) << job.err();
  look();
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_GE(ports.size(), least);
  EXPECT_TRUE(std::ranges::all_of(ports, [](int p) { return 20100 <= p && p <= 20119; }))
      << *ports.begin() << " to " << *ports.rbegin();
}

TEST(Ports, OfAllListenersOfAJobAreInTheRange) { expect_all_ports_in_range("tcp", 4); }

TEST(Ports, OfUcxAreInTheRange) {
  if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  expect_all_ports_in_range("ucx", 8);
}

// --- congestion control, and names that are none ---

/// Two ranks on hosts told apart by hand; `setting` is that of rank 1 alone.
std::vector<std::string> job_with(const std::string& setting) {
  return shell(2, fmt::format("[ $TUTTI_RANK = 1 ] && export {}; TUTTI_HOST_ID=h$TUTTI_RANK exec "
                              "{} 1000 0.1",
                              setting, NETWORK_RANK));
}

TEST(CongestionControl, ThatTheKernelDoesNotHaveIsRefusedOnAllRanksWithThoseItHas) {
  Job job(job_with("TUTTI_TCP_CONGESTION=bogus"));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_LT(job.seconds(), 15);
  std::size_t errors = 0;
  for (const std::string& line : lines(job.out())) {
    if (!line.starts_with("ERROR invalid_argument")) continue;
    ++errors;
    EXPECT_CONTAINS(line, "TUTTI_TCP_CONGESTION=bogus");
    EXPECT_CONTAINS(line, "reno");
  }
  EXPECT_EQ(errors, 2u) << job.out() << job.err();
}

TEST(UnknownSettings, AreNamedWithTheOneThatIsMeant) {
  const std::vector<std::pair<const char*, std::string_view>> rows{
      {"TUTTI_TRANSPROT", "TUTTI_TRANSPORT"},
      {"TUTTI_TIMOUT", "TUTTI_TIMEOUT"},
      {"TUTTI_LOGLEVEL", "TUTTI_LOG"},
      {"TUTTI_LOG_LEVEL", "TUTTI_LOG"},
      {"TUTTI_ID_FLIE", "TUTTI_ID_FILE"},
      {"TUTTI_SOCKET_IF_NAME", "TUTTI_SOCKET_IFNAME"},
      {"TUTTI_PORT", "TUTTI_PORTS"},
      {"TUTTI_ADDR", "TUTTI_ADDRESS"},
      {"TUTTI_ENCRPYT", "TUTTI_ENCRYPT"},
      {"TUTTI_HOME", ""},
      {"TUTTI_PYTHON", ""},
  };
  for (const auto& [name, meant] : rows) {
    const Variable variable(name, "1");
    const Variable of_tests("TUTTI_TEST_SOMETHING", "1");
    const auto unknown = unknown_settings();
    const auto found = std::ranges::find_if(unknown, [&](const auto& u) { return u.name == name; });
    ASSERT_NE(found, unknown.end()) << name;
    EXPECT_EQ(found->nearest, meant) << name;
    EXPECT_TRUE(std::ranges::none_of(
        unknown, [](const auto& u) { return u.name.starts_with("TUTTI_TEST_"); }));
  }
}

TEST(UnknownSettings, AreWarnedOfOnce) {
  Job job(job_with("TUTTI_TRANSPROT=ucx TUTTI_HOME=/"));
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  const auto all = lines(job.err());
  const auto warns = [](const std::string& line) {
    return line.find("TUTTI_TRANSPROT is set") != std::string::npos &&
           line.find("is TUTTI_TRANSPORT meant?") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(all, warns), 1) << job.err();
  EXPECT_EQ(job.err().find("TUTTI_HOME"), std::string::npos) << job.err();
}

TEST(UnreadableSettings, AreNamedWithTheirValues) {
  const Variable slots("TUTTI_SLOTS", "many");
  const Variable timeout("TUTTI_PEER_TIMEOUT", "-1");
  const auto problems = unreadable_settings();
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_CONTAINS(problems[0], "TUTTI_PEER_TIMEOUT is \"-1\"");
  EXPECT_CONTAINS(problems[1], "TUTTI_SLOTS is \"many\"");
}

}  // namespace
}  // namespace tutti
