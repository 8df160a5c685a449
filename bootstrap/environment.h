// Rank, size and rendezvous of this process, from the variables of the launcher that started it.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "bootstrap/unique_id.h"

namespace tutti {

struct Placement {
  int rank = 0;
  int size = 1;
  std::string launcher;  // "tutti run", "torchrun", "Open MPI", "MPICH", "Slurm", or "none"
};

/// From the environment alone. Contradictory or malformed variables throw Error(invalid_usage),
/// which names the variable and its value.
Placement placement_from_environment();

/// The ways to tell ranks on several hosts where they meet, for messages.
extern const std::array<std::string_view, 4> kWaysAcrossHosts;

/// The id that all ranks of `placement` share. `tutti run` passes it (TUTTI_UNIQUE_ID); under the
/// other launchers rank 0 makes it. Rank 0 hands it to the local ranks of the same user over an
/// abstract unix socket named after the job (both ends check the uid). If ranks are on several
/// hosts, it uses TUTTI_ID_FILE.
struct SharedId {
  UniqueId id;
  std::string file;  // the file that rank 0 has left for the others; empty: none
};
SharedId unique_id_from_environment(const Placement& placement, std::chrono::nanoseconds timeout);
/// When all have met: rank 0 removes the file that it has left for the others.
void forget(const SharedId& id);

}  // namespace tutti
