// See nccl_settings.h.
#include "tools/cluster/nccl_settings.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "core/number.h"

namespace tutti {
namespace {

/// "=mlx5_0:1,mlx5_1": how many ports; 0 for those that are left out ("^mlx5_8"), and for the
/// beginning of names.
int ports_in(std::string_view list) {
  const bool exact = list.starts_with('=');
  if (exact) list.remove_prefix(1);
  if (list.empty() || list.starts_with('^')) return 0;
  std::set<std::string_view> ports;
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    ports.insert(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  // "mlx5" are all that begin so.
  return exact || ports.size() > 1 ? static_cast<int>(ports.size()) : 0;
}

/// What a variable of such a name says of the network.
std::string_view network_by(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNames{
      {{"NCCL_FASTRAK_", "tcpxo"},
       {"NCCL_GPUDIRECTTCPX_", "tcpx"},
       {"FI_EFA_", "efa"},
       {"FI_CXI_", "slingshot"}}};
  for (const auto& [begin, kind] : kNames) {
    if (name.starts_with(begin)) return kind;
  }
  if (name == "FI_PROVIDER") return value == "efa" ? "efa" : value == "cxi" ? "slingshot" : "";
  return name == "NCCL_IB_DISABLE" && value == "1" ? "tcp" : "";
}

std::string_view without_quotes(std::string_view text) {
  while (!text.empty() && (text.front() == '"' || text.front() == '\'')) text.remove_prefix(1);
  while (!text.empty() && std::string_view("\"'\\;").find(text.back()) != text.npos) {
    text.remove_suffix(1);
  }
  return text;
}

void read(std::string_view name, std::string_view value, NcclDebug& d) {
  value = without_quotes(value);
  if (const std::string_view kind = network_by(name, value); d.network.empty() && !kind.empty()) {
    d.network = kind;
  }
  // Addresses of RoCE's second version have an index above 0; InfiniBand has one address.
  const auto index = parse_number<std::int64_t>(value);
  if (name == "NCCL_IB_GID_INDEX" && index) d.address_kind = *index > 0 ? "roce" : "ib";
  if (name == "NCCL_IB_HCA") d.listed_ports = ports_in(value);
  if (name == "NCCL_ALGO") d.algorithm = lower(value);
  if (name == "NCCL_TREE_THRESHOLD" && value == "0") d.algorithm = "ring";
  if (name == "NCCL_PROTO") d.protocol = lower(value);
  if (name == "NCCL_NVLS_ENABLE") d.switches = value != "0";
}

bool is_setting(std::string_view word) {
  const auto equals = word.find('=');
  return equals != word.npos && (word.starts_with("NCCL_") || word.starts_with("FI_"));
}

}  // namespace

bool read_command(std::string_view line, NcclDebug& debug) {
  constexpr std::string_view kBlanks = " \t\r";
  bool found = false, here = true;  // where a shell expects settings
  while (!line.empty()) {
    const auto begin = std::min(line.find_first_not_of(kBlanks), line.size());
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
    line.remove_prefix(word.size());
    if (here && is_setting(word)) {
      const auto equals = word.find('=');
      read(word.substr(0, equals), word.substr(equals + 1), debug);
      found = true;
      continue;  // there may be more
    }
    here = word == "-x" || word == "export" || word == "env" || word == "--env" || word == "$";
  }
  return found;
}

void read_said_setting(const Words& words, NcclDebug& debug) {
  for (std::size_t i = 0; i + 5 < words.size(); ++i) {
    const bool said = words[i + 1] == "set" && words[i + 2] == "by" && words[i + 4] == "to";
    if (!said || !words[i].starts_with("NCCL_")) continue;
    std::string_view value = words[i + 5];
    if (value.ends_with('.')) value.remove_suffix(1);
    read(words[i], value, debug);
    return;
  }
}

}  // namespace tutti
