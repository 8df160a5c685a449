// `tutti predict`: how long collectives would take on a cluster, from its description, in the table
// of nccl-tests; beside a measured log, and with a verdict on it, if there is one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/cluster/choose.h"
#include "collectives/draw/run.h"
#include "core/error.h"
#include "core/settings.h"
#include "laboratory/predict/evidence.h"
#include "laboratory/predict/judge_log.h"
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
  bool list = false, csv = false, json = false, ours = false, copy_engines = false;
};

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

/// Ends with what it returns.
int run(const Arguments& a) {
  NcclConstants nccl;
  ClusterArguments machine = a;
  std::erase_if(machine.constants,
                [&](const std::string& text) { return override_constant(nccl, text); });
  if (a.list) {
    print_constants(machine);
    for (const Constant<NcclConstants>& line : nccl_constants()) {
      print_wrapped(fmt::format("{:<16} {:>4g} {:<5} ", line.name, nccl.*line.value, line.unit),
                    line.meaning);
    }
    return 0;
  }
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
  const ClusterSetup s = set_up(machine, log ? &*log : nullptr);
  const GpuConstants constants = of_generation(constants_of(machine), nccl, s.host);
  const Cluster c(s.host, s.hosts, s.network, constants, s.gpus);

  NcclCall call;
  call.nccl = nccl;
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
    lines[i].known = a.ours || kind_of(c, *collective, lines[i].predicted) != CallKind::unmeasured;
  }
  show_progress("");
  if (!a.picture.empty() || !a.heat.empty()) {
    draw(a, c, call);
  }
  if (a.csv) {
    for (const std::string& g : s.guessed) fmt::print(stderr, "tutti: guessed: {}\n", g);
    for (const Line& l : lines) {
      const CallKind kind = a.ours ? CallKind::unmeasured : kind_of(c, *collective, l.predicted);
      const double like = measured_bytes(c, kind, l.bytes);
      const Band band = band_of(kind, like);
      fmt::print("{:.0f},{:.3f},{},{},{},{:.0f},{:.4f},{:.3f},{:.3f}\n", l.bytes, l.predicted.us(),
                 protocol_of(l.predicted), l.measured ? fmt::format("{}", l.measured->us) : "",
                 name(kind), like, ramp(kind, like), l.predicted.us() * band.low,
                 l.predicted.us() * band.high);
    }
    return 0;
  }
  std::optional<VerdictReport> report;
  if (log && !a.ours) {
    show_progress("what is wrong");
    report = judge_log(lines, c, s, call, log->source);
    show_progress("");
  }
  if (a.json) {
    if (!report) refuse("--json is for the verdict on a log of NCCL's (--log, without --ours)");
    fmt::print("{}\n", json_of(*report));
    return exit_status(report->verdict);
  }
  if (report) fmt::print("{}\n", text_of(*report));
  print_table(lines, c, *collective, s, log ? &*log : nullptr);
  print_errors(lines);
  return report ? exit_status(report->verdict) : 0;
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  command
      .add_option("collective,--collective", a->collective,
                  "all_reduce, all_gather, ... [the log's]")
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
  auto* csv = command.add_flag("--csv", a->csv,
                               "bytes, predicted us, by what, measured us, kind, bytes of measured "
                               "machines, ramp, band (us)");
  command.add_flag("--json", a->json, "The verdict on a log, for programs")->excludes(csv);
  command.footer(
      "docs/topology.md says how to describe a cluster, docs/verdict.md what the verdict on a log "
      "means, and how good both are. With --log the exit status is 0 (fine), 1 (slow), 2 (used "
      "wrongly) or 3 (no verdict); with --csv it is 0.");
  command.callback([a] {
    if (const int status = run(*a); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("predict", tutti::define, argc, argv); }
