// See check.h.
#include "topology/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/number.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostNames = 256;  // in one line: all GPUs of a rack

}  // namespace

void Doubts::add(const std::string& record, const Origin& origin, const std::string& what) {
  const auto [at, is_new] = place_.try_emplace(what, groups_.size());
  if (is_new) groups_.push_back({what, origin, {}, {}});
  Group& g = groups_[at->second];
  if (g.known.insert(record).second) g.records.push_back(record);
}

std::vector<Doubt> Doubts::take() {
  std::vector<Doubt> all;
  for (const Group& g : groups_) {
    std::string names;
    const std::size_t named = std::min(g.records.size(), kMostNames);
    for (std::size_t r = 0; r < named; ++r) names += (r == 0 ? "" : ", ") + g.records[r];
    if (named < g.records.size()) names += fmt::format(" and {} more", g.records.size() - named);
    all.push_back({fmt::format("{}: {} {}", g.first.text(), names, g.what)});
  }
  groups_.clear();
  place_.clear();
  return all;
}

std::string name_of(const DeviceRecord& d) {
  if (d.gpu && d.gpu->dev >= 0) return fmt::format("gpu{}", d.gpu->dev);
  if (!d.nets.empty() && !d.nets.front().name.empty()) return printable(d.nets.front().name);
  if (d.bus) return text_of(*d.bus);
  return d.host_bridge ? "a host bridge" : "a device without an address";
}

std::uint16_t id_of(const std::string& text) {
  if (!text.starts_with("0x")) return 0;
  return static_cast<std::uint16_t>(
      parse_number<std::int64_t>(std::string_view(text).substr(2), 16).value_or(0) & 0xffff);
}

const GpuModel& model_of(const DeviceRecord& d) {
  const bool amd = d.gpu && (!d.gpu->gcn.empty() || id_of(d.vendor) == 0x1002);
  return gpu_model(id_of(d.vendor), id_of(d.device), d.gpu && !amd ? d.gpu->sm : 0,
                   d.gpu ? d.gpu->gcn : "");
}

int host_of(const Records& records, const DeviceRecord& d) {
  return d.cpu < 0 ? 0 : records.cpus[static_cast<std::size_t>(d.cpu)].host;
}

std::vector<Doubt> check(Records& records) {
  Doubts doubts;
  check_structure(records, doubts);
  check_pci(records, doubts);
  check_gpu_links(records, doubts);
  check_ports(records, doubts);
  return doubts.take();
}

}  // namespace tutti::topology
