#include "transport/network/wire_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/settings.h"

namespace tutti {
namespace {

std::uint32_t bit(WireKind kind) { return static_cast<std::uint32_t>(kind); }

std::function<std::shared_ptr<EndpointMaker>()>& tcp_replacement() {
  static std::function<std::shared_ptr<EndpointMaker>()> make;
  return make;
}

/// What is particular to a kind of wire. The endpoints of a kind come about in one of two places.
struct KindRow {
  WireKind kind;
  std::string_view name;
  bool by_default;  // where TUTTI_TRANSPORT is not set
  /// Why this host cannot use it; "": it can. May put endpoints into `wires.made`.
  std::string (*why_not)(UsableWires& wires, const NearestPorts& nearest);
  /// The endpoints, when they are used; null: why_not() has made them.
  std::shared_ptr<EndpointMaker> (*make)();
};

std::string why_no_tcp(UsableWires&, const NearestPorts&) { return ""; }

std::shared_ptr<EndpointMaker> make_tcp_or_replacement() {
  const auto& make = tcp_replacement();
  return make ? make() : make_tcp_endpoints();
}

std::string why_no_ucx_here(UsableWires&, const NearestPorts&) { return why_no_ucx(); }

std::string why_no_plugin(UsableWires& wires, const NearestPorts&) {
  try {
    wires.made[WireKind::plugin] = make_plugin_endpoints();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string why_no_verbs(UsableWires& wires, const NearestPorts& nearest) {
  const VerbsState state = verbs_state();
  if (state.why_not.empty()) {
    wires.made[WireKind::verbs] = make_verbs_endpoints(wires.offer, nearest);
  } else if (setting_text("TUTTI_TRANSPORT").empty() && !state.ports.empty()) {
    log().info("RDMA is not used between hosts: {}", state.why_not);
  }
  return state.why_not + (state.advice.empty() ? "" : ": " + state.advice);
}

/// Two ranks use the first that both can use.
constexpr std::array kKinds{
    KindRow{WireKind::verbs, "verbs", true, why_no_verbs, nullptr},
    KindRow{WireKind::plugin, "plugin", false, why_no_plugin, nullptr},
    KindRow{WireKind::ucx, "ucx", false, why_no_ucx_here, make_ucx_endpoints},
    KindRow{WireKind::tcp, "tcp", true, why_no_tcp, make_tcp_or_replacement},
};

const KindRow& row_of(WireKind kind) { return *std::ranges::find(kKinds, kind, &KindRow::kind); }

std::string names_of(std::uint32_t kinds) {
  std::string names;
  for (const KindRow& row : kKinds) {
    if ((kinds & bit(row.kind)) == 0) continue;
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return names.empty() ? "none" : names;
}

// --- Which ports reach each other ----------------------------------------------------------------

enum class Family : std::uint8_t { ipv4, link_local, global };

Family family_of(const RdmaPort& port) {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(kMapped.begin(), kMapped.end(), port.gid.begin())) return Family::ipv4;
  return port.gid[0] == 0xfe && (port.gid[1] & 0xc0) == 0x80 ? Family::link_local : Family::global;
}

/// As far as their addresses tell: whether there is a way, the switches and routers know alone.
bool reaches(const RdmaPort& a, const RdmaPort& b) {
  if (a.fabric != b.fabric || a.fabric == RdmaPort::none) return false;
  // The first 8 bytes are the subnet's.
  if (a.fabric == RdmaPort::infiniband) {
    return std::equal(a.gid.begin(), a.gid.begin() + 8, b.gid.begin());
  }
  return family_of(a) == family_of(b);
}

/// Of the addresses: the more, the nearer, most often.
int common_bits(const RdmaPort& a, const RdmaPort& b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.gid.size(); ++i) {
    const auto differ = static_cast<std::uint8_t>(a.gid[i] ^ b.gid[i]);
    bits += std::countl_zero(differ);
    if (differ != 0) break;
  }
  return bits;
}

/// The ports of two ranks for each other. `offer` is of rank `rank`, the lower one. It takes its
/// near ports in turn, and the other rank answers with its port that is nearest to that one.
std::optional<std::pair<int, int>> pair_of(const WireOffer& offer, int rank,
                                           const WireOffer& other) {
  const RdmaPorts &first = offer.ports, &second = other.ports;
  std::vector<std::size_t> good;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto reached = [&](const RdmaPort& p) { return reaches(first[i], p); };
    if (std::ranges::any_of(second, reached)) good.push_back(i);
  }
  if (good.empty()) return std::nullopt;
  const auto is_near = [](const WireOffer& o, std::size_t p) { return (o.near >> p & 1U) != 0; };
  if (std::ranges::any_of(good, [&](std::size_t p) { return is_near(offer, p); })) {
    std::erase_if(good, [&](std::size_t p) { return !is_near(offer, p); });
  }
  const std::size_t a = good[static_cast<std::size_t>(rank) % good.size()];
  std::tuple<int, int, int> best{-1, 0, 0};
  std::size_t b = 0;
  for (std::size_t j = 0; j < second.size(); ++j) {
    if (!reaches(first[a], second[j])) continue;
    const std::tuple near{common_bits(first[a], second[j]), a == j ? 1 : 0,
                          is_near(other, j) ? 1 : 0};
    if (near > best) {
      best = near;
      b = j;
    }
  }
  return std::pair{static_cast<int>(a), static_cast<int>(b)};
}

/// This rank's port; -1: there is none that reaches one of the peer's.
int port_to(const WireOffer& mine, int rank, const WireOffer& theirs, int peer) {
  if ((mine.kinds & theirs.kinds & bit(WireKind::verbs)) == 0) return -1;
  const auto pair = rank < peer ? pair_of(mine, rank, theirs) : pair_of(theirs, peer, mine);
  if (!pair) return -1;
  return rank < peer ? pair->first : pair->second;
}

}  // namespace

std::string_view name_of(WireKind kind) { return row_of(kind).name; }

WireKind wire_named(std::string_view name) {
  const auto row = std::ranges::find(kKinds, name, &KindRow::name);
  if (row != kKinds.end()) return row->kind;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("TUTTI_TRANSPORT={}: it can be {}, or empty", name, names_of(~0U)));
}

UsableWires usable_wires(const NearestPorts& nearest) {
  const std::string asked = setting_text("TUTTI_TRANSPORT");
  UsableWires wires;
  if (asked.empty()) {
    for (const KindRow& row : kKinds) {
      if (row.by_default && row.why_not(wires, nearest).empty()) wires.offer.kinds |= bit(row.kind);
    }
    return wires;
  }
  const WireKind kind = wire_named(asked);
  const std::string why = row_of(kind).why_not(wires, nearest);
  if (why.empty()) {
    wires.offer.kinds = bit(kind);
  } else {
    wires.offer.refused = bit(kind);
    wires.why_refused = fmt::format("TUTTI_TRANSPORT={}: {}", asked, why);
  }
  return wires;
}

std::shared_ptr<EndpointMaker> make_endpoints(WireKind kind) {
  if (const auto make = row_of(kind).make) return make();
  throw Error(ErrorCode::internal, fmt::format("usable_wires() makes those of {}", name_of(kind)));
}

void replace_tcp_endpoints(std::function<std::shared_ptr<EndpointMaker>()> make) {
  tcp_replacement() = std::move(make);
}

void check_offer(const WireOffer& offer, int rank) {
  if (offer.refused == 0) return;
  throw Error(ErrorCode::system,
              fmt::format("rank {} cannot use {} between hosts, as TUTTI_TRANSPORT asks; its own "
                          "error says why",
                          rank, names_of(offer.refused)),
              rank);
}

WireRoute choose_wire(const WireOffer& mine, int rank, const WireOffer& theirs, int peer) {
  const std::uint32_t both = mine.kinds & theirs.kinds;
  const int port = port_to(mine, rank, theirs, peer);
  for (const KindRow& row : kKinds) {
    if ((both & bit(row.kind)) == 0) continue;
    if (row.kind != WireKind::verbs) return {row.kind, -1};
    if (port >= 0) return {row.kind, port};
  }
  if ((both & bit(WireKind::verbs)) != 0) {
    throw Error(
        ErrorCode::mismatch,
        fmt::format(
            "no RDMA port of this rank's host is on a network with one of rank {}'s (`tutti "
            "doctor` shows a host's); TUTTI_VERBS_DEVICES and TUTTI_VERBS_GID_INDEX choose "
            "others, TUTTI_TRANSPORT=tcp does without",
            peer),
        peer);
  }
  throw Error(ErrorCode::mismatch,
              fmt::format("this rank can reach other hosts by {} only, rank {} by {}: "
                          "TUTTI_TRANSPORT has to be the same on all ranks",
                          names_of(mine.kinds), peer, names_of(theirs.kinds)),
              peer);
}

}  // namespace tutti
