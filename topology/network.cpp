// See network.h.
#include "topology/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/error.h"
#include "core/number.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

// Latency: one message from GPU to GPU by NCCL's LL, less the 2.7 us that InfiniBand has of it.
// Efficiency: busbw of long all_gathers and all_reduces over the rate of the ports.
constexpr std::array kKinds{
    NetworkKind{"ib", 0, 0.92, "NCCL's graph/tuning.cc (latency); efficiency assumed, as EFA's"},
    NetworkKind{"roce", 12, 0.82, "published nccl-tests of GPU clouds with ConnectX-7"},
    NetworkKind{"efa", 15, 0.9, "published nccl-tests of p5 and p5en"},
    NetworkKind{"slingshot", 3, 0.92, "published nccl-tests of Alps (GH200, libfabric)"},
    NetworkKind{"tcpxo", 48, 0.95, "Google's GPUDirect-TCPXO: published nccl-tests of A3 Mega"},
    NetworkKind{"tcpx", 320, 0.6, "Google's GPUDirect-TCPX: published nccl-tests of A3 High"},
    NetworkKind{"tcp", 100, 0.55, "NCCL's socket transport between virtual machines, one stream"},
};

// From the clouds' pages about their machines. The plain names of clouds come first: what follows
// says more.
constexpr std::array kNames{
    NetworkName{"gcp", "roce"},
    NetworkName{"gke", "roce"},
    NetworkName{"oci", "roce"},
    NetworkName{"aws", "efa"},
    NetworkName{"azure", "ib"},
    NetworkName{"vm", "tcp 1x10G"},
    NetworkName{"p3dn", "1x100G efa"},
    NetworkName{"p4d", "4x100G efa"},
    NetworkName{"p4de", "4x100G efa"},
    NetworkName{"p5", "32x100G efa"},
    NetworkName{"p5e", "32x100G efa"},
    NetworkName{"p5en", "16x200G efa"},
    NetworkName{"p6b200", "8x400G efa"},
    NetworkName{"a2mega", "1x100G tcp"},
    NetworkName{"a3high", "4x200G tcpx"},
    NetworkName{"a3mega", "8x200G tcpxo"},
    NetworkName{"a3ultra", "8x400G roce"},
    NetworkName{"a4", "8x400G roce"},
    NetworkName{"ndv2", "1x100G ib"},
    NetworkName{"ndv4", "8x200G ib"},
    NetworkName{"ndv5", "8x400G ib"},
    NetworkName{"slingshot", "slingshot 200G"},
    NetworkName{"cxi", "slingshot 200G"},
    NetworkName{"rdma", "roce"},
    NetworkName{"1nic", "1x400G"},
    NetworkName{"infiniband", "ib"},
    NetworkName{"edr", "ib 100G"},
    NetworkName{"hdr", "ib 200G"},
    NetworkName{"hdr100", "ib 100G"},
    NetworkName{"ndr", "ib 400G"},
    NetworkName{"ndr200", "ib 200G"},
    NetworkName{"xdr", "ib 800G"},
};

[[noreturn]] void refuse(std::string_view word, std::string_view expected) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("network: '{}' is not {}", printable(word), expected));
}

double positive(std::string_view word, std::string_view text, double most,
                std::string_view expected) {
  const auto value = parse_number<double>(text);
  if (!value || !(*value > 0) || *value > most) refuse(word, expected);
  return *value;
}

/// "400G", "8x400G", "8x".
bool parse_ports(std::string_view word, Network& network) {
  std::string_view rate = word;
  int ports = 0;
  if (const auto x = word.find('x'); x != word.npos && x > 0) {
    const auto count = parse_number<std::int64_t>(word.substr(0, x));
    if (!count) return false;
    if (*count < 1 || *count > 1024)
      refuse(word, "a number of ports from 1 to 1024 and their rate");
    ports = static_cast<int>(*count);
    rate = word.substr(x + 1);
  }
  if (!rate.ends_with('G')) return false;
  rate.remove_suffix(1);
  if (!parse_number<double>(rate)) return false;
  network.rate = positive(word, rate, 1600, "a rate of ports from 0 to 1600G (bits)");
  if (ports > 0) network.ports = ports;
  return true;
}

void parse_word(std::string_view word, Network& network) {
  for (const NetworkKind& kind : kKinds) {
    if (word != kind.name) continue;
    network.kind = kind.name;
    network.latency = kind.latency;
    network.efficiency = kind.efficiency;
    return;
  }
  const auto value_of = [&](std::string_view key) {
    return word.starts_with(key) ? word.substr(key.size()) : std::string_view();
  };
  if (word == "sharp") {
    network.sums = true;
  } else if (const auto v = value_of("latency="); !v.empty()) {
    const auto text = v.ends_with("us") ? v.substr(0, v.size() - 2) : v;
    network.latency = positive(word, text, 1e6, "a latency in us, such as latency=5us");
  } else if (const auto e = value_of("efficiency="); !e.empty()) {
    network.efficiency = positive(word, e, 1, "a part of the rate, such as efficiency=0.9");
  } else if (const auto l = value_of("leaf="); !l.empty()) {
    network.leaf = static_cast<int>(positive(word, l, 1e6, "hosts on a leaf switch, as leaf=32"));
  } else if (const auto o = value_of("oversubscription="); !o.empty()) {
    network.oversubscription = positive(word, o, 1e3, "a ratio, as oversubscription=2");
  } else if (!parse_ports(word, network)) {
    refuse(word,
           "one of ib, roce, efa, slingshot, tcpxo, tcpx, tcp, sharp, 8x400G, leaf=32, "
           "oversubscription=2, "
           "latency=5us, efficiency=0.9, nor the name of a cloud's machine (p5, a3mega, ndv5)");
  }
}

}  // namespace

std::span<const NetworkKind> network_kinds() { return kKinds; }
std::span<const NetworkName> network_names() { return kNames; }

Network parse_network(std::string_view given) {
  std::string text;
  for (std::size_t at = 0; at < given.size();) {
    const auto end = std::min(given.find_first_of(" ,", at), given.size());
    std::string_view word = given.substr(at, end - at);
    for (const NetworkName& n : kNames) word = n.name == word ? n.words : word;
    text += std::string(word) + " ";
    at = end + 1;
  }
  Network network;
  parse_word("ib", network);
  // The kind first, or it would overwrite a latency that the text gives.
  for (const bool kinds : {true, false}) {
    for (std::size_t at = 0; at < text.size();) {
      const auto end = std::min(text.find_first_of(" ,", at), text.size());
      const auto word = std::string_view(text).substr(at, end - at);
      at = end + 1;
      if (word.empty()) continue;
      bool is_kind = false;
      for (const NetworkKind& k : kKinds) is_kind = is_kind || k.name == word;
      if (is_kind == kinds) parse_word(word, network);
    }
  }
  return network;
}

void override_kind(Network& network, std::string_view text) {
  const auto dot = text.find('.');
  for (const NetworkKind& k : kKinds) {
    if (k.name != text.substr(0, dot)) continue;
    Network changed = network;
    const std::string_view word = text.substr(dot + 1);
    if (!word.starts_with("latency=") && !word.starts_with("efficiency=")) break;
    parse_word(word, changed);
    if (network.kind == k.name) network = changed;
    return;
  }
  refuse(text, "a kind's latency or efficiency, as roce.latency=9");
}

}  // namespace tutti::topology
