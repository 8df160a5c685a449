// Who am I? Rank, size and rendezvous from the variables of the launcher that started this process.
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

/// From the environment alone; contradictory or malformed variables throw Error(invalid_usage) that
/// names the variable and its value.
Placement placement_from_environment();

/// How ranks on several hosts can be told where they meet, for messages.
extern const std::array<std::string_view, 4> kWaysAcrossHosts;

/// The id that all ranks of `placement` share. `tutti run` passes it (TUTTI_UNIQUE_ID); under the
/// other launchers rank 0 makes it and hands it to the local ranks of the same user over an
/// abstract unix socket named after the job (uid checked on both ends), or, where ranks are on
/// several hosts, through TUTTI_ID_FILE.
struct SharedId {
  UniqueId id;
  std::string file;  // that rank 0 has left for the others; empty: none
};
SharedId unique_id_from_environment(const Placement& placement, std::chrono::nanoseconds timeout);
/// When all have met: rank 0 takes back what it has left for the others.
void forget(const SharedId& id);

}  // namespace tutti
