// The matrices of hwloc's XML that say how GPUs and switches are linked.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/number.h"
#include "topology/constants.h"
#include "topology/readers.h"

namespace tutti::topology {
namespace {

using std::string_view;

template <typename F>
void each_word(string_view text, F&& f) {
  while (!(text = trimmed(text)).empty()) {
    const std::size_t end = std::min(text.find_first_of(" \t\r\n"), text.size());
    f(text.substr(0, end));
    text.remove_prefix(end);
  }
}

/// `back`: what the matrix says of the other direction.
void add_link(Records& records, int from, int to, std::int64_t megabytes, std::int64_t back,
              bool nvlink, const Origin& origin) {
  if (from < 0 || to < 0 || from == to) return;
  DeviceRecord& a = records.devices[static_cast<std::size_t>(from)];
  const DeviceRecord& b = records.devices[static_cast<std::size_t>(to)];
  if (!a.gpu || !a.bus || !b.bus) return;
  // Of two GPUs both are asked later on; what a switch says is nowhere else.
  if (!b.gpu && megabytes != back) {
    const auto taken =
        std::min(megabytes, back) > 0 ? std::min(megabytes, back) : std::max(megabytes, back);
    records.doubts.push_back(
        {fmt::format("{}: gpu {} has {} MB/s to switch {}, which has {} back; {} is taken",
                     origin.text(), text_of(*a.bus), megabytes, text_of(*b.bus), back, taken)});
    megabytes = taken;
  }
  if (megabytes <= 0) return;
  const auto id = [](const std::string& text) {
    return static_cast<std::uint16_t>(
        parse_number<std::int64_t>(text.size() > 2 ? string_view(text).substr(2) : "", 16)
            .value_or(0));
  };
  const GpuModel& model = gpu_model(id(a.vendor), id(a.device), a.gpu->sm, a.gpu->gcn);
  GpuLinkRecord link;
  link.kind = nvlink ? GpuLinkRecord::Kind::nvlink : GpuLinkRecord::Kind::xgmi;
  link.target = b.bus;
  link.target_class = b.pci_class;
  const double rate = model.rate > 0 ? model.rate : 25;
  link.count = std::max<std::int64_t>(
      1, std::llround(static_cast<double>(std::min<std::int64_t>(megabytes, 1 << 30)) /
                      (rate * 1000)));
  link.origin = origin;
  // A GPU that is divided is there once for each of its parts.
  for (GpuLinkRecord& known : a.gpu->links) {
    if (known.target != link.target || known.kind != link.kind) continue;
    known.count = std::max(known.count, link.count);
    return;
  }
  a.gpu->links.push_back(link);
}

}  // namespace

void read_hwloc_links(const XmlSource& xml, const pugi::xml_node& distances,
                      const std::map<std::int64_t, int>& devices, Records& records) {
  const string_view name = distances.attribute("name").value();
  const bool nvlink = name == "NVLinkBandwidth";
  if (!nvlink && name != "XGMIBandwidth") return;
  std::vector<int> members;
  for (const pugi::xml_node& part : distances.children("indexes")) {
    each_word(part.child_value(), [&](string_view word) {
      const std::size_t colon = word.find(':');
      const auto number =
          parse_number<std::int64_t>(colon == string_view::npos ? word : word.substr(colon + 1));
      const auto at = number ? devices.find(*number) : devices.end();
      members.push_back(at == devices.end() ? -1 : at->second);
    });
  }
  std::vector<std::int64_t> values;
  for (const pugi::xml_node& part : distances.children("u64values")) {
    each_word(part.child_value(), [&](string_view word) {
      values.push_back(parse_number<std::int64_t>(word).value_or(0));
    });
  }
  const Origin origin = xml.origin(distances);
  const std::size_t n = members.size();
  for (std::size_t at = 0; at < std::min(values.size(), n * n); ++at) {
    const std::size_t from = at / n, to = at % n, back = to * n + from;
    const auto value = values[at];
    const auto other = back < values.size() ? values[back] : value;
    if (from != to) add_link(records, members[from], members[to], value, other, nvlink, origin);
  }
  if (values.size() != n * n) {
    records.doubts.push_back({fmt::format("{}: {} has {} values for {} objects", origin.text(),
                                          printable(name), values.size(), n)});
  }
}

}  // namespace tutti::topology
