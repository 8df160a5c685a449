// `tutti predict`: how long collectives would take on a cluster, from its description, in the table
// of nccl-tests, beside a measured log if there is one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "collectives/cluster/choose.h"
#include "collectives/draw/run.h"
#include "core/error.h"
#include "core/settings.h"
#include "laboratory/predict/nccl_model.h"
#include "tools/cluster/cluster_setup.h"
#include "tools/cluster/nccl_log.h"
#include "tools/command_line/command.h"
#include "tools/plan_source.h"
#include "tools/terminal.h"
#include "tools/text_file.h"
#include "topology/source.h"

namespace tutti {
namespace {

using cluster::Cluster;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

struct Arguments : ClusterArguments {
  std::string collective, min = "8", max = "16G", log, algorithm, picture, heat;
  int factor = 2, gpus_of_thread = 0;
  bool list = false, csv = false, ours = false, copy_engines = false;
};

struct Line {
  double bytes = 0;
  Prediction predicted;
  std::optional<LogRow> measured;

  Line(double size, std::optional<LogRow> row) : bytes(size), measured(std::move(row)) {}
  double error() const { return 100 * (predicted.us() / measured->us - 1); }
};

std::string micro(double us) {
  return us < 100     ? fmt::format("{:.2f}", us)
         : us < 10000 ? fmt::format("{:.1f}", us)
                      : fmt::format("{:.0f}", us);
}

std::string protocol_of(const Prediction& p) {
  if (p.algorithm == nullptr) return std::string(algorithm_of(p));
  return fmt::format("{} {}", p.algorithm->name, name(p.protocol));
}

void print_table(const std::vector<Line>& lines, const Cluster& c, Collective collective,
                 const ClusterSetup& setup, const NcclLog* log) {
  const double factor = perf::bus_factor(collective, c.ranks());
  const bool reduces = is_reduction(collective);
  fmt::print("# predicted {} with {} ranks: {}\n", name(collective), c.ranks(), setup.said);
  for (const std::string& g : setup.guessed) fmt::print("# guessed: {}\n", g);
  if (log != nullptr) {
    fmt::print("# measured: {} ({} rows{})\n", log->source, log->rows.size(),
               log->left_out > 0 ? fmt::format(", {} that are not whole", log->left_out) : "");
    if (log->of_others > 0) {
      fmt::print("# {} rows of other tests in it are left out; a collective's name asks for them\n",
                 log->of_others);
    }
  }
  fmt::print("#\n#{:>12}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}", "size", "count", "type", "redop",
             "root", "time", "algbw", "busbw");
  fmt::print("{}", log == nullptr ? "  by\n" : "   measured    error  by\n");
  fmt::print("#{:>12}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}{}\n", "(B)", "(elements)", "", "", "",
             "(us)", "(GB/s)", "(GB/s)", log == nullptr ? "" : "       (us)      (%)");
  const bool by_rank = collective != Collective::all_reduce &&
                       collective != Collective::broadcast && collective != Collective::reduce;
  for (const Line& l : lines) {
    const double algbw = l.bytes / l.predicted.us() / 1000;
    fmt::print("{:>13.0f}{:>14.0f}{:>10}{:>8}{:>8}{:>11}{:>9.2f}{:>9.2f}", l.bytes,
               std::floor(l.bytes / 4 / (by_rank ? c.ranks() : 1)), "float",
               reduces ? "sum" : "none", is_rooted(collective) ? 0 : -1, micro(l.predicted.us()),
               algbw, algbw * factor);
    if (l.measured) fmt::print("{:>11}{:>+9.1f}", micro(l.measured->us), l.error());
    fmt::print("  {}\n", protocol_of(l.predicted));
  }
}

/// Nearest rank.
double percentile(std::vector<double> all, double part) {
  std::ranges::sort(all);
  const auto n = static_cast<double>(all.size());
  return all[static_cast<std::size_t>(std::max(0.0, std::ceil(part * n) - 1))];
}

void print_errors(const std::vector<Line>& lines) {
  std::vector<double> errors;
  for (const Line& l : lines) {
    if (l.measured && l.bytes >= 1024) errors.push_back(std::abs(l.error()));
  }
  if (errors.empty()) return;
  fmt::print("# error of {} rows of 1 KiB and more: median {:.1f} %, 90th percentile {:.1f} %\n",
             errors.size(), percentile(errors, 0.5), percentile(errors, 0.9));
}

/// The fastest first.
std::vector<Prediction> predictions(const Arguments& a, const Cluster& c, const NcclCall& call) {
  if (!a.ours) return predict_nccl(c, call);
  Prediction ours =
      cluster::choose(c, {call.collective, static_cast<std::size_t>(call.bytes), DataType::uint8});
  ours.ns += 1000 * us_of_launches(c, call);
  return {ours};
}

/// Pictures of the last size, by the fastest algorithm that is simulated message by message.
void draw(const Arguments& a, const Cluster& c, const NcclCall& call) {
  const std::vector<Prediction> all = predictions(a, c, call);
  const auto plan =
      std::ranges::find_if(all, [](const Prediction& p) { return p.algorithm != nullptr; });
  const Prediction p = plan == all.end() ? all.front() : *plan;
  const cluster::Simulated run = simulate_nccl(c, call, p, true);
  const std::string title = fmt::format(
      "{} of {:.0f} bytes, {} ranks: {}, {} tile{}, {:.1f} us without the call{}",
      name(call.collective), call.bytes, c.ranks(), protocol_of(p), p.tiles,
      p.tiles == 1 ? "" : "s", run.us,
      run.unit < c.hosts() ? fmt::format("; {} of {} equal hosts", run.unit, c.hosts()) : "");
  if (!a.picture.empty()) write_text_file(a.picture, draw_run(run, title));
  if (!a.heat.empty()) write_text_file(a.heat, draw_heat(run, title));
}

void run(const Arguments& a) {
  if (a.list) return print_constants(a);
  std::optional<Collective> collective;
  if (!a.collective.empty()) collective = collective_named(a.collective);
  std::optional<NcclLog> log;
  if (!a.log.empty()) {
    log = parse_nccl_log(a.log == "-" ? read_text("-", "log") : topology::read_file(a.log), a.log,
                         collective);
    if (log->rows.empty()) {
      refuse(fmt::format(
          "{} has no row as nccl-tests prints them (size, count, type, time, algbw, "
          "busbw){}",
          a.log, log->left_out > 0 ? fmt::format("; {} are not whole", log->left_out) : ""));
    }
  }
  if (!collective && log) {
    if (!log->unpredicted.empty()) {
      refuse(fmt::format("{}: {} is no collective that is predicted", a.log, log->unpredicted));
    }
    collective = log->collective;
  }
  if (!collective) refuse("say which collective: all_reduce, all_gather, ...");
  const GpuConstants constants = constants_of(a);
  const ClusterSetup s = set_up(a, log ? &*log : nullptr);
  const Cluster c(s.host, s.hosts, s.network, constants, s.gpus);

  NcclCall call;
  call.collective = *collective;
  call.algorithm = a.algorithm;
  call.copy_engines = a.copy_engines;
  call.gpus_of_thread = a.gpus_of_thread > 0 ? a.gpus_of_thread : log ? log->gpus_of_thread : 1;
  std::vector<Line> lines;
  if (log) {
    for (const LogRow& row : log->rows) {
      lines.emplace_back(static_cast<double>(row.bytes), row);
    }
  } else {
    const double most = static_cast<double>(parse_bytes(a.max));
    if (a.factor < 2) refuse("-f: 2 or more");
    for (double b = std::max(1.0, static_cast<double>(parse_bytes(a.min))); b <= most;
         b *= a.factor) {
      lines.emplace_back(b, std::nullopt);
    }
    if (lines.empty()) refuse("-b is more than -e");
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    show_progress(fmt::format("size {} of {}", i + 1, lines.size()));
    call.bytes = lines[i].bytes;
    lines[i].predicted = predictions(a, c, call).front();
  }
  show_progress("");
  if (!a.picture.empty() || !a.heat.empty()) {
    draw(a, c, call);
  }
  if (a.csv) {
    for (const std::string& g : s.guessed) fmt::print(stderr, "tutti: guessed: {}\n", g);
    for (const Line& l : lines) {
      fmt::print("{:.0f},{:.3f},{},{}\n", l.bytes, l.predicted.us(), protocol_of(l.predicted),
                 l.measured ? fmt::format("{}", l.measured->us) : "");
    }
    return;
  }
  print_table(lines, c, *collective, s, log ? &*log : nullptr);
  print_errors(lines);
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  command.add_option("collective", a->collective, "all_reduce, all_gather, ... [the log's]")
      ->type_name("COLLECTIVE");
  auto* machine = command.add_option_group("Machine");
  machine
      ->add_option("-t,--topology", a->topology, "A host: any file that `tutti topo --file` reads")
      ->type_name("FILE");
  machine
      ->add_option("-m,--machine", a->machine,
                   "A host by its GPUs: 8xH100, 2xRTX4090, '2xA100-PCIe nvlink'; with --topology, "
                   "for the models and links that the file does not name")
      ->type_name("TEXT");
  command.add_option("-H,--hosts", a->hosts, "Equal hosts [1, or the log's]")
      ->check(CLI::Range(1, 100'000'000));
  command.add_option("-g,--gpus", a->gpus, "GPUs of each host that are used [all]")
      ->check(CLI::Range(1, 100'000'000));
  command
      .add_option("-N,--network", a->network,
                  "Between hosts: a kind (ib, roce, efa, tcpxo, tcpx, tcp) or a cloud's machine "
                  "(p5, a3mega), ports (8x400G), leaf=32 oversubscription=2 sharp latency=5us "
                  "efficiency=0.9")
      ->type_name("TEXT");
  command.add_option("-b,--min", a->min, "The first size")
      ->type_name("BYTES")
      ->capture_default_str();
  command.add_option("-e,--max", a->max, "The last size")
      ->type_name("BYTES")
      ->capture_default_str();
  command.add_option("-f,--factor", a->factor, "From one size to the next")->capture_default_str();
  command
      .add_option("--launches", a->gpus_of_thread,
                  "GPUs that one thread starts, as with -g of nccl-tests [1, or the log's]")
      ->check(CLI::Range(1, 100'000'000));
  auto* ours =
      command.add_flag("--ours", a->ours, "Predict the fastest of Tutti's plans instead of NCCL");
  command.add_option("-l,--log", a->log, "The output of nccl-tests, to compare with; - is stdin")
      ->type_name("FILE");
  auto* algorithm =
      command.add_option("-a,--algorithm", a->algorithm,
                         "Only this algorithm: ring, hierarchical_tree, switch, ... [the fastest]");
  command
      .add_flag("--copy-engines", a->copy_engines,
                "By copy engines instead of kernels, as NCCL does for symmetric windows with "
                "NCCL_CTA_POLICY_ZERO: all_gather, all_to_all, gather and scatter inside of a host")
      ->excludes(ours)
      ->excludes(algorithm);
  command
      .add_option("--set", a->constants, "Another value for a constant: staging=18, roce.latency=9")
      ->type_name("NAME=VALUE");
  command.add_flag("--constants", a->list, "Print all constants with their sources");
  command.add_option("--svg", a->picture, "Draw which GPU sends when, for the last size")
      ->type_name("FILE");
  command.add_option("--heat", a->heat, "Draw which link is busy when, for the last size")
      ->type_name("FILE");
  command.add_flag("--csv", a->csv, "bytes, predicted us, by what, measured us");
  command.footer(
      "docs/topology.md says how to describe a cluster, and how good the predictions are.");
  command.callback([a] { run(*a); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("predict", tutti::define, argc, argv); }
