// See launcher.h. The variables are those that each launcher documents or was seen to set.
#include "bootstrap/launcher.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "bootstrap/pmi_store.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "core/number.h"

namespace tutti {

// The innermost comes first: `tutti run` under Slurm is `tutti run`, and so with torchrun. A Slurm
// batch script has a rank and a size too, but it is one process: only a step (srun) has more.
constexpr Launcher kTuttiRun{"tutti run", "TUTTI_RANK", "TUTTI_SIZE"};
constexpr Launcher kPlainTorchrun{"torchrun",   "RANK",  "WORLD_SIZE",
                                  Store::torch, nullptr, "LOCAL_WORLD_SIZE"};
namespace {

constexpr std::array kLaunchers{
    kTuttiRun,
    Launcher{"torchrun", "RANK", "WORLD_SIZE", Store::torch, "TORCHELASTIC_RUN_ID",
             "LOCAL_WORLD_SIZE"},
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", Store::pmix, nullptr,
             "OMPI_COMM_WORLD_LOCAL_SIZE"},
    // And Intel MPI, and Slurm with --mpi=pmi2.
    Launcher{"MPICH", "PMI_RANK", "PMI_SIZE", Store::pmi, nullptr, "MPI_LOCALNRANKS",
             "SLURM_STEP_NUM_NODES"},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", Store::pmix, "SLURM_STEP_ID", nullptr,
             "SLURM_STEP_NUM_NODES"},
    // Older versions of Slurm, or a user who has set only this.
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", Store::pmix, "SLURM_STEP_ID", nullptr,
             "SLURM_NNODES"},
    // Programs that set torchrun's variables themselves. Last, as the names are anybody's.
    kPlainTorchrun,
};

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
                            launcher.rank, *rank, launcher.size, *size, protocol::kMaxRanks));
  }
  return Placement{*rank, *size, launcher.name};
}

const Launcher* find_launcher() {
  for (const Launcher& launcher : kLaunchers) {
    // Two rows for one launcher: the second is for when the first one's size is not set.
    const bool has_other_row = launcher.size == std::string_view("SLURM_STEP_NUM_TASKS");
    if (has_other_row && !variable(launcher.size)) continue;
    if (placement_from(launcher)) return &launcher;
  }
  return nullptr;
}

}  // namespace tutti
