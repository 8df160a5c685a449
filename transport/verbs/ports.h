// The ports of RDMA devices that this host has, and what is to be known of them before one is
// opened: for the choice of a device, for the log, for the command. No header of libibverbs here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct VerbsPort {
  std::string device;  // "mlx5_0"
  int port = 1;
  bool ethernet = false;  // RoCE; else InfiniBand
  int roce = 0;           // its version
  int gid_index = -1;
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;  // InfiniBand
  int mtu = 0;            // bytes of a packet's payload
  double gigabits = 0;    // per second; 0: not known
  int numa_node = -1;     // -1: not known
  // Limits of the device.
  std::size_t most_requests = 0;     // of a queue
  std::size_t most_completions = 0;  // of a completion queue
  std::size_t most_bytes = 0;        // of a message
  /// Why it cannot be used ("its link is down"); empty: it can.
  std::string objection;
};

/// All ports of the devices that TUTTI_VERBS_DEVICES names (empty: of all devices), usable or not.
/// Throws Error(invalid_argument) where it names one that is not there.
std::vector<VerbsPort> verbs_ports();

/// One line: "mlx5_0 port 1: RoCE v2, 100 Gb/s, MTU 4096, GID 3 ::ffff:10.0.0.1, NUMA node 0".
std::string describe(const VerbsPort& port);

}  // namespace tutti
