// See launcher.h. The variables are those that each launcher documents or was seen to set.
#include "bootstrap/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "bootstrap/pmi_store.h"
#include "bootstrap/pmix_store.h"
#include "bootstrap/process.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "core/number.h"
#include "core/proc.h"

namespace tutti {

constexpr Launcher kTuttiRun{"tutti run", "TUTTI_RANK", "TUTTI_SIZE", Store::none,
                             nullptr,     nullptr,      nullptr,      {"TUTTI_UNIQUE_ID"}};
constexpr Launcher kPlainTorchrun{"torchrun",   "RANK",
                                  "WORLD_SIZE", Store::torch,
                                  nullptr,      "LOCAL_WORLD_SIZE",
                                  nullptr,      {"MASTER_ADDR", "MASTER_PORT"}};
namespace {

// Where two rows say the same, the first one counts: `srun --mpi=pmi2` speaks PMI. A Slurm batch
// script has a rank and a size too, but it is one process: only a step (srun) has more.
constexpr std::array kLaunchers{
    kTuttiRun,
    Launcher{"torchrun",
             "RANK",
             "WORLD_SIZE",
             Store::torch,
             "TORCHELASTIC_RUN_ID",
             "LOCAL_WORLD_SIZE",
             nullptr,
             {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT"}},
    Launcher{"Open MPI",
             "OMPI_COMM_WORLD_RANK",
             "OMPI_COMM_WORLD_SIZE",
             Store::pmix,
             nullptr,
             "OMPI_COMM_WORLD_LOCAL_SIZE",
             nullptr,
             {"OMPI_FILE_LOCATION"}},
    // And Intel MPI, and Slurm with --mpi=pmi2.
    Launcher{"MPICH",
             "PMI_RANK",
             "PMI_SIZE",
             Store::pmi,
             nullptr,
             "MPI_LOCALNRANKS",
             "SLURM_STEP_NUM_NODES",
             {"PMI_FD", "PMI_PORT", "PMI_ID"}},
    Launcher{"Slurm",
             "SLURM_PROCID",
             "SLURM_STEP_NUM_TASKS",
             Store::pmix,
             "SLURM_STEP_ID",
             nullptr,
             "SLURM_STEP_NUM_NODES",
             {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    // Older versions of Slurm, or a user who has set only this.
    Launcher{"Slurm",
             "SLURM_PROCID",
             "SLURM_NTASKS",
             Store::pmix,
             "SLURM_STEP_ID",
             nullptr,
             "SLURM_NNODES",
             {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    // prterun, and others that speak PMIx and set no further variables: the store says the size.
    Launcher{
        "PMIx", "PMIX_RANK", nullptr, Store::pmix, nullptr, nullptr, nullptr, {"PMIX_NAMESPACE"}},
};

/// Whether its variables are here. Slurm's own PMIx has a row without this one, and a job step
/// without PMIx has the variables of the step around it.
bool is_here(const Launcher& launcher) {
  if (launcher.sign != nullptr && !variable(launcher.sign)) return false;
  if (launcher.size == nullptr) {
    const auto space = variable("PMIX_NAMESPACE");
    return variable(launcher.rank) && space && !space->starts_with("slurm.");
  }
  return variable(launcher.rank) || variable(launcher.size) ||
         (launcher.store == Store::pmi && has_pmi_port());
}

/// The variables by which it tells a process its place and its launch.
std::vector<const char*> names_of(const Launcher& launcher) {
  std::vector<const char*> names(launcher.launch.begin(), launcher.launch.end());
  names.insert(names.end(), {launcher.rank, launcher.size});
  std::erase(names, nullptr);
  return names;
}

bool has_all(const Entries& environment, const Entries& entries) {
  return std::ranges::includes(environment, entries);
}

/// Whether a process above this one has been started by `outer`, but not by `inner`.
bool is_inside(const Launcher& inner, const Launcher& outer) {
  return std::ranges::any_of(ancestors_of(own_proc_id()), [&](pid_t pid) {
    const Entries environment = environment_of(pid);
    return has_all(environment, told_by(outer)) && !has_all(environment, told_by(inner));
  });
}

/// Whether two launchers give this process one place, as those do of which one calls the other.
bool agree(const Launcher& a, const Launcher& b) {
  const auto rank = variable(a.rank), size = variable(a.size), other_size = variable(b.size);
  return rank && rank == variable(b.rank) && (!size || !other_size || size == other_size);
}

/// "PMI_RANK is 1, PMI_SIZE is 2", and the names alone.
std::vector<std::string> names_of_place(const Launcher& launcher) {
  std::vector<std::string> names;
  for (const char* const name : {launcher.rank, launcher.size}) {
    if (variable(name)) names.emplace_back(name);
  }
  if (names.empty()) names.emplace_back("PMI_PORT");
  return names;
}
std::string place_said(const Launcher& launcher) {
  std::vector<std::string> said;
  for (const std::string& name : names_of_place(launcher))
    said.push_back(fmt::format("{} is {}", name, *variable(name.c_str())));
  return fmt::format("{} ({})", launcher.name, fmt::join(said, ", "));
}

const Launcher& inner_of(const Launcher& first, const Launcher& second) {
  const bool second_inside = is_inside(second, first), first_inside = is_inside(first, second);
  if (second_inside != first_inside) return second_inside ? second : first;
  if (agree(first, second)) return first;
  std::string unset;
  for (const std::string& name : names_of_place(first)) unset += fmt::format(" -u {}", name);
  throw Error(
      ErrorCode::invalid_usage,
      fmt::format("{} and {} have both started this process, it seems, and nothing shows which of "
                  "them was started by the other: unset the variables of the one that is not "
                  "meant, as `env{} PROGRAM` does for {}",
                  place_said(first), place_said(second), unset, first.name));
}

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* value = name == nullptr ? nullptr : std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int> integer_variable(const char* name) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  const auto number = parse_number<int>(*text);
  if (number) return number;
  throw Error(ErrorCode::invalid_usage, fmt::format("{} is '{}', not a whole number", name, *text));
}

std::optional<Placement> placement_from(const Launcher& launcher) {
  if (launcher.sign != nullptr && !variable(launcher.sign)) return std::nullopt;
  auto rank = integer_variable(launcher.rank);
  auto size = integer_variable(launcher.size);
  if (!rank && !size && launcher.store == Store::pmi && has_pmi_port()) {
    const PmiPlace place = pmi_place();
    rank = place.rank;
    size = place.size;
  }
  if (!rank && !size) return std::nullopt;
  if (rank && launcher.size == nullptr) size = pmix_place().size;
  if (!rank || !size) {
    const char* present = rank ? launcher.rank : launcher.size;
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("{} is {}, but {} is not set: {} sets both; set both, or none", present,
                    rank ? *rank : *size, rank ? launcher.size : launcher.rank, launcher.name));
  }
  if (*size < 1 || *size > protocol::kMaxRanks || *rank < 0 || *rank >= *size) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("{} is {} and {} is {}: ranks count from 0 to size - 1 (at most {} "
                            "ranks)",
                            launcher.rank, *rank,
                            launcher.size == nullptr ? "PMIx's job size" : launcher.size, *size,
                            protocol::kMaxRanks));
  }
  return Placement{*rank, *size, launcher.name};
}

std::vector<const Launcher*> launchers_here() {
  std::vector<const Launcher*> here;
  for (const Launcher& launcher : kLaunchers) {
    // Two rows for one launcher: the second is for when the first one's size is not set.
    const bool has_other_row =
        launcher.size != nullptr && launcher.size == std::string_view("SLURM_STEP_NUM_TASKS");
    if (has_other_row && !variable(launcher.size)) continue;
    if (!here.empty() && here.back()->name == std::string_view(launcher.name)) continue;
    if (is_here(launcher)) here.push_back(&launcher);
  }
  return here;
}

const Launcher* find_launcher() {
  const Launcher* innermost = nullptr;
  for (const Launcher* const launcher : launchers_here()) {
    innermost = innermost == nullptr ? launcher : &inner_of(*innermost, *launcher);
  }
  if (innermost != nullptr) return innermost;
  return placement_from(kPlainTorchrun) ? &kPlainTorchrun : nullptr;
}

Entries told_by(const Launcher& launcher) {
  Entries told;
  for (const char* const name : names_of(launcher)) {
    if (const auto value = variable(name)) told.insert(fmt::format("{}={}", name, *value));
  }
  return told;
}

Entries told_by(const Launcher& launcher, const Entries& environment) {
  Entries told;
  for (const char* const name : names_of(launcher)) {
    const std::string begin = fmt::format("{}=", name);
    const auto found = environment.lower_bound(begin);
    if (found != environment.end() && found->starts_with(begin) && *found != begin)
      told.insert(*found);
  }
  return told;
}

pid_t process_of(const Launcher& launcher) {
  const Entries told = told_by(launcher);
  for (const pid_t pid : ancestors_of(own_proc_id())) {
    const Entries environment = environment_of(pid);
    if (!environment.empty() && !has_all(environment, told)) return pid;
  }
  return 0;
}

}  // namespace tutti
