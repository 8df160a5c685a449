// See said_causes.h.
#include "laboratory/predict/said_causes.h"

#include <algorithm>

#include "laboratory/predict/altered_machine.h"
#include "topology/abilities.h"
#include "topology/constants.h"

namespace tutti {
namespace {

/// GB/s that a channel of NCCL's carries inside of a host, at most: the largest that its search
/// tries (graph/search.cc).
constexpr double kOfChannel = 40;
/// Channels that carry less than this part of a GPU's links are too few.
constexpr double kFew = 0.6;
/// From so many bytes on, NCCL takes neither LL nor LL128, and reduces in switches that can.
constexpr std::int64_t kLong = 256 << 20;

bool has_gpudirect(const std::string& kind) {
  return kind == "ib" || kind == "roce" || kind == "efa";
}

/// GB/s of the first GPU's own links, one way.
double links_of_a_gpu(const topology::Graph& host) {
  double rate = 0;
  for (const int l : host.out(host.gpus().front())) {
    if (is_gpu_link(host.link(l))) rate += host.link(l).bandwidth;
  }
  return rate;
}

void between_hosts(const NcclDebug& d, const PredictedMachine& m, SaidCauses& said) {
  const std::string& kind = d.network.empty() ? m.network.kind : d.network;
  if (!d.network.empty()) said["tcp"] = d.network == "tcp" && m.network.kind != "tcp";
  if (d.direct + d.staged > 0 && has_gpudirect(kind)) said["no_gpudirect"] = d.staged > 0;
  const int ports = ports_of(m), used = static_cast<int>(d.ports.size());
  if (used > 0) said["one_port"] = used < ports;
  const double rate = used > 0 ? *std::ranges::max_element(d.ports) : 0;
  // Ports with their rate may still share a narrow network.
  if (rate > 0 && rate < 0.75 * rate_of(m)) said["port_rate"] = true;
}

void inside_of_hosts(const NcclDebug& d, const PredictedMachine& m, SaidCauses& said) {
  if (d.peer + d.memory > 0) said["no_peer_access"] = d.peer == 0;
  if (d.nvlink > 0) said["pci_for_nvlink"] = false;
  if (d.channels > 0 && d.channels * kOfChannel < kFew * links_of_a_gpu(m.host)) {
    said["fewer_gpu_links"] = true;
  }
}

void of_choices(const NcclDebug& d, const PredictedMachine& m, SaidCauses& said) {
  const auto& gpu = m.host.node(m.host.gpus().front());
  const bool reduces =
      m.call.collective == Collective::all_reduce && topology::switch_reduces(gpu.model);
  for (const NcclDebug::Choice& c : d.choices) {
    if (c.bytes < kLong) continue;
    const bool simple = c.protocol == "simple";
    said["protocol"] = said["protocol"] || !simple;
    if (reduces) said["no_switch_sums"] = !c.algorithm.starts_with("nvls");
  }
}

}  // namespace

SaidCauses said_causes(const NcclLog& log, const PredictedMachine& machine) {
  SaidCauses said;
  if (machine.hosts > 1) between_hosts(log.debug, machine, said);
  inside_of_hosts(log.debug, machine, said);
  of_choices(log.debug, machine, said);
  if (log.warmups == 0) said["cold"] = true;
  return said;
}

}  // namespace tutti
