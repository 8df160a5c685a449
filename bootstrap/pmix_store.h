// The store of launchers that speak PMIx: mpirun of Open MPI, `srun --mpi=pmix`. The protocol
// belongs to libpmix.so.2, which is loaded when it is needed. Values reach the other hosts in a
// fence of all ranks.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/launcher_store.h"

namespace tutti {

/// The store, one for all of a process, which says good-bye to the launcher when it exits.
std::shared_ptr<LauncherStore> pmix_store();

/// How many ranks the job has, and how many of them are on this host, where the launcher says so by
/// PMIx alone. Throws Error(system) or Error(timed_out).
struct PmixPlace {
  int size = 1, local_size = 1;
};
PmixPlace pmix_place();

/// Why libpmix cannot be used here; "": it can.
std::string why_no_pmix();

}  // namespace tutti
