// A network between equal hosts, described in a few words: "8x400G roce leaf=32
// oversubscription=2". Predictions for clusters read it (collectives/cluster); docs/topology.md
// lists the words.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti::topology {

/// A kind of network: the time that it adds to a message's way, and the part of the ports' rate
/// that data get.
struct NetworkKind {
  std::string_view name;
  double latency = 0;     // us on top of InfiniBand's, for a message
  double efficiency = 0;  // of the rate
  std::string_view source;
};
std::span<const NetworkKind> network_kinds();

struct Network {
  std::string kind = "ib";
  double latency = 0;  // us, as NetworkKind's
  double efficiency = 0;
  int ports = 0;                // of a host; 0: as in the topology, or one for each GPU
  double rate = 0;              // Gbit/s of a port; 0: as in the topology
  int leaf = 0;                 // hosts on a leaf switch; 0: all
  double oversubscription = 1;  // of the leaves' way up
  bool sums = false;            // its switches reduce (SHARP)
};

/// Networks by the names of clouds' machines: "p5", "a3mega", "ndv4".
struct NetworkName {
  std::string_view name;
  std::string_view words;  // for parse_network()
};
std::span<const NetworkName> network_names();

/// Reads words, separated by blanks or commas. Throws Error(invalid_argument), which names the
/// wrong word and the possible ones.
Network parse_network(std::string_view text);

/// "roce.latency=9", "efa.efficiency=0.8": sets a value of a kind, for all networks of that kind.
/// Throws Error(invalid_argument) as above.
void override_kind(Network& network, std::string_view text);

}  // namespace tutti::topology
