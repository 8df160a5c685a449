// Which address of a host is chosen: on hosts that are made up, with the interfaces and routes that
// hosts have.
#include "transport/sockets/own_addresses.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/contains.h"

namespace tutti {
namespace {

using Texts = std::vector<std::string>;

struct Interface {
  std::string name;
  Texts addresses;
  bool inside = false;  // a bridge of containers
  bool carrier = true;
};

/// A host with these interfaces, and lo. What goes to an address that begins with a key of `routes`
/// has its value as its source; what goes to an own address has that.
OwnAddresses host(const std::vector<Interface>& interfaces,
                  const std::map<std::string, std::string>& routes = {},
                  const Texts& of_lo = {"127.0.0.1", "::1"}) {
  std::vector<NetworkInterface> all;
  const auto add = [&](const Interface& from) {
    for (const std::string& text : from.addresses) {
      NetworkInterface i;
      i.name = from.name;
      i.address = *parse_address(text, 0);
      i.loopback = is_loopback(i.address);
      i.inside = from.inside;
      i.carrier = from.carrier;
      all.push_back(i);
    }
  };
  add({"lo", of_lo, true});
  for (const Interface& from : interfaces) add(from);
  return {[all] { return all; },
          [all, routes](const SocketAddress& to) -> std::optional<SocketAddress> {
            const std::string text = host_text(to);
            for (const NetworkInterface& own : all) {
              if (host_text(own.address) == text) return own.address;
            }
            for (const auto& [prefix, source] : routes) {
              if (text.starts_with(prefix)) return parse_address(source, 0);
            }
            errno = ENETUNREACH;
            return std::nullopt;
          }};
}

Texts texts(const std::vector<SocketAddress>& addresses) {
  Texts result;
  for (const SocketAddress& a : addresses) result.push_back(host_text(a));
  return result;
}

Texts for_others(const OwnAddresses& own, const Texts& reached = {},
                 const std::string& names = "") {
  std::vector<SocketAddress> peers;
  for (const std::string& text : reached) peers.push_back(*parse_address(text, 4711));
  return texts(own.for_others(peers, names));
}

std::string towards(const OwnAddresses& own, const std::string& peer,
                    const std::string& names = "") {
  return host_text(own.towards(*parse_address(peer, 4711), names));
}

template <class Body>
std::pair<ErrorCode, std::string> refusal(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "accepted";
  return {};
}

const Interface kDocker{"docker0", {"172.17.0.1"}, true};
const Interface kLibvirt{"virbr0", {"192.168.122.1"}, true, false};
const Interface kEth0{"eth0", {"10.0.0.5"}};
const Interface kEth1{"eth1", {"10.1.0.5"}};
const std::map<std::string, std::string> kByEth0{{"192.0.2.", "10.0.0.5"}, {"10.0.0.", "10.0.0.5"}};

// --- nobody is known yet ---

TEST(AddressForOthers, IsTheOneOfTheDefaultRoute) {
  const OwnAddresses own = host({kDocker, kEth1, kEth0}, kByEth0);
  EXPECT_EQ(for_others(own), (Texts{"10.0.0.5", "10.1.0.5", "172.17.0.1", "127.0.0.1", "::1"}));
}

TEST(AddressForOthers, MayBeABridgesIfTheDefaultRouteIs) {
  const OwnAddresses own = host({{"br0", {"10.0.0.5"}, true}, kEth1}, kByEth0);
  EXPECT_EQ(for_others(own).front(), "10.0.0.5");
}

TEST(AddressForOthers, WithoutARouteIsNoBridgesAndNoLoopbackOne) {
  for (const auto& interfaces : {std::vector{kDocker, kLibvirt, kEth0}, std::vector{kEth0, kDocker},
                                 std::vector{kLibvirt, kEth0}}) {
    EXPECT_EQ(for_others(host(interfaces)).front(), "10.0.0.5");
  }
}

TEST(AddressForOthers, OfInterfacesWithoutACarrierComesLater) {
  const Interface unplugged{"eth0", {"10.0.0.5"}, false, false};
  EXPECT_EQ(for_others(host({unplugged, kEth1})),
            (Texts{"10.1.0.5", "10.0.0.5", "127.0.0.1", "::1"}));
}

TEST(AddressForOthers, OfLoThatOthersReachComesBeforeLoopbackOnes) {
  // Some hosts have an address of their own there, others one that all hosts of a service have.
  const Texts on_lo{"127.0.0.1", "10.9.9.9"};
  EXPECT_EQ(for_others(host({kEth0}, {}, on_lo)), (Texts{"10.0.0.5", "10.9.9.9", "127.0.0.1"}));
  EXPECT_EQ(for_others(host({}, {}, on_lo)), (Texts{"10.9.9.9", "127.0.0.1"}));
  EXPECT_EQ(for_others(host({kEth0}, {{"192.0.2.", "10.9.9.9"}}, on_lo)).front(), "10.9.9.9");
}

TEST(AddressForOthers, ThatAnInterfaceHasGivenItselfComesLater) {
  EXPECT_EQ(for_others(host({{"usb0", {"169.254.3.1"}}, kEth0, kDocker})),
            (Texts{"10.0.0.5", "169.254.3.1", "172.17.0.1", "127.0.0.1", "::1"}));
}

TEST(AddressForOthers, OfIpv6AloneIsFound) {
  const Interface six{"eth0", {"fe80::5", "fd00::5"}};
  EXPECT_EQ(for_others(host({six}, {}, {"::1"})), (Texts{"fd00::5", "::1"}));
  EXPECT_EQ(for_others(host({six, kDocker}, {{"2001:db8:", "fd00::5"}})).front(), "fd00::5");
}

TEST(AddressForOthers, IsALoopbackOneWhereThereIsNoOther) {
  EXPECT_EQ(for_others(host({})), (Texts{"127.0.0.1", "::1"}));
}

TEST(AddressForOthers, IsOneOfTheNamedInterfaces) {
  const OwnAddresses own = host({kDocker, kEth0, kEth1}, kByEth0);
  EXPECT_EQ(for_others(own, {}, "eth"), (Texts{"10.0.0.5", "10.1.0.5"}));
  EXPECT_EQ(for_others(own, {}, "=eth1"), (Texts{"10.1.0.5"}));
  EXPECT_EQ(for_others(own, {}, "eth1,docker"), (Texts{"10.1.0.5", "172.17.0.1"}));
  EXPECT_EQ(for_others(own, {}, "lo"), (Texts{"127.0.0.1", "::1"}));
}

TEST(AddressForOthers, OfExcludedInterfacesIsNoneAndLoopbackStillComesLast) {
  const OwnAddresses own = host({kDocker, kEth0, kEth1}, kByEth0);
  EXPECT_EQ(for_others(own, {}, "^docker"), (Texts{"10.0.0.5", "10.1.0.5", "127.0.0.1", "::1"}));
  EXPECT_EQ(for_others(own, {}, "^docker,eth0").front(), "10.1.0.5");
  EXPECT_EQ(for_others(own, {}, "^eth").front(), "172.17.0.1");
  EXPECT_EQ(for_others(host({kDocker, kEth0}), {}, "^docker").front(), "10.0.0.5");
}

TEST(AddressForOthers, OfAnInterfaceThatIsNotThereIsRefusedWithThoseThatAre) {
  for (const char* const names : {"wlan", "=eth", "^lo,eth,docker"}) {
    const auto [code, text] = refusal([&] {
      for_others(host({kDocker, kEth0}, kByEth0), {}, names);
    });
    EXPECT_EQ(code, ErrorCode::invalid_argument);
    EXPECT_CONTAINS(text, names);
    EXPECT_CONTAINS(text, "there are: docker0, eth0, lo");
  }
}

// --- somebody has been reached ---

TEST(AddressForOthers, IsTheOneByWhichSomebodyHasBeenReached) {
  auto routes = kByEth0;
  routes["10.1.0."] = "10.1.0.5";
  const OwnAddresses own = host({kDocker, kEth0, kEth1}, routes);
  EXPECT_EQ(for_others(own, {"10.1.0.9"}),
            (Texts{"10.1.0.5", "10.0.0.5", "172.17.0.1", "127.0.0.1", "::1"}));
  EXPECT_EQ(for_others(own, {"10.1.0.9", "10.0.0.9"}).front(), "10.1.0.5");
  // Of a host that no route leads to, nothing follows.
  EXPECT_EQ(for_others(own, {"198.51.100.1"}).front(), "10.0.0.5");
}

TEST(AddressForOthers, IsThisHostsOwnIfOthersAreToldToReachThat) {
  const OwnAddresses own = host({kDocker, kEth0, kEth1}, kByEth0);
  EXPECT_EQ(for_others(own, {"10.1.0.5"}).front(), "10.1.0.5");
  EXPECT_EQ(for_others(host({kDocker, kEth0}), {"172.17.0.1"}).front(), "172.17.0.1");
}

TEST(AddressForOthers, IsNoBridgesWhereANameStandsForAllAddressesOfTheHost) {
  const OwnAddresses own = host({kDocker, {"eth0", {"fe80::5", "10.0.0.5", "fd00::5"}}});
  EXPECT_EQ(for_others(own, {"127.0.1.1", "172.17.0.1", "fe80::5", "fd00::5"}),
            (Texts{"fd00::5", "172.17.0.1", "fe80::5", "10.0.0.5", "127.0.0.1", "::1"}));
}

TEST(AddressForOthers, OfALinkIsOneWhereSomebodyHasBeenReachedOverThatLink) {
  const OwnAddresses own =
      host({{"eth0", {"fe80::5", "10.0.0.5"}}}, {{"fe80::9", "fe80::5"}, {"10.", "10.0.0.5"}});
  EXPECT_EQ(for_others(own, {"fe80::9"}).front(), "fe80::5");
  EXPECT_EQ(for_others(own, {"10.0.0.9"}).front(), "10.0.0.5");
}

TEST(AddressForOthers, DoesNotFollowFromALoopbackOne) {
  for (const char* const loopback : {"127.0.0.1", "127.0.1.1", "::1"}) {
    EXPECT_EQ(for_others(host({kDocker, kEth0}), {loopback}).front(), "10.0.0.5") << loopback;
  }
}

TEST(AddressForOthers, IsOfTheNamedInterfacesWhateverWasReached) {
  auto routes = kByEth0;
  routes["10.1.0."] = "10.1.0.5";
  const OwnAddresses own = host({kDocker, kEth0, kEth1}, routes);
  EXPECT_EQ(for_others(own, {"10.1.0.9"}, "eth0"), (Texts{"10.0.0.5"}));
  EXPECT_EQ(for_others(own, {"10.1.0.9"}, "eth"), (Texts{"10.1.0.5", "10.0.0.5"}));
}

// --- a peer is known ---

TEST(OwnAddress, IsTheSourceOfWhatGoesToThePeer) {
  auto routes = kByEth0;
  routes["10.1.0."] = "10.1.0.5";
  const OwnAddresses own = host({kDocker, kEth0, kEth1}, routes);
  EXPECT_EQ(towards(own, "10.1.0.9"), "10.1.0.5");
  EXPECT_EQ(towards(own, "127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(towards(own, "10.1.0.5"), "10.1.0.5");
  const auto [code, text] = refusal([&] { towards(own, "fd00::9"); });
  EXPECT_EQ(code, ErrorCode::system);
  EXPECT_CONTAINS(text, "there is no way from this host to [fd00::9]:4711: Network is unreach");
}

TEST(OwnAddress, StaysTheRoutesWhereTheNamesAllowIt) {
  auto routes = kByEth0;
  routes["10.1.0."] = "10.1.0.5";
  const OwnAddresses own = host({kDocker, kEth0, kEth1}, routes);
  for (const char* const names : {"^docker", "^docker,virbr", "eth", "^lo"}) {
    EXPECT_EQ(towards(own, "10.0.0.9", names), "10.0.0.5") << names;
    EXPECT_EQ(towards(own, "10.1.0.9", names), "10.1.0.5") << names;
    EXPECT_EQ(towards(own, "10.0.0.5", names), "10.0.0.5") << names;  // TUTTI_ADDRESS
  }
  EXPECT_EQ(towards(own, "127.0.0.1", "^docker"), "127.0.0.1");
}

TEST(OwnAddress, IsTheBestOfTheNamedWhereTheyExcludeTheRoutes) {
  const OwnAddresses own = host({kDocker, {"eth0", {"10.0.0.5", "fd00::5"}}, kEth1}, kByEth0);
  EXPECT_EQ(towards(own, "10.0.0.9", "^eth0"), "10.1.0.5");
  EXPECT_EQ(towards(own, "10.0.0.9", "eth1"), "10.1.0.5");
  EXPECT_EQ(towards(own, "10.0.0.9", "^eth"), "172.17.0.1");
  EXPECT_EQ(towards(own, "127.0.0.1", "eth0"), "10.0.0.5");
  EXPECT_EQ(towards(own, "fd00::9", "eth"), "fd00::5");  // of the peer's family
  EXPECT_EQ(towards(own, "fd00::9", "eth1"), "10.1.0.5");
  EXPECT_EQ(refusal([&] { towards(own, "10.0.0.9", "wlan"); }).first, ErrorCode::invalid_argument);
}

// --- ranks of this host alone ---

TEST(AddressForThisHost, IsALoopbackOneIfThereIsOne) {
  const auto chosen = [](const OwnAddresses& own) { return host_text(own.for_this_host()); };
  EXPECT_EQ(chosen(host({kEth0}, kByEth0)), "127.0.0.1");
  EXPECT_EQ(chosen(host({kEth0}, kByEth0, {"::1"})), "::1");
  // What goes to 127.0.0.1 may take the default route then.
  const std::map<std::string, std::string> all_by_eth0{{"1", "10.0.0.5"}};
  EXPECT_EQ(chosen(host({kEth0}, all_by_eth0, {"::1"})), "::1");
  EXPECT_EQ(chosen(host({kDocker, kEth0}, all_by_eth0, {})), "10.0.0.5");
  EXPECT_EQ(refusal([&] { host({}, {}, {}).for_this_host(); }).first, ErrorCode::system);
}

// --- this host ---

TEST(OwnAddresses, OfThisHostAreWhereTheKernelSays) {
  bool has_loopback = false;
  for (const NetworkInterface& i : network_interfaces()) {
    EXPECT_EQ(interface_of(i.address), i.name);
    EXPECT_EQ(host_text(own_address(i.address, "")), host_text(i.address));
    has_loopback = has_loopback || (i.loopback && i.inside);
  }
  EXPECT_TRUE(has_loopback);
  EXPECT_EQ(interface_of(*parse_address("192.0.2.77", 0)), "");
  EXPECT_FALSE(is_loopback_down());
}

TEST(Addresses, OfALinkHaveTheirInterface) {
  const auto address = parse_address("fe80::5%lo", 80);
  ASSERT_TRUE(address);
  EXPECT_TRUE(is_link_local(*address));
  EXPECT_EQ(host_text(*address), "fe80::5%lo");
  EXPECT_EQ(to_string(*address), "[fe80::5%lo]:80");
  EXPECT_EQ(host_text(*parse_address("fe80::5", 80)), "fe80::5");
  for (const char* const nonsense :
       {"fe80::5%", "fe80::5%nosuch0", "fd00::5%lo", "10.0.0.5%lo", "%lo", "fe80::5%lo%lo"}) {
    EXPECT_FALSE(parse_address(nonsense, 0)) << nonsense;
  }
}

}  // namespace
}  // namespace tutti
