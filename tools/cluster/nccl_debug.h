// What NCCL says of itself in a log (NCCL_DEBUG=INFO, with NCCL_DEBUG_SUBSYS for more): how many
// ranks on how many hosts, which network and ports, NVLink, GPUDirect, and which algorithm and
// protocol it takes. It knows, where file names and habits only guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"

namespace tutti {

struct NcclDebug {
  /// "AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE".
  struct Choice {
    std::int64_t bytes = 0;
    std::string algorithm, protocol;  // in small letters
  };

  bool any = false;  // there is a line of NCCL's
  int ranks = 0, hosts = 0;
  int clique = 0;                   // ranks of a domain of NVLink over several hosts (MNNVL)
  double nvlink = 0;                // GB/s of a way by NVLink, as its search counts it
  std::string network;              // a kind, as --network names it
  std::string address_kind;         // the kind that NCCL_IB_GID_INDEX fits
  std::vector<double> ports;        // Gbit/s of each; 0: not said
  bool sums = false;                // switches of the network reduce (SHARP)
  int direct = 0, staged = 0;       // channels between hosts, with GPUDirect RDMA and without
  int peer = 0, memory = 0;         // ... inside of a host: from GPU to GPU, and through its memory
  int channels = 0;                 // for collectives
  int listed_ports = 0;             // that NCCL_IB_HCA names; 0: it does not
  std::string algorithm, protocol;  // that NCCL is told to take, in small letters; "": its choice
  bool switches = true;             // may reduce: NCCL_NVLS_ENABLE is not 0
  std::optional<Collective> collective;  // that was called
  std::vector<Choice> choices;           // one for each size

  /// "ib 4x200G sharp"; "" where nothing is said of a network.
  std::string network_words() const;
};

/// Reads a line without a terminal's colours. False: it is none of NCCL's.
bool read_nccl_debug(std::string_view line, NcclDebug& debug);

}  // namespace tutti
