// Rank, size and rendezvous of this process, from the variables of the launcher that started it.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "bootstrap/unique_id.h"

namespace tutti {

class LauncherStore;

struct Placement {
  int rank = 0;
  int size = 1;
  // "tutti run", "torchrun", "Open MPI", "MPICH", "Slurm", "PMIx" (prterun, for one), or "none"
  std::string launcher;
};

/// By the innermost launcher that has started this process (launcher.h): from the environment; with
/// PMI_PORT, or PMIX_RANK alone, from the launcher, too. Contradictory or malformed variables throw
/// Error(invalid_usage), which names the variable and its value; so do two launchers of which
/// nothing shows which is the inner one.
Placement placement_from_environment();

/// The ways by which ranks on several hosts find each other, for messages; in their order.
extern const std::array<std::string_view, 8> kWaysAcrossHosts;
/// The one that this process would take; "": none is there.
std::string way_across_hosts(const Placement& placement);

/// The id that all ranks of `placement` share. `tutti run` passes it (TUTTI_UNIQUE_ID); under the
/// other launchers rank 0 makes it. Rank 0 hands it to the local ranks of the same user over an
/// abstract unix socket named after the job (both ends check the uid). If ranks are on several
/// hosts, it goes through the file that TUTTI_ID_FILE names, or else through the launcher's store.
struct SharedId {
  UniqueId id;
  // What rank 0 has left for the others: a file, or a key of a store. It may serve the store
  // itself, as long as this object lives.
  std::string file{};
  std::shared_ptr<LauncherStore> store{};
  std::string key{};
};
SharedId unique_id_from_environment(const Placement& placement, std::chrono::nanoseconds timeout);
/// When all have met: rank 0 removes what it has left for the others.
void forget(const SharedId& id);

}  // namespace tutti
