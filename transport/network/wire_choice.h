// Which wire leads from one host to another. Every rank says what it can use (in its
// NetworkAddress, which all have from the start); two ranks use the best that both can. Both know
// the same and go by the same rule, so they cannot disagree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/network/endpoint.h"

namespace tutti {

/// What links to another host run over; a set of them is a sum.
enum class WireKind : std::uint32_t { tcp = 1, verbs = 2, ucx = 4, plugin = 8 };
std::string_view name_of(WireKind kind);
/// By its name. Throws Error(invalid_argument), which names all.
WireKind wire_named(std::string_view name);

/// A port of an RDMA device, as other hosts see it.
struct RdmaPort {
  enum Fabric : std::uint8_t { none = 0, infiniband = 1, roce_v1 = 2, roce_v2 = 3 };
  std::uint8_t fabric = none;
  std::array<std::uint8_t, 16> gid{};
};
inline constexpr std::size_t kMostRdmaPorts = 8;
using RdmaPorts = std::array<RdmaPort, kMostRdmaPorts>;

/// What a rank can use to reach other hosts; plain bytes.
struct WireOffer {
  std::uint32_t kinds = 0;
  std::uint32_t refused = 0;  // that TUTTI_TRANSPORT asks for, and that cannot be used here
  RdmaPorts ports{};
  std::uint32_t near = 0;  // those that are nearest to the rank: bit p is ports[p]; 0: all alike
};

/// The wire between two ranks.
struct WireRoute {
  WireKind kind = WireKind::tcp;
  int port = -1;  // verbs: which of this rank's
};

/// What this rank may use.
struct UsableWires {
  WireOffer offer;
  std::string why_refused;
  std::map<WireKind, std::shared_ptr<EndpointMaker>> made;  // of kinds that begin before they meet
};
/// Which of some ports, by name ("mlx5_0:2"), are nearest to a rank: bit p is the p-th; 0: all
/// alike.
using NearestPorts = std::function<std::uint32_t(std::span<const std::string>)>;
/// By TUTTI_TRANSPORT. Throws Error(invalid_argument) for what is no transport.
UsableWires usable_wires(const NearestPorts& nearest);
/// The endpoints of a kind that begins when it is used. Throws Error(system).
std::shared_ptr<EndpointMaker> make_endpoints(WireKind kind);
/// For tests: makes those of TCP from now on; null: they are TCP's again. Not while a communicator
/// is being made.
void replace_tcp_endpoints(std::function<std::shared_ptr<EndpointMaker>()> make);
/// Throws Error(system) where rank `rank`, of any host, cannot use what it was told to.
void check_offer(const WireOffer& offer, int rank);
/// What the ranks `rank`, which offers `mine`, and `peer` use. Throws Error(mismatch).
WireRoute choose_wire(const WireOffer& mine, int rank, const WireOffer& theirs, int peer);

std::shared_ptr<EndpointMaker> make_tcp_endpoints();

/// Why UCX cannot be used here; empty: it can.
std::string why_no_ucx();
std::shared_ptr<EndpointMaker> make_ucx_endpoints();
/// The UCX of this host, and whether it can do as TUTTI_UCX_TLS and TUTTI_UCX_NET_DEVICES say.
struct UcxState {
  std::string version;  // empty: there is none
  std::string why_not;  // empty: it can
};
UcxState ucx_state();

/// Of the network plugin that NCCL_NET_PLUGIN names (netplugin/plugin.h). Throws Error(system).
std::shared_ptr<EndpointMaker> make_plugin_endpoints();
/// The plugin of NCCL_NET_PLUGIN and its devices, for people. Throws Error(system).
std::string plugin_text();

/// The RDMA ports of this host, and whether verbs can use them.
struct VerbsState {
  struct Port {
    std::string text;
    bool usable = false;
  };
  std::vector<Port> ports;
  std::string why_not;  // empty: they can
  std::string advice;
};
/// Throws Error(invalid_argument) where TUTTI_VERBS_DEVICES names a device that is not there.
VerbsState verbs_state();
/// Of the ports that can be used, which it puts into `offer`.
std::shared_ptr<EndpointMaker> make_verbs_endpoints(WireOffer& offer, const NearestPorts& nearest);

}  // namespace tutti
