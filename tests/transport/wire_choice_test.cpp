// Which wire two ranks choose: both ends, each from its own side, must come to the same, whatever
// ports their hosts have; they get what TUTTI_TRANSPORT asks for, or an error that says what to do.
#include "transport/network/wire_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

constexpr auto kTcp = static_cast<std::uint32_t>(WireKind::tcp);
constexpr auto kVerbs = static_cast<std::uint32_t>(WireKind::verbs);
constexpr auto kUcx = static_cast<std::uint32_t>(WireKind::ucx);

WireOffer offer(std::uint32_t kinds, const std::vector<RdmaPort>& ports = {}) {
  WireOffer o;
  o.kinds = kinds;
  std::copy(ports.begin(), ports.end(), o.ports.begin());
  return o;
}

RdmaPort ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d,
              RdmaPort::Fabric fabric = RdmaPort::roce_v2) {
  return {fabric, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
}
RdmaPort ipv6(std::uint8_t first, std::uint8_t second, std::uint8_t last) {
  RdmaPort port{RdmaPort::roce_v2, {}};
  port.gid[0] = first;
  port.gid[1] = second;
  port.gid[15] = last;
  return port;
}
RdmaPort infiniband(std::uint8_t subnet, std::uint8_t number) {
  RdmaPort port{RdmaPort::infiniband, {}};
  port.gid[7] = subnet;
  port.gid[15] = number;
  return port;
}

/// The ports of the two ends; -1 both: they take another wire.
struct Ends {
  WireKind kind;
  int mine, theirs;
  friend bool operator==(const Ends&, const Ends&) = default;
};
Ends choose(const WireOffer& mine, int rank, const WireOffer& theirs, int peer) {
  const WireRoute here = choose_wire(mine, rank, theirs, peer);
  const WireRoute there = choose_wire(theirs, peer, mine, rank);
  EXPECT_EQ(here.kind, there.kind);
  return {here.kind, here.port, there.port};
}

TEST(WireChoice, TakesTheBestThatBothCan) {
  const auto rdma = offer(kTcp | kVerbs, {ipv4(10, 0, 0, 1)});
  const auto rdma_too = offer(kTcp | kVerbs, {ipv4(10, 0, 0, 2)});
  EXPECT_EQ(choose(offer(kTcp), 0, offer(kTcp), 1), (Ends{WireKind::tcp, -1, -1}));
  EXPECT_EQ(choose(rdma, 0, rdma_too, 1), (Ends{WireKind::verbs, 0, 0}));
  EXPECT_EQ(choose(rdma, 0, offer(kTcp), 1), (Ends{WireKind::tcp, -1, -1}));
  EXPECT_EQ(choose(offer(kTcp), 0, rdma, 1), (Ends{WireKind::tcp, -1, -1}));
  EXPECT_EQ(choose(offer(kUcx), 3, offer(kUcx), 2), (Ends{WireKind::ucx, -1, -1}));
  EXPECT_EQ(choose(offer(kVerbs, {ipv4(10, 0, 0, 1)}), 0, rdma_too, 1),
            (Ends{WireKind::verbs, 0, 0}));
  // That it could use RDMA says nothing without a port, and a port nothing without RDMA.
  EXPECT_EQ(choose(offer(kTcp | kVerbs), 0, rdma, 1), (Ends{WireKind::tcp, -1, -1}));
  EXPECT_EQ(choose(offer(kTcp, {ipv4(10, 0, 0, 1)}), 0, rdma_too, 1),
            (Ends{WireKind::tcp, -1, -1}));
}

TEST(WireChoice, PortsMustBeOfOneNetwork) {
  const auto with = [](const RdmaPort& port) { return offer(kTcp | kVerbs, {port}); };
  const auto meet = [&](const RdmaPort& a, const RdmaPort& b) {
    return choose(with(a), 0, with(b), 1).kind == WireKind::verbs;
  };
  EXPECT_TRUE(meet(infiniband(1, 5), infiniband(1, 6)));
  EXPECT_FALSE(meet(infiniband(1, 5), infiniband(2, 5)));
  EXPECT_FALSE(meet(infiniband(1, 5), ipv4(10, 0, 0, 1)));
  EXPECT_TRUE(meet(ipv4(10, 0, 0, 1), ipv4(192, 168, 7, 1)));  // routers may lead there
  EXPECT_FALSE(meet(ipv4(10, 0, 0, 1), ipv4(10, 0, 0, 2, RdmaPort::roce_v1)));
  EXPECT_FALSE(meet(ipv4(10, 0, 0, 1), ipv6(0x20, 0x01, 2)));
  EXPECT_TRUE(meet(ipv6(0x20, 0x01, 1), ipv6(0x20, 0x01, 2)));
  EXPECT_TRUE(meet(ipv6(0xfe, 0x80, 1), ipv6(0xfe, 0x80, 2)));
  EXPECT_FALSE(meet(ipv6(0xfe, 0x80, 1), ipv6(0x20, 0x01, 2)));
}

TEST(WireChoice, RanksTakeTheirHostsPortsInTurnAndTheNearestOfTheOthers) {
  const auto host = [](std::uint8_t number) {
    return offer(kTcp | kVerbs, {ipv4(10, 0, 1, number), ipv4(10, 0, 2, number)});
  };
  EXPECT_EQ(choose(host(1), 0, host(2), 4), (Ends{WireKind::verbs, 0, 0}));
  EXPECT_EQ(choose(host(1), 1, host(2), 4), (Ends{WireKind::verbs, 1, 1}));
  EXPECT_EQ(choose(host(1), 2, host(2), 4), (Ends{WireKind::verbs, 0, 0}));
  // The lower number decides, whichever side asks.
  EXPECT_EQ(choose(host(2), 5, host(1), 1), (Ends{WireKind::verbs, 1, 1}));
  // Ports that reach none of the other's are passed over.
  const auto mixed = offer(kVerbs, {infiniband(1, 1), ipv4(10, 0, 2, 9), infiniband(3, 1)});
  EXPECT_EQ(choose(mixed, 0, host(2), 4), (Ends{WireKind::verbs, 1, 1}));
  EXPECT_EQ(choose(mixed, 2, host(2), 4), (Ends{WireKind::verbs, 1, 1}));
}

/// The two ends must have ports that reach each other: what one of them writes to, the other has.
TEST(WireChoice, BothEndsAgreeWhateverTheirPorts) {
  std::mt19937 random(7);
  const auto any_port = [&]() -> RdmaPort {
    const auto small = [&] { return static_cast<std::uint8_t>(random() % 3); };
    switch (random() % 5) {
      case 0:
        return {};
      case 1:
        return infiniband(small(), small());
      case 2:
        return ipv4(10, 0, small(), small(), RdmaPort::roce_v1);
      case 3:
        return ipv6(random() % 2 == 0 ? 0xfe : 0x20, random() % 2 == 0 ? 0x80 : 0x01, small());
      default:
        return ipv4(10, small(), small(), small());
    }
  };
  std::set<WireKind> chosen;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<RdmaPort> a(random() % (kMostRdmaPorts + 1)), b(random() % (kMostRdmaPorts + 1));
    std::ranges::generate(a, any_port);
    std::ranges::generate(b, any_port);
    const int rank = static_cast<int>(random() % 100),
              peer = rank + 1 + static_cast<int>(random() % 9);
    const auto mine = offer(kTcp | kVerbs, a), theirs = offer(kTcp | kVerbs, b);
    const Ends ends = choose(mine, rank, theirs, peer);
    chosen.insert(ends.kind);
    if (ends.kind != WireKind::verbs) continue;
    ASSERT_GE(ends.mine, 0);
    ASSERT_GE(ends.theirs, 0);
    const RdmaPort& here = mine.ports[static_cast<std::size_t>(ends.mine)];
    const RdmaPort& there = theirs.ports[static_cast<std::size_t>(ends.theirs)];
    EXPECT_EQ(here.fabric, there.fabric);
    EXPECT_NE(here.fabric, RdmaPort::none);
    // Alone with each other they would be chosen, too.
    EXPECT_EQ(choose(offer(kVerbs, {here}), rank, offer(kVerbs, {there}), peer).kind,
              WireKind::verbs);
  }
  EXPECT_EQ(chosen, (std::set{WireKind::tcp, WireKind::verbs}));
}

TEST(WireChoice, WhatCannotBeSaysWhoAndWhatToDo) {
  const Error different = error_of([] { choose_wire(offer(kUcx), 0, offer(kTcp), 5); });
  EXPECT_EQ(different.code(), ErrorCode::mismatch);
  EXPECT_EQ(different.rank(), 5);
  EXPECT_STREQ(different.what(),
               "this rank can reach other hosts by ucx only, rank 5 by tcp: TUTTI_TRANSPORT has to "
               "be the same on all ranks");
  const Error apart = error_of([] {
    choose_wire(offer(kVerbs, {infiniband(1, 1)}), 0, offer(kVerbs, {infiniband(2, 1)}), 3);
  });
  EXPECT_EQ(apart.code(), ErrorCode::mismatch);
  EXPECT_EQ(apart.rank(), 3);
  const std::string text = apart.what();
  for (const char* const part :
       {"rank 3", "tutti doctor", "TUTTI_VERBS_DEVICES", "TUTTI_TRANSPORT=tcp"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  WireOffer refused;
  refused.refused = kVerbs;
  const Error cannot = error_of([&] { check_offer(refused, 4); });
  EXPECT_EQ(cannot.code(), ErrorCode::system);
  EXPECT_EQ(cannot.rank(), 4);
  EXPECT_NE(std::string(cannot.what()).find("rank 4 cannot use verbs"), std::string::npos);
  EXPECT_NO_THROW(check_offer(offer(kTcp), 4));
}

TEST(WireChoice, WhatTheSettingAsksForIsAllThatIsOffered) {
  const auto asked_for = [](const char* transport) {
    const Environment environment{{{"TUTTI_TRANSPORT", transport}}};
    return usable_wires([](std::span<const std::string>) { return 0U; });
  };
  const UsableWires tcp = asked_for("tcp");
  EXPECT_EQ(tcp.offer.kinds, kTcp);
  EXPECT_EQ(tcp.offer.refused, 0U);
  EXPECT_TRUE(tcp.made.empty());
  EXPECT_NE(asked_for("").offer.kinds & kTcp, 0U);
  // Where it can be had: that alone. Where not: nothing, and why.
  for (const auto& [name, kind] : {std::pair{"ucx", kUcx}, std::pair{"verbs", kVerbs}}) {
    const UsableWires wires = asked_for(name);
    if (wires.offer.refused == 0) {
      EXPECT_EQ(wires.offer.kinds, kind);
      continue;
    }
    EXPECT_EQ(wires.offer.refused, kind);
    EXPECT_EQ(wires.offer.kinds, 0U);
    EXPECT_EQ(wires.why_refused.find(fmt::format("TUTTI_TRANSPORT={}: ", name)), 0U);
    EXPECT_GT(wires.why_refused.size(), 25U) << wires.why_refused;
  }
  const Error unknown = error_of([&] { asked_for("pigeon"); });
  EXPECT_EQ(unknown.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(
      std::string(unknown.what()).find("TUTTI_TRANSPORT=pigeon: it can be verbs, plugin, ucx, tcp"),
      0U);
}

}  // namespace
}  // namespace tutti::test
