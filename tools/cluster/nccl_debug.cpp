// See nccl_debug.h.
#include "tools/cluster/nccl_debug.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/number.h"
#include "tools/cluster/log_words.h"
#include "tools/cluster/nccl_settings.h"

namespace tutti {
namespace {

constexpr int kMostPorts = 1024, kMostRanks = 1'000'000;
constexpr std::size_t kMostChoices = 4096;

bool has(std::string_view line, std::string_view word) { return line.find(word) != line.npos; }

/// The number right behind `word`.
std::optional<double> number_after(std::string_view line, std::string_view word) {
  const auto at = line.find(word);
  if (at == line.npos) return std::nullopt;
  line.remove_prefix(at + word.size());
  return parse_number<double>(line.substr(0, line.find_first_not_of("0123456789.")));
}

void count_after(std::string_view line, std::string_view word, int& count) {
  const auto n = number_after(line, word);
  if (n && *n >= 1 && *n <= kMostRanks) count = static_cast<int>(*n);
}

std::string_view word_after(std::string_view line, std::string_view before) {
  const auto at = line.find(before);
  if (at == line.npos) return {};
  line.remove_prefix(at + before.size());
  return line.substr(0, line.find_first_of(" ,;\t"));
}

/// By the words of plugins and of NCCL's own transports; what is more special comes first.
std::string_view network_said(std::string_view line) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kWords{
      {{"FasTrak", "tcpxo"},
       {"TCPXO", "tcpxo"},
       {"GPUDirectTCPX", "tcpx"},
       {"rovider is cxi", "slingshot"},
       {"Libfabric", "efa"},
       {"rovider is efa", "efa"},
       {"NET/AWS", "efa"},
       {"gIB", "roce"},
       {"/RoCE", "roce"},
       {"/IB ", "ib"},
       {"network IB", "ib"},
       {"NET/Socket : Using", "tcp"},
       {"network Socket", "tcp"}}};
  for (const auto& [word, kind] : kWords) {
    if (has(line, word)) return kind;
  }
  return {};
}

/// "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eno1:10.0.0.1<0>", or a line for
/// each port: "NET/IB: [0] mlx5_0:uverbs0:1/RoCE provider=Mlx5 speed=100000".
void read_ports(std::string_view line, NcclDebug& d) {
  const auto port = [&](double number) -> double* {
    if (number < 0 || number >= kMostPorts) return nullptr;
    const auto i = static_cast<std::size_t>(number);
    if (i >= d.ports.size()) d.ports.resize(i + 1);
    return &d.ports[i];
  };
  if (const auto using_at = line.find("Using [0]"); using_at != line.npos) {
    d.ports.resize(std::max<std::size_t>(d.ports.size(), 1));
    for (std::size_t at = line.find('[', using_at); at != line.npos; at = line.find('[', at + 1)) {
      if (const auto n = number_after(line.substr(at), "[")) port(*n);
    }
    return;
  }
  const auto speed = number_after(line, "speed=");
  if (!speed || has(line, "virtual device")) return;  // which are the same ports once more
  const auto n = number_after(line, "[");
  if (double* const rate = n ? port(*n) : nullptr) *rate = *speed / 1000;
}

std::size_t count(std::string_view line, std::string_view word) {
  std::size_t n = 0;
  for (auto at = line.find(word); at != line.npos; at = line.find(word, at + 1)) ++n;
  return n;
}

void read_network(std::string_view line, NcclDebug& d) {
  std::string_view kind = network_said(line);
  // A host's port for storage may be of Ethernet beside those of InfiniBand.
  const std::string_view used = line.substr(std::min(line.find("Using"), line.size()));
  if (kind == "roce" && count(used, "/IB") > count(used, "/RoCE")) kind = "ib";
  // Of Ethernet's ports "/RoCE" tells, and "network IB" comes later.
  bool known = d.network == "roce" && kind == "ib";
  // Both come by libfabric, and the provider tells them apart.
  known = known || (d.network == "slingshot" && kind == "efa");
  if (!kind.empty() && !known) d.network = kind;
  if (has(line, "NET/IB") || has(line, "NET/Socket") || has(line, "NET/OFI")) read_ports(line, d);
  if (has(line, "SHARP") && has(line, "COLL/") && !has(line, "not")) d.sums = true;
}

/// "Channel 00/24 : 0[0] -> 1[1] via P2P/direct pointer/read", "... via NET/IB/0/GDRDMA".
void read_channel(std::string_view line, NcclDebug& d) {
  const std::string_view via = word_after(line, " via ");
  if (via.starts_with("NET/")) ++(has(via, "GDRDMA") ? d.direct : d.staged);
  if (via.starts_with("P2P")) ++d.peer;
  if (via.starts_with("SHM")) ++d.memory;
}

/// "AllReduce: opCount 0 ...", of which there is one for each call.
void read_call(std::string_view line, NcclDebug& d) {
  constexpr std::array<std::pair<std::string_view, Collective>, 7> kCalls{
      {{"AllReduce: opCount", Collective::all_reduce},
       {"AllGather: opCount", Collective::all_gather},
       {"ReduceScatter: opCount", Collective::reduce_scatter},
       {"AlltoAll: opCount", Collective::all_to_all},
       {"AllToAll: opCount", Collective::all_to_all},
       {"Broadcast: opCount", Collective::broadcast},
       {"Reduce: opCount", Collective::reduce}}};
  for (const auto& [word, collective] : kCalls) {
    // "Reduce:" ends "AllReduce:", too.
    if (!d.collective && has(line, word)) d.collective = collective;
  }
}

/// "AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE", of older ones "-> Algo 1 proto 2 time".
void read_choice(std::string_view line, NcclDebug& d) {
  constexpr std::array<std::string_view, 7> kAlgorithms{
      "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
  constexpr std::array<std::string_view, 3> kProtocols{"ll", "ll128", "simple"};
  const auto named = [](std::string_view word, const auto& names) {
    const auto number = parse_number<std::int64_t>(word);
    const bool known = number && *number >= 0 && *number < static_cast<std::int64_t>(names.size());
    return known ? std::string(names[static_cast<std::size_t>(*number)]) : lower(word);
  };
  const auto bytes = number_after(line, ": ");
  if (!bytes || *bytes < 1 || *bytes > 9e15) return;
  const NcclDebug::Choice choice{static_cast<std::int64_t>(*bytes),
                                 named(word_after(line, " Algo "), kAlgorithms),
                                 named(word_after(line, " proto "), kProtocols)};
  const auto known = [&](const NcclDebug::Choice& c) { return c.bytes == choice.bytes; };
  if (d.choices.size() < kMostChoices && std::ranges::none_of(d.choices, known)) {
    d.choices.push_back(choice);
  }
}

}  // namespace

std::string NcclDebug::network_words() const {
  if (network.empty()) return "";
  std::string words = network;
  // Of ports that differ the slower ones serve control.
  const double rate = ports.empty() ? 0 : *std::ranges::max_element(ports);
  if (rate > 0) words += fmt::format(" {}x{:g}G", std::ranges::count(ports, rate), rate);
  return words + (sums ? " sharp" : "");
}

bool read_nccl_debug(std::string_view line, NcclDebug& debug) {
  const auto at = line.find("NCCL INFO ");
  if (at == line.npos) return false;
  line.remove_prefix(at + 10);
  debug.any = true;
  for (const char* const word : {"nRanks ", "nranks ", "[nranks="}) {
    count_after(line, word, debug.ranks);
  }
  count_after(line, "nNodes ", debug.hosts);
  count_after(line, "cliqueSize ", debug.clique);
  if (has(line, " coll channels")) count_after(line, "", debug.channels);
  if (const auto rate = number_after(line, "NVL[")) debug.nvlink = std::max(debug.nvlink, *rate);
  if (has(line, "Channel ")) read_channel(line, debug);
  if (has(line, " Bytes -> Algo ")) read_choice(line, debug);
  if (has(line, "opCount")) read_call(line, debug);
  read_network(line, debug);
  read_said_setting(words_of(line), debug);
  return true;
}

}  // namespace tutti
