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

/// A table: what it is of, and its sizes with predictions.
struct Predicted {
  ClusterSetup setup;
  Cluster cluster;
  NcclCall call;
  std::vector<Line> lines;
  const NcclLog* log = nullptr;
};

std::vector<Line> lines_of(const Arguments& a, const NcclLog* log) {
  std::vector<Line> lines;
  if (log != nullptr) {
    for (const LogRow& row : log->rows) lines.emplace_back(static_cast<double>(row.bytes), row);
    return lines;
  }
  const double most = static_cast<double>(parse_bytes(a.max));
  if (a.factor < 2) refuse("-f: 2 or more");
  for (double b = std::max(1.0, static_cast<double>(parse_bytes(a.min))); b <= most;
       b *= a.factor) {
    lines.emplace_back(b, std::nullopt);
  }
  if (lines.empty()) refuse("-b is more than -e");
  return lines;
}

/// `machine`: without the constants that `nccl` has. `title` says on a terminal what is under way.
Predicted predicted(const Arguments& a, const ClusterArguments& machine, const NcclConstants& nccl,
                    Collective collective, const NcclLog* log, const std::string& title) {
  ClusterSetup s = set_up(machine, log);
  const GpuConstants constants = of_generation(constants_of(machine), nccl, s.host);
  Cluster c(s.host, s.hosts, s.network, constants, s.gpus);
  Predicted p{std::move(s), std::move(c), {}, lines_of(a, log), log};
  p.call.collective = collective;
  if (log != nullptr) p.call = call_of(*log, p.cluster, collective, p.setup.said);
  p.call.nccl = nccl;
  if (!a.algorithm.empty()) p.call.algorithm = a.algorithm;
  p.call.copy_engines = a.copy_engines;
  if (a.gpus_of_thread > 0) p.call.gpus_of_thread = a.gpus_of_thread;
  for (std::size_t i = 0; i < p.lines.size(); ++i) {
    Line& line = p.lines[i];
    show_progress(fmt::format("{}size {} of {}", title, i + 1, p.lines.size()));
    p.call.bytes = line.bytes;
    line.predicted = predictions(a, p.cluster, p.call).front();
    line.known = a.ours || kind_of(p.cluster, collective, line.predicted) != CallKind::unmeasured;
  }
  show_progress("");
  return p;
}

void print_csv(const Arguments& a, const Predicted& p) {
  for (const std::string& g : p.setup.guessed) fmt::print(stderr, "tutti: guessed: {}\n", g);
  for (const Line& l : p.lines) {
    const CallKind kind =
        a.ours ? CallKind::unmeasured : kind_of(p.cluster, p.call.collective, l.predicted);
    const double like = measured_bytes(p.cluster, l.predicted, kind, l.bytes);
    const Band band = band_of(kind, like);
    fmt::print("{:.0f},{:.3f},{},{},{},{:.0f},{:.4f},{:.3f},{:.3f}\n", l.bytes, l.predicted.us(),
               protocol_of(l.predicted), l.measured ? fmt::format("{}", l.measured->us) : "",
               name(kind), like, ramp(kind, like), l.predicted.us() * band.low,
               l.predicted.us() * band.high);
  }
}

/// The log's tables of `wanted`, or all; at least one with rows.
std::vector<NcclLog> tables_of(const std::string& path, std::optional<Collective> wanted) {
  std::vector<NcclLog> tables =
      parse_nccl_logs(path == "-" ? read_text("-", "log") : topology::read_file(path), path);
  const int left_out = tables.front().left_out;
  if (wanted) {
    const auto is_other = [&](const NcclLog& t) { return t.collective != wanted; };
    // The name of a log's only test is the user's to say.
    if (std::ranges::all_of(tables, is_other)) {
      tables.resize(1);
    } else {
      std::erase_if(tables, is_other);
    }
  }
  std::erase_if(tables, [](const NcclLog& t) { return t.rows.empty(); });
  std::size_t rows = 0;
  for (const NcclLog& t : tables) rows += t.rows.size();
  for (NcclLog& t : tables) {
    t.of_others -= static_cast<int>(rows - t.rows.size());  // those are printed, too
  }
  if (tables.empty()) {
    refuse(
        fmt::format("{} has no row as nccl-tests prints them (size, count, type, time, algbw, "
                    "busbw){}",
                    path, left_out > 0 ? fmt::format("; {} are not whole", left_out) : ""));
  }
  return tables;
}

Collective collective_of(const NcclLog& table, std::optional<Collective> wanted) {
  if (wanted) return *wanted;
  if (!table.unpredicted.empty()) {
    refuse(
        fmt::format("{}: {} is no collective that is predicted", table.source, table.unpredicted));
  }
  if (!table.collective) refuse("say which collective: all_reduce, all_gather, ...");
  return *table.collective;
}

/// The tables of a log; what it returns ends the program.
int run_log(const Arguments& a, const ClusterArguments& machine, const NcclConstants& nccl,
            std::optional<Collective> wanted) {
  const std::vector<NcclLog> tables = tables_of(a.log, wanted);
  std::vector<Predicted> all;
  std::vector<VerdictReport> reports;
  for (const NcclLog& table : tables) {
    const std::string title =
        tables.size() == 1 ? ""
                           : fmt::format("table {} of {}, ", reports.size() + 1, tables.size());
    try {
      Predicted p = predicted(a, machine, nccl, collective_of(table, wanted), &table, title);
      if (!a.ours && !a.csv) {
        show_progress(title + "what is wrong");
        reports.push_back(judge_log(p.lines, p.cluster, p.setup, p.call, table));
        show_progress("");
      }
      all.push_back(std::move(p));  // a table with a report, or neither
    } catch (const Error& e) {
      // One test of many that cannot be judged leaves the others their verdicts.
      if (tables.size() == 1 || e.code() != ErrorCode::invalid_argument) throw;
      if (a.ours || a.csv) fmt::print(stderr, "tutti: {}{}\n", title, e.what());
      VerdictReport& r = reports.emplace_back();
      r.collective = table.collective.value_or(Collective::all_reduce);
      r.ranks = table.ranks;
      r.hosts = table.hosts;
      r.source = table.source;
      r.refused = e.what();
    }
  }
  if (a.json) {
    if (a.ours || a.csv)
      refuse("--json is for the verdict on a log of NCCL's, without --ours and --csv");
    fmt::print("{}\n", json_of(reports));
    return exit_status(reports);
  }
  if (!a.csv && tables.size() > 1 && !a.ours) fmt::print("{}\n", summary_of(reports));
  std::size_t report = 0;
  for (const Predicted& p : all) {
    if (a.csv) {
      print_csv(a, p);
      continue;
    }
    if (!a.ours) {
      while (!reports[report].refused.empty()) ++report;
      fmt::print("{}\n", text_of(reports[report++]));
    }
    print_table(p.lines, p.cluster, p.call.collective, p.setup, p.log);
    print_errors(p.lines);
    if (&p != &all.back()) fmt::print("\n");
  }
  if (!all.empty() && !(a.picture.empty() && a.heat.empty())) {
    draw(a, all.back().cluster, all.back().call);
  }
  return a.csv || a.ours ? 0 : exit_status(reports);
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
  if (!a.log.empty()) return run_log(a, machine, nccl, collective);
  if (a.json) refuse("--json is for the verdict on a log (--log)");
  if (!collective) refuse("say which collective: all_reduce, all_gather, ...");
  const Predicted p = predicted(a, machine, nccl, *collective, nullptr, "");
  if (!(a.picture.empty() && a.heat.empty())) draw(a, p.cluster, p.call);
  if (a.csv) {
    print_csv(a, p);
  } else {
    print_table(p.lines, p.cluster, *collective, p.setup, nullptr);
  }
  return 0;
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
      .add_option(
          "-N,--network", a->network,
          "Between hosts: a kind (ib, roce, efa, slingshot, tcpxo, tcpx, tcp) or a cloud's machine "
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
