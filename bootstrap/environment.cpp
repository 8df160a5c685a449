// See environment.h.
#include "bootstrap/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/id_file.h"
#include "bootstrap/id_handover.h"
#include "bootstrap/kinship.h"
#include "bootstrap/launcher.h"
#include "bootstrap/launcher_store.h"
#include "bootstrap/pmi_store.h"
#include "bootstrap/pmix_store.h"
#include "bootstrap/process.h"
#include "bootstrap/torch_store.h"
#include "core/error.h"
#include "core/log.h"
#include "core/number.h"
#include "core/proc.h"
#include "core/settings.h"
#include "transport/sockets/named_host.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/rank_listener.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

/// A program that sets RANK and WORLD_SIZE for processes of its own, under mpirun say, means those.
/// Guessing wrong would make every rank a world of its own, so disagreement is an error. A launcher
/// around this one may have set them, too.
void check_against_plain_variables(const Launcher& launcher, const Placement& placement) {
  const auto rank = variable(kPlainTorchrun.rank);
  const auto size = variable(kPlainTorchrun.size);
  if (!rank || !size || !parse_number<int>(*rank) || !parse_number<int>(*size))
    return;  // another's names
  if (parse_number<int>(*rank) == placement.rank && parse_number<int>(*size) == placement.size)
    return;
  for (const Launcher* const other : launchers_here()) {
    if (other != &launcher && variable(other->rank) == rank && variable(other->size) == size)
      return;
  }
  throw Error(
      ErrorCode::invalid_usage,
      fmt::format("RANK is {} and WORLD_SIZE is {}, but {} has started this process as rank {} of "
                  "{}{}: unset the pair that is not meant",
                  *rank, *size, launcher.name, placement.rank, placement.size,
                  variable(launcher.rank)
                      ? fmt::format(" ({} is {})", launcher.rank, *variable(launcher.rank))
                      : ""));
}

/// MPICH names no job. But its launcher has one proxy for each job on this host, above all ranks.
/// The proxy made the socket pair PMI_FD, and the kernel remembers that. Where the descriptor is
/// closed (some wrappers do that), the variables tell: the proxy does not have its ranks'.
std::string mpich_job(const Launcher& launcher) {
  if (has_pmi_port()) return fmt::format("mpich-{}", *variable("PMI_PORT"));
  pid_t proxy = process_of(launcher);
  if (const auto fd = integer_variable("PMI_FD")) {
    const auto above = ancestors_of(own_proc_id());
    if (std::ranges::find(above, peer_process(*fd)) != above.end()) proxy = peer_process(*fd);
  }
  if (proxy == 0) proxy = ::getppid();
  return fmt::format("mpich-{}-{}", proxy, start_ticks(proxy));
}

/// Processes of MPI_Comm_spawn() are a world of their own, under the proxy of their parents. They
/// have begun PMI for MPI anyway, and it names their world; "": this is none of them.
std::string spawned_world() {
  return variable("PMI_SPAWNED") && has_pmi() ? fmt::format("-{}", pmi_space()) : "";
}

/// A name that all ranks of this job have and no other job of this user on this host has.
std::string job_name(const Launcher& launcher) {
  const std::string_view name = launcher.name;
  const auto need = [&](const char* wanted) {
    const auto value = variable(wanted);
    if (value) return *value;
    throw Error(ErrorCode::invalid_usage,
                fmt::format("{} is set, but {}, which would tell this job from others, is not: set "
                            "it, or start the ranks with `tutti run`",
                            launcher.rank, wanted));
  };
  if (name == "Open MPI" || name == "PMIx") return "openmpi-" + need("PMIX_NAMESPACE");
  if (name == "MPICH") return mpich_job(launcher) + spawned_world();
  if (name == "Slurm")
    return fmt::format("slurm-{}.{}", need("SLURM_JOB_ID"), need("SLURM_STEP_ID"));
  if (name == "torchrun") {
    // Launches may have the same of all the others. This one is a file of each rank, in a folder
    // that torchrun makes for each launch and attempt.
    const std::filesystem::path file = variable("TORCHELASTIC_ERROR_FILE").value_or("");
    return fmt::format("torchrun-{}-{}-{}:{}-{}", variable("TORCHELASTIC_RUN_ID").value_or(""),
                       variable("TORCHELASTIC_RESTART_COUNT").value_or(""), need("MASTER_ADDR"),
                       need("MASTER_PORT"), file.parent_path().parent_path().string());
  }
  return need("TUTTI_UNIQUE_ID");
}

/// The same for ranks on several hosts, where fewer variables are alike: what the launcher calls
/// the job on each of them.
Launch launch_of(const Launcher& launcher) {
  Launch launch;
  launch.started = process_start();
  const std::string_view name = launcher.name;
  const auto all = [](std::initializer_list<const char*> names) {
    return std::ranges::all_of(names, [](const char* n) { return variable(n).has_value(); });
  };
  if ((name == "Open MPI" || name == "PMIx") && all({"PMIX_NAMESPACE"})) {
    launch.job = "openmpi-" + *variable("PMIX_NAMESPACE");
    launch.unique = true;
  } else if (name == "Slurm" && all({"SLURM_JOB_ID", "SLURM_STEP_ID"})) {
    launch.job =
        fmt::format("slurm-{}.{}-{}", *variable("SLURM_JOB_ID"), *variable("SLURM_STEP_ID"),
                    variable("SLURM_RESTART_COUNT").value_or("0"));
    launch.unique = true;
  } else if (name == "MPICH") {
    launch.job = spawned_world();
  } else if (name == "torchrun" && all({"MASTER_PORT"})) {
    // The restart count is each host's own, and the master's address may be written differently.
    launch.job = fmt::format("torchrun-{}-{}", variable("TORCHELASTIC_RUN_ID").value_or(""),
                             *variable("MASTER_PORT"));
  }
  return launch;
}

/// False also where nobody knows the name.
bool is_another_host(const std::string& name) {
  try {
    return std::ranges::none_of(addresses_of(name, 0), [](const SocketAddress& address) {
      return is_loopback(address) || !interface_of(address).empty();
    });
  } catch (const Error&) {
    return false;
  }
}

/// What says that the ranks are on several hosts; "": nothing does.
std::string several_hosts(const Launcher& launcher, const Placement& placement) {
  if (const auto local = integer_variable(launcher.local_size)) {
    return *local < placement.size ? fmt::format("{} is {}", launcher.local_size, *local) : "";
  }
  if (launcher.store == Store::torch && placement.rank != 0) {
    const auto master = variable("MASTER_ADDR");
    return master && is_another_host(*master) ? fmt::format("MASTER_ADDR is {}", *master) : "";
  }
  if (launcher.size == nullptr) {
    const int local = pmix_place().local_size;
    return local < placement.size ? fmt::format("PMIx's local size is {}", local) : "";
  }
  const auto hosts = integer_variable(launcher.hosts);
  return hosts && *hosts > 1 ? fmt::format("{} is {}", launcher.hosts, *hosts) : "";
}

/// Whether rank 0 has to expect ranks on other hosts, which know that they are, though nothing says
/// so here.
bool may_have_other_hosts(const Launcher& launcher) {
  const std::string master = variable("MASTER_ADDR").value_or("localhost");
  const auto address = parse_address(master, 0);
  return launcher.store == Store::torch && !variable(launcher.local_size) &&
         master != "localhost" && !(address && is_loopback(*address));
}

/// Whether the variables of PMIx are this launch's own: a job step of Slurm without PMIx has those
/// of the step around it.
bool has_pmix(const Launcher& launcher, const Placement& placement) {
  const auto space = variable("PMIX_NAMESPACE"), rank = variable("PMIX_RANK");
  if (!space || !rank || parse_number<int>(*rank) != placement.rank) return false;
  if (launcher.name != std::string_view("Slurm")) return true;
  return space->ends_with(fmt::format(".{}.{}", variable("SLURM_JOB_ID").value_or("?"),
                                      variable("SLURM_STEP_ID").value_or("?")));
}

/// The store that the launcher offers; null: it offers none.
std::shared_ptr<LauncherStore> store_of(const Launcher& launcher, const Placement& placement) {
  switch (launcher.store) {
    case Store::none:
      return nullptr;
    case Store::pmi:
      return has_pmi() ? pmi_store() : nullptr;
    case Store::pmix:
      return has_pmix(launcher, placement) ? pmix_store() : nullptr;
    case Store::torch: {
      const auto host = variable("MASTER_ADDR");
      const auto port = port_from(variable("MASTER_PORT").value_or(""));
      if (!host || !port) return nullptr;
      const bool served = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
      return served || placement.rank != 0 ? torch_store(*host, *port) : torch_server(*host, *port);
    }
  }
  return nullptr;
}

/// TUTTI_UNIQUE_ID, unless it is the one of a `tutti run` around the launcher of this process.
std::optional<std::string> unique_id_given() {
  const Launcher* const launcher = find_launcher();
  const bool is_of_another = variable(kTuttiRun.rank) && launcher != nullptr &&
                             launcher->name != std::string_view(kTuttiRun.name);
  return is_of_another ? std::nullopt : variable("TUTTI_UNIQUE_ID");
}

/// The key under which the n-th id of this process is there.
std::string key_of(const Launcher& launcher, const Placement& placement, unsigned world) {
  // torchrun's store may have other jobs, too, and MASTER_PORT another one's rank 0.
  const std::string size =
      launcher.store == Store::torch ? fmt::format("of{}", placement.size) : "";
  const std::string job =
      launcher.store == Store::torch ? variable("TORCHELASTIC_RUN_ID").value_or("") + "/" : "";
  return fmt::format("tutti/{}{}{}", job, world, size);
}

/// What rank 0 says of its program in the launcher's store. PMI takes lines of 1,024 characters.
std::string program_for(const Launcher& launcher) {
  return to_text(program_of(::getpid()),
                 launcher.store == Store::torch ? Detail::all : Detail::without_variables);
}

}  // namespace

const std::array<std::string_view, 8> kWaysAcrossHosts{
    "by `tutti run -H node1:4,node2:4`, which starts them on several hosts",
    "by PMIx, under mpirun of Open MPI, prterun and `srun --mpi=pmix`, where libpmix.so.2 is there",
    "by PMI, under mpiexec of MPICH and of Intel MPI and `srun --mpi=pmi2`",
    "by torchrun's store, or rank 0's own at MASTER_ADDR:MASTER_PORT where there is no torchrun",
    "by TUTTI_ID_FILE, set on all ranks to a path on a file system that all hosts share",
    "by a channel of the program's own (MPI_Bcast, a key-value store): rank 0 sends the 128 bytes "
    "of make_unique_id(MeetingPlace::among_hosts()), and all call Communicator::create() with them",
    "by the same id as text in TUTTI_UNIQUE_ID",
    "in PyTorch by init_process_group(\"tutti\"), which needs none of these"};

Placement placement_from_environment() {
  const Launcher* launcher = find_launcher();
  if (launcher == nullptr) return Placement{0, 1, "none"};
  const Placement placement = *placement_from(*launcher);
  check_against_plain_variables(*launcher, placement);
  return placement;
}

SharedId unique_id_from_environment(const Placement& placement, std::chrono::nanoseconds timeout) {
  if (const auto text = unique_id_given()) {
    try {
      return {unique_id_from_string(*text)};
    } catch (const Error& error) {
      throw Error(ErrorCode::invalid_usage, fmt::format("TUTTI_UNIQUE_ID: {}", error.what()));
    }
  }
  if (placement.size == 1) return {make_unique_id()};
  const Launcher* launcher = find_launcher();
  if (launcher == nullptr) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("rank {} of {}: no launcher's variables are set, and TUTTI_UNIQUE_ID is "
                    "not: start the ranks with `tutti run`",
                    placement.rank, placement.size));
  }
  // The n-th world that this process joins is the n-th of every rank.
  static std::atomic<unsigned> worlds{0};
  const unsigned world = worlds.fetch_add(1);
  if (const std::string path = setting_text("TUTTI_ID_FILE"); !path.empty()) {
    const Launch launch = launch_of(*launcher);
    const std::string file = id_file_of(path, launch, world);
    if (placement.rank != 0) return {read_id_file(file, placement.rank, launch, timeout)};
    const UniqueId id = make_unique_id(MeetingPlace::among_hosts());
    write_id_file(file, id, launch);
    return {id, file};
  }
  if (const std::string evidence = several_hosts(*launcher, placement); !evidence.empty()) {
    const auto store = store_of(*launcher, placement);
    if (!store) {
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format("the {} ranks of this {} job are on several hosts ({}), and have not been "
                      "told where they meet. They can be: {}",
                      placement.size, launcher->name, evidence, fmt::join(kWaysAcrossHosts, "; ")));
    }
    take_seat(*launcher);
    const std::string key = key_of(*launcher, placement, world);
    if (placement.rank != 0) {
      const WhyNotProgram why_not = [&](std::string_view zero) {
        return why_another_program(*launcher, program_from_text(zero));
      };
      return {get_id(*store, key, placement.rank, placement.size, timeout, why_not)};
    }
    const UniqueId id = make_unique_id(MeetingPlace::among_hosts());
    put_id(*store, key, id, placement.size, timeout, program_for(*launcher));
    return {id, "", store, key};
  }
  const std::string job = fmt::format("{}#{}", job_name(*launcher), world);
  if (placement.rank != 0) {
    return {fetch_unique_id(job, placement.rank, placement.size, timeout,
                            [&](pid_t zero) { return why_another_program(*launcher, zero); })};
  }
  const auto store = may_have_other_hosts(*launcher) ? store_of(*launcher, placement) : nullptr;
  const UniqueId id = store ? make_unique_id(MeetingPlace::among_hosts()) : make_unique_id();
  offer_unique_id(job, placement.size, id, timeout);
  if (!store) return {id};
  const std::string key = key_of(*launcher, placement, world);
  try {
    put_id(*store, key, id, placement.size, timeout, program_for(*launcher));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::aborted) throw;
    log().warn("{} (this matters if there are ranks on other hosts)", error.what());
  }
  return {id, "", store, key};
}

void forget(const SharedId& id) {
  if (!id.file.empty()) remove_id_file(id.file, id.id);
  if (id.store) id.store->remove(id.key);
}

std::string way_across_hosts(const Placement& placement) {
  if (unique_id_given()) return "TUTTI_UNIQUE_ID";
  if (const std::string path = setting_text("TUTTI_ID_FILE"); !path.empty())
    return fmt::format("a file, {} (TUTTI_ID_FILE), which all hosts must see", path);
  const Launcher* launcher = find_launcher();
  const auto store = launcher == nullptr ? nullptr : store_of(*launcher, placement);
  return store ? store->name() : "";
}

}  // namespace tutti
