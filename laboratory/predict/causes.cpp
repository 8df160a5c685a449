// See causes.h.
#include "laboratory/predict/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>

#include "core/error.h"
#include "laboratory/predict/altered_machine.h"

namespace tutti {
namespace {

/// Sizes that are compared, spread over all; and hosts, of which more are hardly slower.
constexpr std::size_t kSizes = 10;
constexpr int kHosts = 2;
/// Sizes times ranks, so that all causes together take a few seconds; and sizes at least.
constexpr std::size_t kRankSizes = 160, kFewSizes = 3;
/// What a value that is free to fit costs, so that a cause without one comes first.
constexpr double kFreedom = 0.02;
/// A cause has to take away so much of what is unexplained.
constexpr double kWorthwhile = 0.7;

/// A change of the machine by a value that is not known, of which these are tried.
struct Suspect {
  std::string id;
  std::vector<double> values;
  /// False where it does not apply to such machines.
  std::function<bool(PredictedMachine&, double)> change;
  std::function<std::string(double)> what;
  std::string look_at;
};

std::string part(double of) {
  if (of > 0.7) return fmt::format("{:.0f} %", 100 * of);
  return of > 0.4    ? "half"
         : of > 0.29 ? "a third"
         : of > 0.2  ? "a quarter"
                     : fmt::format("{:.0f} %", 100 * of);
}

bool has_links(const PredictedMachine& m) {
  return std::ranges::any_of(m.host.links(),
                             [](const topology::Link& l) { return is_gpu_link(l); });
}

/// In the order in which they come where they fit as well.
std::vector<Suspect> suspects(const PredictedMachine& sound) {
  const int ports = ports_of(sound);
  const double rate = rate_of(sound);
  using M = PredictedMachine;
  return {
      {"one_port",
       {1.0, 2.0, ports / 2.0},
       [ports](M& m, double used) {
         if (m.hosts == 1 || ports < 2 || used >= ports || used < 1) return false;
         m.network.rate = rate_of(m);
         m.network.ports = static_cast<int>(used);
         return true;
       },
       [ports](double used) {
         return fmt::format("{:.0f} of {} ports {} everything between hosts", used, ports,
                            used > 1 ? "carry" : "carries");
       },
       "NCCL_DEBUG=INFO: the line 'NET/IB : Using' lists the ports; NCCL_IB_HCA, NCCL_CROSS_NIC, "
       "and "
       "ports that are down (ibstat)"},
      {"slow_rail",
       {0.5, 0.25, 0.125},
       [ports](M& m, double of) {
         if (m.hosts == 1 || ports < 2) return false;
         m.network.rate = rate_of(m) * of;
         m.network.ports = ports;
         return true;
       },
       [](double of) {
         return fmt::format(
             "one rail at {} of its rate, or missing, so that two GPUs share a port: "
             "rings are as slow as the slowest rail",
             part(of));
       },
       "ib_write_bw by rail, between the same ports of all hosts; error counters (perfquery), "
       "cables, "
       "the leaf's switch"},
      {"port_rate",
       {0.5, 0.25},
       [ports](M& m, double of) {
         if (m.hosts == 1) return false;
         m.network.rate = rate_of(m) * of;
         m.network.ports = ports;
         return true;
       },
       [rate](double of) {
         return fmt::format(
             "all ports run at {:g}G where {:g}G are expected (HDR for NDR), or the "
             "network above them is oversubscribed",
             rate * of, rate);
       },
       "ibstat, ethtool: the rate of each port; PCI width and speed of the NICs (lspci -vv, "
       "LnkSta); "
       "the same test on hosts of one leaf"},
      {"no_gpudirect",
       {0.5, 0.35, 0.2},
       [ports](M& m, double of) {
         if (m.hosts == 1) return false;
         m.network.rate = rate_of(m);
         m.network.ports = ports;
         m.network.efficiency *= of;
         m.network.latency += 8;
         return true;
       },
       [](double) { return std::string("data go through memory of the host (no GPUDirect RDMA)"); },
       "NCCL_DEBUG=INFO: 'via NET/IB/0' without '/GDRDMA'; the module nvidia_peermem, or DMA-BUF; "
       "NCCL_NET_GDR_LEVEL; ACS and the IOMMU of PCI switches"},
      {"tcp",
       {100, 25, 10},
       [](M& m, double gigabits) {
         if (m.hosts == 1 || m.network.kind == "tcp") return false;
         m.network = topology::parse_network(fmt::format("tcp 1x{:g}G", gigabits));
         return true;
       },
       [](double gigabits) {
         return fmt::format("sockets instead of RDMA, over a port of some {:g}G", gigabits);
       },
       "NCCL_DEBUG=INFO: 'NET/Socket' instead of 'NET/IB' or 'NET/OFI'; NCCL_IB_DISABLE, the "
       "network "
       "plugin, /dev/infiniband in containers, NCCL_SOCKET_IFNAME"},
      {"pci_for_nvlink",
       {1},
       [](M& m, double) {
         if (!has_links(m)) return false;
         m.host = without_gpu_links(m.host, true);
         return true;
       },
       [](double) { return std::string("GPUs reach each other over PCI instead of NVLink"); },
       "nvidia-smi topo -m and nvidia-smi nvlink -s; the service nvidia-fabricmanager; "
       "NCCL_DEBUG=INFO: "
       "'via P2P' and the path type (PHB, SYS where NVL is due); NCCL_P2P_LEVEL"},
      {"no_peer_access",
       {1},
       [](M& m, double) {
         m.host = without_gpu_links(m.host, false);
         return true;
       },
       [](double) {
         return std::string("GPUs of a host reach each other through memory of the host alone");
       },
       "NCCL_DEBUG=INFO: 'via SHM' where 'via P2P' is due; NCCL_P2P_DISABLE, ACS (lspci -vv: "
       "ACSCtl), "
       "containers with GPUs but without their peers"},
      {"fewer_gpu_links",
       {0.75, 0.5, 0.25},
       [](M& m, double of) {
         if (!has_links(m)) return false;
         m.host = with_gpu_links(m.host, of);
         return true;
       },
       [](double of) {
         return fmt::format(
             "a GPU's NVLinks carry {} of their rate: links are down, or NCCL uses few "
             "channels",
             part(of));
       },
       "nvidia-smi nvlink -s on each GPU, dmesg (Xid 74); NCCL_DEBUG=INFO: the number of channels, "
       "NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS"},
      {"no_switch_sums",
       {1},
       [](M& m, double) {
         if (m.call.collective != Collective::all_reduce || !m.call.algorithm.empty()) return false;
         m.call.algorithm = m.hosts == 1 ? "ring" : "hierarchical_tree";
         return true;
       },
       [](double) { return std::string("NVSwitch does not reduce (no NVLS)"); },
       "NCCL_DEBUG=INFO: 'NVLS multicast support is available'; NCCL_NVLS_ENABLE, NCCL_ALGO, the "
       "fabric "
       "manager, NCCL older than 2.17"},
      {"protocol",
       {0, 1},
       [](M& m, double which) {
         m.call.protocol = which == 0 ? GpuProtocol::ll : GpuProtocol::ll128;
         return true;
       },
       [](double which) {
         return fmt::format("{} where Simple is due", which == 0 ? "LL" : "LL128");
       },
       "NCCL_PROTO, NCCL_ALGO, a tuner plugin (NCCL_TUNER_PLUGIN); NCCL_DEBUG=INFO "
       "NCCL_DEBUG_SUBSYS=TUNING says what is chosen"},
      {"pci_rate",
       {0.5, 0.25},
       [](M& m, double of) {
         m.host = with_pci(m.host, of);
         return true;
       },
       [](double of) {
         return fmt::format("PCI links of GPUs at {} of their speed or width", part(of));
       },
       "nvidia-smi -q -d PCI and lspci -vv under load: LnkSta beside LnkCap"},
      {"numa",
       {0.6},
       [ports](M& m, double of) {
         slow_down(m.constants, 1.4);
         m.host = with_pci(m.host, of);
         if (m.hosts > 1) {
           m.network.rate = rate_of(m) * of;
           m.network.ports = ports;
           m.network.latency += 3;
         }
         return true;
       },
       [](double) { return std::string("processes, GPUs and ports on different sockets (NUMA)"); },
       "tutti topo --matrix, nvidia-smi topo -m: ports at SYS; the launcher's binding, "
       "NCCL_IGNORE_CPU_AFFINITY; in virtual machines a topology file (NCCL_TOPO_FILE)"},
      {"cold",
       {1.6, 2.5, 5},
       [](M& m, double times) {
         slow_down(m.constants, times);
         m.network.latency = m.network.latency * times + (m.hosts > 1 ? 3 * (times - 1) : 0);
         return true;
       },
       [](double times) {
         return fmt::format(
             "each call and message takes some {:g} times longer: clocks are down, "
             "processors are busy or save power, or there was no warm-up",
             times);
       },
       "nvidia-smi -q -d CLOCK,PERFORMANCE under load; the governor (cpupower), other processes "
       "on the cores of NCCL's proxies; nccl-tests' -w"},
  };
}

/// Rows at about so many sizes.
std::vector<JudgedRow> some_of(const SpeedVerdict& verdict, std::size_t sizes) {
  std::vector<JudgedRow> all, some;
  for (const Span& s : verdict.spans) all.insert(all.end(), s.rows.begin(), s.rows.end());
  const std::size_t most = std::min(all.size(), sizes);
  for (std::size_t i = 0; i < most; ++i) {
    some.push_back(all[most == 1 ? 0 : i * (all.size() - 1) / (most - 1)]);
  }
  return some;
}

std::vector<double> times_of(PredictedMachine m, const std::vector<JudgedRow>& rows) {
  const cluster::Cluster c(m.host, m.hosts, m.network, m.constants, m.gpus);
  std::vector<double> us;
  for (const JudgedRow& row : rows) {
    m.call.bytes = row.bytes;
    us.push_back(predict_nccl(c, m.call).front().us());
  }
  return us;
}

}  // namespace

std::vector<Cause> likely_causes(const PredictedMachine& machine, const SpeedVerdict& verdict,
                                 const SaidCauses& said, std::size_t most) {
  std::vector<Cause> found;
  if (verdict.stalls.size() >= 2) {
    found.push_back(
        {"stalls",
         fmt::format("{} sizes take longer than larger ones do: packets are lost, or "
                     "flows hold each other up",
                     verdict.stalls.size()),
         "counters of retransmission and congestion (perfquery, ethtool -S: out_of_sequence, "
         "rnr_nak, pause, ECN); PFC and adaptive routing; other jobs",
         1});
  }
  PredictedMachine sound = machine;
  sound.hosts = std::min(sound.hosts, kHosts);
  const std::size_t gpus = sound.gpus > 0 ? static_cast<std::size_t>(sound.gpus)
                                          : std::max<std::size_t>(sound.host.gpus().size(), 1);
  const std::size_t ranks = static_cast<std::size_t>(sound.hosts) * gpus;
  const std::vector<JudgedRow> rows =
      some_of(verdict, std::clamp(kRankSizes / ranks, kFewSizes, kSizes));
  const std::vector<double> base = times_of(sound, rows);
  const auto off_by = [&](const std::vector<double>& us) {
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      sum += std::abs(std::log(rows[i].ratio()) - std::log(us[i] / base[i]));
    }
    return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
  };
  const double unexplained = off_by(base);
  std::vector<std::pair<double, Cause>> fits;
  for (const Suspect& suspect : suspects(sound)) {
    const auto known = said.find(suspect.id);
    const bool is_so = known != said.end() && known->second;
    if (known != said.end() && !is_so) continue;
    double best = is_so ? std::numeric_limits<double>::infinity() : unexplained * kWorthwhile;
    std::optional<Cause> cause;
    for (const double value : suspect.values) {
      PredictedMachine changed = sound;
      if (!suspect.change(changed, value)) continue;
      try {
        const double off =
            off_by(times_of(changed, rows)) + (suspect.values.size() > 1 ? kFreedom : 0);
        if (off >= best) continue;
        best = off;
        cause = Cause{suspect.id, suspect.what(value), suspect.look_at, std::exp(off), is_so};
      } catch (const Error& e) {
        if (e.code() != ErrorCode::invalid_argument) throw;  // else: such a machine cannot do it
      }
    }
    if (cause) fits.emplace_back(best, *cause);
  }
  std::ranges::stable_sort(fits, {}, &std::pair<double, Cause>::first);
  for (const auto& [off, cause] : fits) found.push_back(cause);
  std::ranges::stable_partition(found, &Cause::said);
  if (found.size() > most) found.resize(most);
  return found;
}

}  // namespace tutti
