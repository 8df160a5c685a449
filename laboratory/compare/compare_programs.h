// The programs that `tutti compare` starts (laboratory/peers, laboratory/limits): their places, and
// the missing ones with the reason.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tutti::compare {

/// What starts the ranks of a program. `hydra` is the launcher of MPICH and of Intel MPI.
enum class Launch : std::uint8_t { tutti_run, open_mpi, hydra, itself };

struct Program {
  std::string name;  // "tutti", "openmpi", ..., "limit"
  Launch launch;
  std::string launcher;              // of an MPI
  std::vector<std::string> command;  // the launcher, its arguments, the program
  std::string missing;               // why it cannot be run, and what to do; empty: it can
};

/// The peers that Tutti can be compared with.
std::vector<std::string> peer_names();

/// Tutti, the peers, the limit, in the order in which they take turns. `folder`: the folder of the
/// programs; empty: that of `tutti compare` itself. `windows`: Tutti's runs with --windows.
std::vector<Program> find_programs(std::filesystem::path folder,
                                   const std::vector<std::string>& peers, int ranks, bool windows);

}  // namespace tutti::compare
