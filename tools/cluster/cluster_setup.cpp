// See cluster_setup.h.
#include "tools/cluster/cluster_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/counted.h"
#include "core/error.h"
#include "tools/terminal.h"
#include "tools/topology_source.h"
#include "topology/abilities.h"
#include "topology/describe.h"
#include "topology/fill.h"
#include "topology/nics.h"
#include "topology/source.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// What the name of a log says of the network: the names of clouds, machines and kinds in it.
std::string network_in(const std::string& path) {
  std::string words, word;
  const std::string name = file_name(path) + "_";
  std::vector<std::string> found;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    found.push_back(std::move(word));
    word.clear();
  }
  // In the order of the table, so that what says more comes later.
  for (const auto& n : topology::network_names()) {
    if (std::ranges::find(found, n.name) != found.end()) words += std::string(n.name) + " ";
  }
  for (const auto& k : topology::network_kinds()) {
    if (std::ranges::find(found, k.name) != found.end()) words += std::string(k.name) + " ";
  }
  if (std::ranges::find(found, "sharp") != found.end()) words += "sharp ";
  return words;
}

/// What a log's network is: as NCCL says, and as far as it does not, as the log's name says.
std::string network_of(const NcclLog& log, std::vector<std::string>& guessed) {
  const std::string said = log.debug.network_words();
  if (said.find('G') != said.npos) return said;
  std::string named = network_in(log.source);
  if (!named.empty()) {
    named.pop_back();
    if (log.hosts > 1) guessed.push_back(fmt::format("network {}, by the log's name", named));
  }
  if (said.empty() && named.empty() && !log.debug.address_kind.empty()) {
    if (log.hosts > 1) {
      guessed.push_back(
          fmt::format("network {}, by NCCL_IB_GID_INDEX (--network)", log.debug.address_kind));
    }
    return log.debug.address_kind;
  }
  // Of two kinds the last counts.
  return said.empty() || named.empty() ? named + said : named + " " + said;
}

/// Whether the topology's source does not say the speed of its ports.
bool are_ports_assumed(const topology::Graph& host) {
  return std::ranges::any_of(
      host.unseen, [](const std::string& s) { return s.find("network ports") != s.npos; });
}

std::string assumed_ports(const topology::Graph& host) {
  if (!are_ports_assumed(host)) return "";
  double rate = 0;
  for (const int port : topology::data_ports(host, 0)) {
    for (const int l : host.out(port)) rate = std::max(rate, 8 * host.link(l).bandwidth);
  }
  return fmt::format(" (ports of {:g}G are assumed; --network says which there are)", rate);
}

/// Of GPUs without a model in the topology's source.
std::string unknown_gpus(const topology::Graph& host) {
  const auto is_unknown = [&](int gpu) {
    return topology::gpu_model_named(host.node(gpu).model) == nullptr;
  };
  if (std::ranges::none_of(host.gpus(), is_unknown)) return "";
  return " (GPUs of no known model, so without links but those that it names; --machine 8xH100 "
         "describes a host by its GPUs, and with --topology what the file does not say of them)";
}

/// Gbit/s of a port that is sold with such GPUs: as fast as 16 lanes of their PCI.
double usual_port(const topology::GpuModel* model) {
  const double speed = model == nullptr ? 8 : model->pci_speed;
  return speed >= 32 ? 400 : speed >= 16 ? 200 : 100;
}

/// A machine for a log that names no GPU: the least of the usual ones that reaches what its rows
/// do. A slow machine of a better kind looks the same.
std::string machine_by_speed(const NcclLog& log, int gpus, int hosts) {
  constexpr std::array kUsual{"V100 SXM2 32GB", "A100 SXM4 80GB", "H100 SXM5", "B200"};
  // Measured rates lie around what the table of models has.
  constexpr double kMore = 1.1;
  double most = 0;
  for (const LogRow& r : log.rows) most = std::max(most, r.busbw);
  std::string text;
  for (const char* const name : kUsual) {
    const topology::GpuModel& model = *topology::gpu_model_named(name);
    const int n = std::max(gpus, 1);
    // In switches that reduce, n + 1 parts of n take the place of 2 (n - 1).
    const bool sums =
        n > 1 && log.collective == Collective::all_reduce && topology::switch_reduces(name);
    double reached = model.links * model.reached * (sums ? 2.0 * (n - 1) / (n + 1) : 1);
    if (hosts > 1) reached = std::min(reached, n * usual_port(&model) / 8);
    text = fmt::format("{}x{}", n, name);
    if (most <= kMore * reached) break;
  }
  std::ranges::replace(text, ' ', '-');
  return text;
}

/// Of what a log is about, and options do not say.
std::vector<std::string> guessed_of(const NcclLog& log, const ClusterArguments& a) {
  std::vector<std::string> all;
  const NcclLog::Guessed& g = log.guessed;
  const auto add = [&](bool guessed, const std::string& what, const char* how) {
    if (guessed) all.push_back(what + how);
  };
  const std::string collective(log.collective ? name(*log.collective) : "");
  add(g.collective, collective, ", by the log's name (--collective)");
  add(g.collective_by_rows, collective,
      ", by busbw / algbw and the columns, which others fit as well (--collective)");
  const std::string ranks = counted(log.ranks, "rank"), hosts = counted(log.hosts, "host");
  add(g.ranks && a.gpus == 0, ranks, ", by the log's name");
  add(g.ranks_by_rows && a.gpus == 0, ranks,
      ", by busbw / algbw, whose digits leave a few numbers (--gpus, --hosts)");
  add(g.gpu && a.machine.empty() && a.topology.empty(), std::string(topology::printable(log.gpu)),
      ", by the log's name (--machine)");
  add(g.hosts && a.hosts == 0, hosts, ", by the log's name (--hosts)");
  add(g.eight_of_a_host && a.hosts == 0, hosts, ", as most have eight GPUs (--hosts)");
  add(g.one_domain && a.hosts == 0, "one domain of NVLink",
      ", as hosts of such a rack share their switches (--hosts)");
  add(log.warmups == 0, "the first size",
      " to be like the others, though no call warmed up before it (-w 0)");
  return all;
}

/// Fills in what the user does not say of the network: a port's rate, or how many there are. The
/// ports of the topology count first, and then those that are sold with such GPUs, as many as
/// NCCL_IB_HCA lists.
void complete_network(ClusterSetup& s, bool described, int listed) {
  const int each = s.gpus > 0 ? s.gpus : static_cast<int>(s.host.gpus().size());
  const int known = static_cast<int>(topology::data_ports(s.host, 0).size());
  if (s.network.rate == 0 && described && (known == 0 || are_ports_assumed(s.host))) {
    if (s.network.ports == 0) s.network.ports = listed;
    const auto& gpu = s.host.node(s.host.gpus().front());
    // Where a GPU has several ports, they are as fast as one.
    s.network.rate =
        usual_port(topology::find_gpu_model(gpu.model)) * each / std::max(each, s.network.ports);
    s.guessed.push_back(fmt::format(
        "ports of {:g}G, as nothing says which and machines with such GPUs have them (--network)",
        s.network.rate));
  }
  if (s.network.rate > 0 && s.network.ports == 0) {
    s.network.ports = known > 0 ? known : each;
    s.guessed.push_back(counted(s.network.ports, "port") +
                        (known > 0 ? ", as the topology has" : ", one for each GPU") +
                        " (--network)");
  }
}

}  // namespace

/// What is said of kinds of networks (with a dot) is looked at in set_up().
GpuConstants constants_of(const ClusterArguments& a) {
  GpuConstants constants;
  for (const std::string& c : a.constants) {
    if (c.find('.') > c.find('=')) override_constant(constants, c);
  }
  return constants;
}

void print_constants(const ClusterArguments& a) {
  const GpuConstants constants = constants_of(a);
  for (const Constant<GpuConstants>& line : gpu_constants()) {
    print_wrapped(fmt::format("{:<12} {:>8g} {:<5} ", line.name, constants.*line.value, line.unit),
                  line.meaning);
  }
  for (const topology::NetworkKind& k : topology::network_kinds()) {
    print_wrapped(fmt::format("network {:<6} ", k.name),
                  fmt::format("latency {:g} us, {:.0f} % of the ports' rate: {}", k.latency,
                              100 * k.efficiency, k.source));
  }
  for (const topology::GpuModel& m : topology::gpu_models()) {
    if (m.device == 0) continue;
    fmt::print("gpu {:<16} {} links of {:g} GB/s, {:g} reached; PCI {:g} GT/s{}{}\n", m.name,
               m.links, m.rate, m.reached, m.pci_speed,
               topology::has_peer_access(m.name) ? "" : "; no peer access",
               topology::switch_reduces(m.name) ? "; its switches reduce" : "");
  }
}

ClusterSetup set_up(const ClusterArguments& a, const NcclLog* log) {
  ClusterSetup s;
  if (log != nullptr) s.guessed = guessed_of(*log, a);
  s.hosts = a.hosts > 0 ? a.hosts : log != nullptr && log->hosts > 0 ? log->hosts : 1;
  if (s.hosts > 1'000'000) refuse("--hosts: a million at most");
  s.gpus = a.gpus;
  if (s.gpus == 0 && log != nullptr && log->ranks > 0) {
    if (log->ranks % s.hosts != 0) {
      refuse(
          fmt::format("{}: {} ranks are not the same number on {} hosts; --hosts says how many "
                      "there were",
                      log->source, log->ranks, s.hosts));
    }
    s.gpus = log->ranks / s.hosts;
  }
  if (!a.topology.empty()) {
    std::string filled;
    topology::Records records = filled_records(a.topology, a.machine, filled);
    s.host = topology_graph(records);
    s.said = a.topology + unknown_gpus(s.host);
    if (!a.machine.empty()) {
      s.said += filled.empty() ? fmt::format(" (which lacks nothing that {} says)", a.machine)
                               : fmt::format(" with the {} of {}", filled, a.machine);
    }
    warn_of_unlinked(s.host, "--machine 8xH100 beside --topology fills in what is missing");
    const std::string unlinked = topology::unlinked_gpus(s.host);
    if (!unlinked.empty()) s.said += fmt::format(" (without links between {})", unlinked);
  } else {
    std::string text = a.machine;
    if (text.empty() && log != nullptr && log->gpu.empty() && !log->rows.empty()) {
      text = machine_by_speed(*log, s.gpus, s.hosts);
      s.guessed.push_back(fmt::format(
          "{}, as nothing says which GPUs and these reach what the rows do (--machine)", text));
    }
    if (text.empty() && log != nullptr && !log->gpu.empty()) {
      const topology::GpuModel* model = topology::find_gpu_model(log->gpu);
      if (model == nullptr) {
        refuse(fmt::format("{}: no GPU '{}' is known; --machine or --topology says what it is like",
                           log->source, topology::printable(log->gpu)));
      }
      text = fmt::format(
          "{}x{}{}", std::max(s.gpus, 1), model->name,
          log->debug.nvlink > 0 || file_name(log->source).find("NVL") != std::string::npos
              ? " nvlink"
              : "");
      std::ranges::replace(text, ' ', '-');
      const auto bridge = text.find("-nvlink");
      if (bridge != text.npos) text[bridge] = ' ';
    }
    if (text.empty()) refuse("say what a host is like: --topology FILE, or --machine 8xH100");
    topology::Records records = described_records(text);
    s.host = topology_graph(records);
    s.said = text;
  }
  std::string words = a.network;
  if (words.empty() && log != nullptr) words = network_of(*log, s.guessed);
  if (s.hosts > 1 && words.empty()) {
    s.guessed.emplace_back("network ib, as nothing says which (--network)");
  }
  s.network = topology::parse_network(words);
  for (const std::string& c : a.constants) {
    if (c.find('.') < c.find('=')) topology::override_kind(s.network, c);
  }
  if (s.hosts > 1) {
    complete_network(s, a.topology.empty() || !a.machine.empty(),
                     log == nullptr ? 0 : log->debug.listed_ports);
    s.said += fmt::format("; {} hosts, network {}", s.hosts, s.network.kind);
    if (s.network.rate > 0) {
      s.said += fmt::format(" {}x{:g}G", std::max(s.network.ports, 1), s.network.rate);
    } else {
      s.said += assumed_ports(s.host);
    }
  }
  if (log != nullptr && log->debug.staged > 0 && log->debug.direct == 0) {
    s.said += "; NCCL had no GPUDirect RDMA";
  }
  return s;
}

}  // namespace tutti
