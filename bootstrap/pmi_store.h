// The store of launchers that speak PMI-1, the line protocol of MPICH's process managers: hydra
// (MPICH, Intel MPI) and `srun --mpi=pmi2`. A rank has a socket to the launcher (PMI_FD), or the
// place where it makes one (PMI_PORT). Lines of "key=value" go both ways; each request has one
// answer. Values reach the other hosts in a barrier.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/launcher_store.h"

namespace tutti {

/// Whether the launcher has left a way to it in the environment, and whether that is PMI_PORT.
bool has_pmi();
bool has_pmi_port();

/// The store. All of a process use one connection: the launcher takes a rank for broken that closes
/// it without good-bye, which the process says when it exits.
std::shared_ptr<LauncherStore> pmi_store();

/// Rank and size, which a launcher with PMI_PORT tells over the connection alone.
struct PmiPlace {
  int rank = 0;
  int size = 1;
};
/// Connects. Throws Error(system).
PmiPlace pmi_place();

/// The launcher's name for the world of this rank: that of processes which MPI_Comm_spawn() has
/// started differs from their parents'. Connects. Throws Error(system).
std::string pmi_space();

}  // namespace tutti
