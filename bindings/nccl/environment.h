// The NCCL_ variables and ncclConfig_t, translated into Tutti's options.
#pragma once

#include <optional>
#include <string>

#include "bindings/nccl/nccl.h"
#include "bootstrap/unique_id.h"
#include "comm/communicator.h"

namespace tutti::nccl {

/// The fields of an ncclConfig_t that Tutti uses.
struct Config {
  bool blocking = true;
  std::string name;
  std::size_t most_blocks = 0;        // maxCTAs; 0: not said
  std::optional<int> rma_contexts{};  // numRmaCtx, numRmaSig
  std::optional<int> rma_signals{};
};

/// Reads `given` (may be null) as far as its size and version go; fields that it leaves open come
/// from `inherited`. The variables NCCL_COMM_BLOCKING and NCCL_MAX_CTAS win. Throws
/// Error(invalid_argument).
Config parse_config(const ncclConfig_t* given, const Config& inherited = {});

/// Tutti's options, with NCCL_ALGO, NCCL_PROTO and `config` if TUTTI_ALGORITHM,
/// TUTTI_CUDA_PROTOCOLS and TUTTI_CUDA_BLOCKS are not set, and with a long time to meet unless
/// TUTTI_RENDEZVOUS_TIMEOUT is set: programs of NCCL make the id long before all ranks are ready.
Options options_for(const Config& config);
/// The meeting place of the ranks, which may be on several hosts: at TUTTI_ADDRESS, or at the
/// address by which others reach this host, by the interfaces of NCCL_SOCKET_IFNAME unless
/// TUTTI_SOCKET_IFNAME is set.
MeetingPlace meeting_place_from_environment();

/// An NCCL unique id: from Tutti's, or, if NCCL_COMM_ID is set, for that name.
ncclUniqueId new_unique_id();
/// From Tutti's.
ncclUniqueId fresh_unique_id();
/// Tutti's id. With a name, rank 0 makes one and hands it to the others (collective).
UniqueId resolve_unique_id(const ncclUniqueId& id, int rank, int size, const Options& options);

}  // namespace tutti::nccl
