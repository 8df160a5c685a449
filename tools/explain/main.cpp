// `tutti explain COLLECTIVE SIZE`: which algorithm would run, and the predicted times of this one
// and of the others.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/model/choose.h"
#include "collectives/model/machine_file.h"
#include "collectives/model/rounding.h"
#include "comm/geometry.h"
#include "core/compressed.h"
#include "core/error.h"
#include "core/host.h"
#include "core/nearest.h"
#include "core/settings.h"
#include "tools/command_line/command.h"
#include "tools/explain/explain_topology.h"
#include "tools/hosts_option.h"
#include "tools/plan_source.h"
#include "tools/terminal.h"

namespace tutti {
namespace {

struct Arguments {
  std::string collective;
  std::string size = "1M";
  std::string type = "float32";
  int ranks = 0;
  HostsOption hosts;
  int cores = 0;
  int domains = 1;
  std::string memory = "window";
  std::string machine;
  bool constants = false;
  bool invariant = false, compressed = false;
  std::string topology;
  bool several_hosts = false, cross_rails = false;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

std::vector<std::string_view> known_types() {
  std::vector<std::string_view> names;
  for (int t = 0; t < kDataTypes; ++t) names.push_back(name(static_cast<DataType>(t)));
  return names;
}

UsedMachine machine_of(const Arguments& a) {
  if (a.machine.empty()) return used_machine();
  if (a.machine == "defaults") return {default_machine(), "defaults, as asked for"};
  if (a.machine == "gpu") return {gpu_machine(), "those for ranks on GPUs, which are not measured"};
  const MachineRecord record = read_machine(a.machine);
  return {record.machine,
          fmt::format("{}: {}, calibrated on {}", a.machine, record.name, record.date)};
}

Access access_of(const Arguments& a) {
  if (!setting_boolean("TUTTI_WINDOWS")) return Access::none;
  if (a.memory == "window") return Access::windows;
  if (a.machine == "gpu") return Access::none;
  return setting_boolean("TUTTI_CMA") ? Access::copies : Access::tmp;
}

std::string bytes_text(double bytes) {
  if (bytes >= 1048576.0 && std::fmod(bytes, 1048576.0) == 0) {
    return fmt::format("{:.0f} MiB", bytes / 1048576);
  }
  if (bytes < 10 * 1024.0) return fmt::format("{:.0f} B", bytes);
  if (bytes < 10 * 1048576.0) return fmt::format("{:.0f} KiB", bytes / 1024);
  return fmt::format("{:.0f} MiB", bytes / 1048576);
}

std::string time_text(double ns) {
  if (ns < 10e3) return fmt::format("{:.2f} us", ns / 1e3);
  if (ns < 10e6) return fmt::format("{:.1f} us", ns / 1e3);
  return fmt::format("{:.2f} ms", ns / 1e6);
}

void print_constants(const UsedMachine& used) {
  fmt::print("constants: {}\n", used.origin);
  for (const MachineConstant& c : machine_constants()) {
    print_wrapped(
        fmt::format("  {:<17} {:>10} {:<9} ", c.name, constant_text(used.machine.*c.value), c.unit),
        c.meaning);
  }
}

/// The last-level cache of each rank, of `each` on its host.
std::vector<int> caches_of(const std::vector<int>& host, int each) {
  std::map<int, int> ranks, before;
  for (const int h : host) ++ranks[h];
  std::vector<int> caches;
  for (const int h : host) {
    caches.push_back(static_cast<int>(std::int64_t{before[h]++} * each / ranks[h]));
  }
  return caches;
}

/// The checks of a compressed call (Call::compressed), which needs memory of the host, too.
void check_compressed(const Arguments& a, Collective collective, DataType type) {
  if (!is_compressible(collective)) {
    refuse(
        fmt::format("--compressed is for all_reduce and reduce_scatter, not for {}", a.collective));
  }
  if (!is_compressible(type)) {
    refuse(fmt::format("--compressed is for float16, bfloat16 and float32, not for {}", a.type));
  }
  if (a.machine == "gpu") refuse("--compressed is for memory of the host");
}

void explain(const Arguments& arguments) {
  Arguments a = arguments;
  const UsedMachine used = machine_of(a);
  if (a.constants) return print_constants(used);
  if (a.collective.empty()) {
    refuse("name a collective and a size, as in 'tutti explain all_reduce 1M float32 -n 4'");
  }
  const Collective collective = collective_named(a.collective);
  const auto type = parse_data_type(a.type);
  if (!type) {
    refuse(fmt::format("there is no data type '{}'{}; there are {}", a.type,
                       did_you_mean(a.type, known_types()), fmt::join(known_types(), ", ")));
  }
  Workload workload{collective, collective == Collective::barrier ? 0 : parse_bytes(a.size), *type,
                    access_of(a)};
  workload.round_once = setting_boolean("TUTTI_ROUND_ONCE") && is_reduction(collective) &&
                        rounds_when_stored(ReduceKind::sum, *type);
  const bool invariant = a.invariant || setting_boolean("TUTTI_INVARIANT");
  workload.invariant =
      invariant && is_reduction(collective) && order_matters(ReduceKind::sum, *type);
  if (a.compressed) {
    check_compressed(a, collective, *type);
    if (invariant || workload.round_once) {
      refuse("--compressed: such a sum is approximate, and the other wish excludes that");
    }
    workload.compressed = true;
  }
  if (a.ranks == 0 && !a.hosts.is_given()) a.ranks = 2;
  const std::vector<int> host_of = a.hosts.of_ranks(a.ranks);
  const Domains hosts(host_of);
  a.ranks = static_cast<int>(host_of.size());
  const bool on_gpu = a.machine == "gpu";
  const int cores = a.cores > 0 ? a.cores : host().cores;
  const Geometry geometry = geometry_of(Options(), 0);
  const int on_a_host = hosts.most(a.ranks);
  const ConnectionShape links = links_for(geometry.shape, a.ranks, on_a_host > cores,
                                          hosts.count() == a.ranks, geometry.machine.l2_bytes);
  if (a.domains > std::min(on_a_host, cores)) {
    refuse(fmt::format("{} ranks on {} cores cannot share {} last-level caches (--cores)",
                       on_a_host, cores, a.domains));
  }
  Platform platform =
      on_gpu ? gpu_platform(a.ranks)
             : Platform{used.machine, a.ranks, cores * hosts.count(), links, geometry.tile_bytes};
  platform.domains = Domains::on_hosts(host_of, caches_of(host_of, on_gpu ? 1 : a.domains));
  platform.hosts = hosts;
  if (!on_gpu && a.ranks > 1 && hosts.count() == a.ranks) platform.least_piece = kLeastFarPiece;
  Chooser chooser(platform);
  const std::vector<Prediction> candidates = chooser.candidates(workload);
  if (candidates.empty()) {
    refuse(fmt::format("no algorithm can do {} on {} ranks with {} slots of {} bytes", a.collective,
                       a.ranks, platform.links.slots, platform.links.slot_bytes));
  }
  const Algorithm& chosen = chooser.choose(workload);

  const bool several = hosts.count() > 1;
  fmt::print("{} of {} ({}), {} rank{}, {}", a.collective,
             bytes_text(static_cast<double>(workload.bytes)), name(*type), a.ranks,
             a.ranks == 1 ? "" : "s", several ? fmt::format("{} hosts, ", hosts.count()) : "");
  if (on_gpu) {
    const bool reached = workload.access == Access::windows;
    fmt::print("on GPUs, memory that other ranks {}address\n", reached ? "" : "do not ");
  } else {
    fmt::print("on {} core{}{}{}, memory from {}\n", cores, cores == 1 ? "" : "s",
               several ? " each" : "",
               a.domains == 1 ? "" : fmt::format(" with {} last-level caches", a.domains),
               a.memory == "window" ? "tutti::allocate" : "malloc");
  }
  fmt::print("constants: {}\n\n", used.origin);
  std::size_t widest = std::string_view("ALGORITHM").size();
  for (const Prediction& p : candidates) widest = std::max(widest, p.algorithm->name.size());
  fmt::print("  {:<{}} {:>11} {:>7} {:>16} {:>15} {:>10}{}\n", "ALGORITHM", widest, "PREDICTED",
             "TILES", "TILE OF A BLOCK", "MOVED BY A RANK", "OF MEMORY",
             several ? fmt::format(" {:>10}", "BY A HOST") : "");
  for (const Prediction& p : candidates) {
    const std::string share =
        p.memory_ns > 0 ? fmt::format("{:.0f} %", 100 * p.memory_ns / p.ns) : "-";
    fmt::print("{} {:<{}} {:>11} {:>7} {:>16} {:>15} {:>10}{}\n",
               p.algorithm == &chosen ? "*" : " ", p.algorithm->name, widest, time_text(p.ns),
               p.tiles, bytes_text(static_cast<double>(p.tile_bytes)), bytes_text(p.moved), share,
               several ? fmt::format(" {:>10}", bytes_text(p.across)) : "");
  }
  fmt::print(
      "\n* runs, unless TUTTI_ALGORITHM says otherwise: chosen per power of two of the size; of\n"
      "  those within 3 % the one that sends least between hosts, or else the simplest.\n"
      "  OF MEMORY: the part of the time in which the memory's bandwidth is the limit.\n");
  if (workload.access == Access::copies) {
    fmt::print(
        "  *_window: by copies of the kernel (TUTTI_CMA), if they take three quarters at most.\n");
  }
  if (a.ranks == 2 && candidates.front().algorithm->tmp_alone) {
    fmt::print("  shared: from three ranks on; two write and read as much as over links.\n");
  }
  if (several) {
    fmt::print("  BY A HOST: what the busiest host sends to others, or receives.\n");
  }
  const std::string wish = setting_text("TUTTI_ALGORITHM");
  if (!wish.empty() && !workload.compressed) {
    const Collective c = workload.collective;
    fmt::print("  TUTTI_ALGORITHM is {}{}.\n", wish,
               find_algorithm(c, wish) != nullptr
                   ? ""
                   : fmt::format(", which {} does not have: * runs", name(c)));
  }
  if (workload.round_once) {
    fmt::print("  Only algorithms that round a sum once (TUTTI_ROUND_ONCE).\n");
  }
  if (workload.invariant) {
    fmt::print("  Only algorithms with invariant bits ({}).\n",
               a.invariant ? "--invariant" : "TUTTI_INVARIANT");
  } else if (invariant) {
    fmt::print("  Invariant whatever runs: {}.\n",
               is_reduction(collective) ? "sums of integers have the same bits in any order"
                                        : "nothing is reduced");
  }
  if (workload.compressed) {
    fmt::print(
        "  Compressed (Call::compressed): of 64 bytes, {} travel. TUTTI_ALGORITHM has no "
        "effect.\n",
        compressed_bytes(*type, compressed_block(*type)));
  }
  if (!candidates.front().simulated) {
    fmt::print("  More than {} ranks: a closed form instead of a simulation.\n",
               kMostSimulatedRanks);
  }
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  command.add_option("collective", a->collective, "all_reduce, ... (see `tutti plan list`)")
      ->type_name("COLLECTIVE");
  command.add_option("size", a->size, "Bytes of a rank's largest buffer, as in 4096, 64K, 1M [1M]")
      ->type_name("SIZE");
  command.add_option("type", a->type, "Data type [float32]")->type_name("TYPE");
  command.add_option("-n,--ranks", a->ranks, "How many ranks [2]")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  a->hosts.add_to(command);
  command
      .add_option("--cores", a->cores,
                  "Cores that the ranks, of each host, share [those of this machine]")
      ->type_name("C")
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--domains", a->domains,
                  "Last-level caches of these cores; each has equally many ranks, which are bound\n"
                  "to its cores [1]")
      ->type_name("D")
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--memory", a->memory, "window (tutti::allocate) or malloc [window]")
      ->type_name("KIND")
      ->check(CLI::IsMember({"window", "malloc"}).description(""));
  command
      .add_option("--machine", a->machine,
                  "Constants from this file; 'defaults': none; 'gpu': for ranks on GPUs")
      ->type_name("FILE");
  command.add_flag("--invariant", a->invariant,
                   "Only algorithms whose bits depend on the inputs and the order of the ranks "
                   "alone,\nas with TUTTI_INVARIANT=1");
  command.add_flag("--compressed", a->compressed,
                   "A call that sends 8 bits for an element (Call::compressed); see\n"
                   "docs/low-precision.md");
  command.add_flag("--constants", a->constants, "Only print the machine's constants");
  auto* topology =
      command
          .add_option(
              "--topology", a->topology,
              "Instead: rings, trees and ports on the machine that this file describes, as\n"
              "`tutti topo --file` takes them; 'this' is this machine")
          ->type_name("FILE");
  command.add_flag("--several", a->several_hosts, "Also the rings that go on to other hosts")
      ->needs(topology);
  command
      .add_flag("--cross-rails", a->cross_rails,
                "These rings may leave by another port than they enter by")
      ->needs(topology);
  command.footer(
      "Predicts times from the plans and the machine's constants, which `tutti calibrate`\n"
      "measures (docs/cost-model.md). Examples:\n"
      "  tutti explain all_reduce 1M float32 -n 4\n"
      "  tutti explain broadcast 64K -n 64 --cores 64 --memory malloc\n"
      "  tutti explain all_reduce 16M --hosts 2x4\n"
      "  tutti explain all_reduce 16M bfloat16 -n 4 --invariant\n"
      "  tutti explain --topology topo.xml --several\n"
      "  tutti explain --constants");
  command.callback([a] {
    if (a->topology.empty()) return explain(*a);
    explain_topology(a->topology == "this" ? "" : a->topology, a->several_hosts || a->cross_rails,
                     a->cross_rails);
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("explain", tutti::define, argc, argv); }
