// See judge_log.h.
#include "laboratory/predict/judge_log.h"

#include <utility>

namespace tutti {
namespace {

/// What the expectation of several hosts stands or falls with: "" if somebody said it.
std::string assumed_of(const ClusterSetup& s) {
  for (const std::string& g : s.guessed) {
    if (g.find("as nothing says") != g.npos) return "say which network it is (--network)";
  }
  return "";
}

}  // namespace

VerdictReport judge_log(const std::vector<Line>& lines, const cluster::Cluster& machine,
                        const ClusterSetup& setup, const NcclCall& call,
                        const std::string& source) {
  std::vector<JudgedRow> rows;
  for (const Line& l : lines) {
    const CallKind kind = kind_of(machine, call.collective, l.predicted);
    rows.push_back({l.bytes, l.measured->us, l.predicted.us(),
                    band_of(kind, measured_bytes(machine, kind, l.bytes)),
                    kind != CallKind::unmeasured});
  }
  VerdictReport r;
  r.verdict = judge(std::move(rows), assumed_of(setup));
  r.collective = call.collective;
  r.ranks = machine.ranks();
  r.hosts = machine.hosts();
  r.source = source;
  r.machine = setup.said;
  r.guessed = setup.guessed;
  const Span* worst = r.verdict.worst();
  const bool slow = worst != nullptr && worst->outcome == Outcome::slow;
  if (r.verdict.outcome == Outcome::slow || (slow && !r.verdict.depends_on.empty())) {
    r.causes = likely_causes(
        {setup.host, setup.hosts, setup.gpus, setup.network, machine.constants(), call}, r.verdict);
  }
  return r;
}

}  // namespace tutti
