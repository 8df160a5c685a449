// See judge_log.h.
#include "laboratory/predict/judge_log.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "laboratory/predict/said_causes.h"
#include "tools/cluster/log_words.h"

namespace tutti {
namespace {

/// What the expectation stands or falls with: "" if somebody said it.
std::string assumed_of(const ClusterSetup& s) {
  std::string options;
  for (const std::string& g : s.guessed) {
    if (g.find("as nothing says") == g.npos) continue;
    const bool network = g.starts_with("network") || g.starts_with("ports");
    const std::string what = network ? "network it is (--network)" : "GPUs these are (--machine)";
    if (options.find(what) != options.npos) continue;
    options += (options.empty() ? "say which " : ", and which ") + what;
  }
  return options;
}

JudgedRow judged(const Line& l, const cluster::Cluster& machine, Collective collective,
                 const Prediction& predicted) {
  const CallKind kind = kind_of(machine, collective, predicted);
  return {l.bytes, l.measured->us, predicted.us(),
          band_of(kind, measured_bytes(machine, predicted, kind, l.bytes)),
          kind != CallKind::unmeasured};
}

/// The fastest of the usual networks on which the rows would be sound; empty: all are faster.
std::string network_that_fits(const std::vector<Line>& lines, const cluster::Cluster& machine,
                              const ClusterSetup& setup, NcclCall call) {
  constexpr std::size_t kSizes = 8;
  const int gpus = machine.ranks_of_a_host();
  std::vector<std::string> usual;
  for (const int rate : {400, 200}) usual.push_back(fmt::format("ib {}x{}G", gpus, rate));
  for (const char* const cloud : {"p5", "a3mega", "a3high"}) {
    if (gpus == 8) usual.emplace_back(cloud);
  }
  usual.push_back(fmt::format("ib {}x100G", gpus));
  for (const int rate : {200, 100}) usual.push_back(fmt::format("ib 1x{}G", rate));
  for (const int rate : {100, 25, 10}) usual.push_back(fmt::format("tcp 1x{}G", rate));
  const std::size_t step = (lines.size() + kSizes - 1) / kSizes;
  for (const std::string& words : usual) {
    const cluster::Cluster c(setup.host, setup.hosts, topology::parse_network(words),
                             machine.constants(), setup.gpus);
    std::vector<JudgedRow> rows;
    for (std::size_t i = 0; i < lines.size(); i += step) {
      call.bytes = lines[i].bytes;
      rows.push_back(judged(lines[i], c, call.collective, predict_nccl(c, call).front()));
    }
    if (judge(std::move(rows), "").outcome != Outcome::slow) return words;
  }
  return "";
}

}  // namespace

NcclCall call_of(const NcclLog& log, const cluster::Cluster& machine, Collective collective,
                 std::string& said) {
  NcclCall call;
  call.collective = collective;
  call.gpus_of_thread = log.gpus_of_thread;
  const NcclDebug& d = log.debug;
  const bool ring = collective == Collective::all_reduce || collective == Collective::all_gather ||
                    collective == Collective::reduce_scatter;
  const bool sums = collective == Collective::all_reduce;
  if (d.algorithm == "ring" && ring) call.algorithm = "ring";
  if (d.algorithm == "tree" && sums && machine.hosts() > 1) {
    call.algorithm = machine.ranks_of_a_host() == 1 ? "tree" : "hierarchical_tree";
  }
  const bool switches = sums && machine.switch_bandwidth() > 0;
  if ((d.algorithm == "nvls" || d.algorithm == "nvlstree") && switches) call.algorithm = "switch";
  if (!d.switches && switches) call.switches = false;
  for (const GpuProtocol p : kGpuProtocols) {
    if (d.protocol == lower(name(p)) && machine.possible(p)) call.protocol = p;
  }
  if (!call.algorithm.empty()) said += fmt::format("; NCCL_ALGO={}", d.algorithm);
  if (!call.switches) said += "; NCCL_NVLS_ENABLE=0";
  if (call.protocol) said += fmt::format("; NCCL_PROTO={}", d.protocol);
  return call;
}

VerdictReport judge_log(const std::vector<Line>& lines, const cluster::Cluster& machine,
                        const ClusterSetup& setup, const NcclCall& call, const NcclLog& log) {
  std::vector<JudgedRow> rows;
  for (const Line& l : lines) rows.push_back(judged(l, machine, call.collective, l.predicted));
  VerdictReport r;
  r.verdict = judge(std::move(rows), assumed_of(setup));
  r.collective = call.collective;
  r.ranks = machine.ranks();
  r.hosts = machine.hosts();
  r.source = log.source;
  r.machine = setup.said;
  r.guessed = setup.guessed;
  const Span* worst = r.verdict.worst();
  const bool slow = worst != nullptr && worst->outcome == Outcome::slow;
  if (r.verdict.outcome == Outcome::slow || (slow && !r.verdict.depends_on.empty())) {
    const PredictedMachine sound{setup.host,    setup.hosts,         setup.gpus,
                                 setup.network, machine.constants(), call};
    r.causes = likely_causes(sound, r.verdict, said_causes(log, sound));
    if (r.verdict.depends_on.find("--network") != std::string::npos) {
      const std::string fits = network_that_fits(lines, machine, setup, call);
      r.verdict.depends_on += fits.empty() ? "; no usual one is so slow"
                                           : fmt::format("; {} would be as fast as this", fits);
    }
  }
  return r;
}

}  // namespace tutti
