// The processes of a job's ranks on this host, whatever groups and sessions they have made of their
// own. Linux says which processes come from this one; those whose parents have died do too, as it
// adopts them (PR_SET_CHILD_SUBREAPER). Their environment says which rank's they are.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

/// The ranks of a job that one launcher or agent has started on this host.
struct RanksHere {
  std::string id;  // the job's unique id, as text
  int first = 0, count = 0;
};

struct RankProcess {
  pid_t pid = -1;
  int rank = -1;              // -1: its environment names none of these ranks, or cannot be read
  std::uint64_t started = 0;  // ticks after the system's start; not of processes_anywhere()
};

/// The living processes that come from this one, which adopts orphans. Where the kernel does not
/// tell them (without CONFIG_PROC_CHILDREN), those of all processes that name one of these ranks.
/// None where /proc is not that of this process's PID namespace.
std::vector<RankProcess> processes_from_here(const RanksHere& ranks);

/// Of all processes of this host those that name one of these ranks.
std::vector<RankProcess> processes_anywhere(const RanksHere& ranks);

}  // namespace tutti
