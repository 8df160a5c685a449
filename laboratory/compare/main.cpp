// `tutti compare`: Tutti, its peers and the machine's limit, measured in turn by the same loop
// (laboratory/peers/), as a table, JSON and a chart. docs/comparing.md says how it measures.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "core/error.h"
#include "core/settings.h"
#include "laboratory/compare/compare_hosts.h"
#include "laboratory/compare/compare_neighbours.h"
#include "laboratory/compare/compare_programs.h"
#include "laboratory/compare/compare_report.h"
#include "laboratory/compare/compare_session.h"
#include "laboratory/peers/barrier.h"
#include "tools/command_line/command.h"
#include "tools/terminal.h"

namespace tutti {
namespace {

using compare::Program;
using compare::Row;
using compare::Session;

const std::vector<std::string> kCompared{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                         "reduce",     "all_to_all", "send_recv"};

struct Arguments {
  std::vector<std::string> collectives = kCompared;
  int ranks = 2;
  std::string least = "8", most = "64M";
  std::size_t factor = 8;
  std::string type = "float32";
  std::string memory = "window";
  std::vector<std::string> peers = compare::peer_names();
  int rounds = 25;
  int slice = 25;
  int cold = 0, pause = 0;
  int neighbours = 0;
  bool late = false;
  int patience = 120;
  bool bind = true;
  bool hosts = false;
  int rate = 0;
  CLI::Option* bind_option = nullptr;
  std::string json, svg, programs;
  bool verbose = false;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) throw_system_error("cannot ask for the cores");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

/// Sizes of the larger buffer, as far as the collective's blocks come out at 16 bytes or more.
std::set<std::size_t> sizes_of(const Arguments& a, Collective collective, DataType type) {
  constexpr std::size_t kMost = std::size_t{4} << 30;  // an MPI count is an int
  const std::size_t least = parse_bytes(a.least), most = parse_bytes(a.most);
  if (least == 0 || least > most)
    refuse(fmt::format("no size from -b {} to -e {}", a.least, a.most));
  if (most > kMost) refuse(fmt::format("-e {} is more than 4G", a.most));
  std::set<std::size_t> sizes;
  for (std::size_t bytes = least; bytes <= most; bytes *= a.factor) {
    sizes.insert(perf::shape_of(collective, bytes, type, a.ranks).largest() * size_of(type));
  }
  sizes.erase(0);
  return sizes;
}

class Comparison {
 public:
  Comparison(const Arguments& a, DataType type) : arguments_(a), type_(type), cpus_(usable_cpus()) {
    run_.cpu = cpu_model();
    run_.cores = static_cast<int>(cpus_.size());
    run_.rounds = a.rounds;
    run_.slice = a.slice;
    run_.bound = a.bind_option->count() != 0 ? a.bind : a.ranks <= run_.cores;
    if (a.hosts) {
      hosts_ = std::make_unique<compare::Hosts>(a.ranks, a.rate);
      note(fmt::format("hosts: {} network namespaces, a rank in each, over TCP{}", a.ranks,
                       a.rate > 0 ? fmt::format(" at {} Mbit/s", a.rate) : ""));
    }
    if (a.cold > 0) {
      note(fmt::format("cold: each figure is the mean of a fresh process's first {} call{}", a.cold,
                       a.cold == 1 ? "" : "s"));
    }
    if (a.pause > 0) note(fmt::format("calls are {} ms apart, in which the ranks sleep", a.pause));
    if (a.neighbours > 0) {
      note(fmt::format("beside {} busy loop{} that began {}", a.neighbours,
                       a.neighbours == 1 ? "" : "s", a.late ? "later" : "earlier"));
    }
    for (Program& program :
         compare::find_programs(a.programs, a.peers, a.ranks, a.memory == "heap")) {
      // The limits are those of one host's memory, and of loops.
      if (program.name == "limit" && (hosts_ || a.cold > 0 || a.pause > 0)) continue;
      if (hosts_) hosts_->place(program);
      if (program.missing.empty()) {
        programs_.push_back(std::move(program));
      } else if (program.name == "tutti") {
        throw Error(ErrorCode::system, "Tutti's own program is missing: " + program.missing);
      } else {
        note(fmt::format("{} is left out: {}", program.name, program.missing));
      }
    }
  }

  void measure(Collective collective) {
    const auto sizes = sizes_of(arguments_, collective, type_);
    if (sizes.empty()) {
      return note(fmt::format("{} is left out: it needs 16 bytes for each rank", name(collective)));
    }
    std::vector<Row> rows;
    for (const std::size_t bytes : sizes) {
      rows.push_back({collective, bytes, type_, arguments_.ranks, arguments_.memory, {}, {}, {}});
    }
    take_turns(collective, sizes, rows);
    std::vector<std::string> peers;
    for (const Program& program : programs_) {
      if (program.name != "tutti" && program.name != "limit") peers.push_back(program.name);
    }
    fmt::print("{}\n", compare::format_table(rows, peers, arguments_.verbose));
    std::fflush(stdout);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }

  void write_files() const {
    if (rows_.empty()) return;
    if (!arguments_.json.empty()) write(arguments_.json, compare::format_json(rows_, run_));
    if (!arguments_.svg.empty()) write(arguments_.svg, compare::format_svg(rows_, run_));
  }

 private:
  void note(const std::string& text) {
    fmt::print("{}\n", text);
    run_.notes.push_back(text);
  }

  /// What Tutti's figures are figures of; once, and where it changes.
  void say_carrier(const std::string& carrier) {
    if (carrier.empty() || carrier == run_.carrier) return;
    run_.carrier = carrier;
    show_progress("");
    fmt::print("tutti's bytes go over: {}\n", carrier);
  }

  /// All programs are there all the time, and measure in turn. A round gives each of them a turn on
  /// each size: so the samples of a figure are spread over the whole comparison, and figures to
  /// compare come from neighbouring turns, in the same state of the machine.
  /// Cold ones are started for each turn anew.
  void take_turns(Collective collective, const std::set<std::size_t>& sizes,
                  std::vector<Row>& rows) {
    const compare::Signals signals;
    const compare::SessionOptions options{arguments_.ranks, arguments_.patience,
                                          program_arguments(collective, sizes)};
    std::optional<compare::Neighbours> neighbours;
    if (!arguments_.late) neighbours.emplace(arguments_.neighbours);
    std::map<std::string, std::optional<Session>> sessions;
    for (const Program& program : programs_) {
      show_progress(fmt::format("{}: starting {}", name(collective), program.name));
      try_to(collective, program.name, rows, sessions, [&] {
        std::optional<Session> session;
        if (arguments_.cold == 0) session.emplace(program, options, signals);
        sessions.emplace(program.name, std::move(session));
      });
    }
    if (const auto tutti = sessions.find("tutti"); tutti != sessions.end() && tutti->second) {
      say_carrier(tutti->second->carrier());
    }
    if (arguments_.late) neighbours.emplace(arguments_.neighbours);
    for (int round = 0; round < arguments_.rounds; ++round) {
      show_progress(
          fmt::format("{}: round {} of {}", name(collective), round + 1, arguments_.rounds));
      for (Row& row : rows) {
        for (const Program& program : programs_) {
          const auto session = sessions.find(program.name);
          if (session == sessions.end()) continue;
          try_to(collective, program.name, rows, sessions, [&] {
            auto& running = session->second;
            if (arguments_.cold > 0) running.emplace(program, options, signals);
            add(program.name, running->take_turn(row.bytes), row);
            if (arguments_.cold > 0) running.reset();
          });
        }
      }
    }
    show_progress("");
  }

  /// Leaves the program out of this collective if it cannot. Tutti's failure ends the comparison.
  template <class What>
  void try_to(Collective collective, const std::string& who, std::vector<Row>& rows,
              std::map<std::string, std::optional<Session>>& sessions, const What& what) {
    try {
      what();
    } catch (const Error& e) {
      if (who == "tutti" || e.code() == ErrorCode::aborted) throw;
      show_progress("");
      note(fmt::format("{} is left out of {}: {}", who, name(collective), e.what()));
      sessions.erase(who);
      for (Row& row : rows) {
        row.peers.erase(who);
        if (who == "limit") row.limit.clear();
      }
    }
  }

  static void add(const std::string& program, const std::vector<double>& ways, Row& row) {
    if (program == "limit") {
      row.limit.resize(ways.size());
      for (std::size_t i = 0; i < ways.size(); ++i) row.limit[i].push_back(ways[i]);
    } else {
      (program == "tutti" ? row.tutti : row.peers[program]).push_back(ways.front());
    }
  }

  std::vector<std::string> program_arguments(Collective collective,
                                             const std::set<std::size_t>& sizes) const {
    std::vector<std::string> list{
        "--collective", std::string(name(collective)),
        "--type",       std::string(name(type_)),
        "--memory",     arguments_.memory == "window" ? "window" : "malloc",
        "--ranks",      std::to_string(arguments_.ranks),
        "--cores",      std::to_string(run_.cores),
        "--slice",      std::to_string(arguments_.slice),
        "--bytes",      fmt::format("{}", fmt::join(sizes, ","))};
    if (arguments_.cold > 0) list.insert(list.end(), {"--cold", std::to_string(arguments_.cold)});
    if (arguments_.pause > 0) {
      list.insert(list.end(), {"--pause", std::to_string(arguments_.pause)});
    }
    if (run_.bound) list.insert(list.end(), {"--cpus", fmt::format("{}", fmt::join(cpus_, ","))});
    return list;
  }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text << std::flush;
    if (!file) throw_system_error(fmt::format("cannot write {}", path));
  }

  const Arguments& arguments_;
  const DataType type_;
  const std::vector<int> cpus_;
  std::unique_ptr<compare::Hosts> hosts_;  // none: this one
  std::vector<Program> programs_;
  compare::Conditions run_;
  std::vector<Row> rows_;
};

void run(const Arguments& a) {
  const auto type = parse_data_type(a.type);
  if (!type || !is_float(*type) || size_of(*type) < 2) {
    refuse(fmt::format("-d {}: float16, bfloat16, float32 and float64 can be compared", a.type));
  }
  Comparison comparison(a, *type);
  for (const std::string& collective : a.collectives) {
    comparison.measure(*parse_collective(collective));
  }
  comparison.write_files();
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  const auto names = [](std::vector<std::string> list) {
    return CLI::IsMember(std::move(list)).description("");
  };
  std::vector<std::string> peers_or_none = compare::peer_names();
  peers_or_none.push_back("none");

  command
      .add_option("COLLECTIVE", a->collectives, fmt::format("{} [all]", fmt::join(kCompared, ", ")))
      ->type_name("")
      ->check(names(kCompared));
  command.add_option("-n,--ranks", a->ranks, "How many ranks [2]")
      ->type_name("N")
      ->check(CLI::Range(2, peers::kMaxRanks));
  command.add_option("-b,--minbytes", a->least, "Smallest size; suffixes K, M, G [8]")
      ->type_name("SIZE");
  command.add_option("-e,--maxbytes", a->most, "Largest size [64M]")->type_name("SIZE");
  command.add_option("-f,--stepfactor", a->factor, "From size to size [8]")
      ->type_name("N")
      ->check(CLI::Range(2, 1 << 20));
  command.add_option("-d,--datatype", a->type, "float16, bfloat16, float32 or float64 [float32]")
      ->type_name("TYPE");
  command
      .add_option("--memory", a->memory,
                  "Tutti's buffers: window (tutti::allocate), malloc, or heap (malloc under `tutti "
                  "run --windows`) [window]")
      ->type_name("KIND")
      ->check(names({"window", "malloc", "heap"}));
  command
      .add_option(
          "--peers", a->peers,
          "openmpi, mpich, gloo, intelmpi, openmpi5, mpich5, joined by commas, or none: the "
          "limit alone [all]")
      ->type_name("NAMES")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(names(std::move(peers_or_none)));
  command.add_option("--rounds", a->rounds, "How many turns each program has on each size [25]")
      ->type_name("N")
      ->check(CLI::Range(3, 100000));
  command.add_option("--slice", a->slice, "About how long a turn lasts, in milliseconds [25]")
      ->type_name("MS")
      ->check(CLI::Range(1, 10000));
  auto* cold = command.add_option("--cold", a->cold,
                                  "Measure the first N calls of fresh processes, unwarmed");
  cold->type_name("N")->check(CLI::Range(1, 1000000));
  command.add_option("--pause", a->pause, "Sleep between calls, and measure each")
      ->type_name("MS")
      ->check(CLI::Range(1, 10000))
      ->excludes(cold);
  auto* neighbours = command.add_option(
      "--neighbours", a->neighbours,
      "So many busy loops, each a session of its own, run beside all measurements");
  neighbours->type_name("N")->check(CLI::Range(1, 1024));
  command.add_flag("--late", a->late, "The neighbours begin after the ranks, not before them")
      ->needs(neighbours)
      ->excludes(cold);
  command
      .add_option("--timeout", a->patience,
                  "Leave out a program that takes longer to start, or over a turn [120]")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 86400));
  a->bind_option = command.add_flag("--bind,!--no-bind", a->bind,
                                    "Pin rank i to core i modulo cores [if there are enough]");
  auto* hosts = command.add_flag(
      "--hosts", a->hosts,
      "Each rank on a host of its own: network namespaces of this machine (needs root), over TCP");
  command
      .add_option("--rate", a->rate,
                  "With --hosts: the most that each host sends, in Mbit/s [no limit]")
      ->type_name("MBITS")
      ->check(CLI::Range(1, 1000000))
      ->needs(hosts);
  command.add_option("--json", a->json, "Also write the rows to this file")->type_name("FILE");
  command.add_option("--svg", a->svg, "Also draw ratio over size")->type_name("FILE");
  command
      .add_option("--programs", a->programs, "Where the measuring programs are [../libexec/tutti]")
      ->type_name("FOLDER");
  command.add_flag("--verbose", a->verbose, "Also the quartiles of each time");
  command.footer(
      "ratio: the best peer's time / Tutti's; of limit: the machine's limit / Tutti's time. Both\n"
      "are medians over the rounds, with (quartiles). Quartiles that are further apart than the\n"
      "median is large give \"unsteady\" instead of a figure.\n"
      "Examples:\n"
      "  tutti compare all_reduce -n 2 -b 8 -e 64M -f 8\n"
      "  tutti compare all_reduce -n 2 --hosts -b 8 -e 16M -f 32\n"
      "  tutti compare all_to_all -n 4 --cold 100 --neighbours 2 -b 8 -e 32K --rounds 7\n"
      "  tutti compare all_reduce all_gather --memory malloc --json out.json --svg out.svg");
  command.callback([a] { run(*a); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("compare", tutti::define, argc, argv); }
