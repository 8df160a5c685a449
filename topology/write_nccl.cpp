// See write_nccl.h. NCCL's own parser knows no prolog, wants each attribute that it looks for, and
// skips what it does not know; version 2 (RCCL's) is written where there is xGMI.
#include "topology/write_nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "topology/source.h"

namespace tutti::topology {
namespace {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable(text, text.size())) {
    safe += c == '&'   ? "&amp;"
            : c == '<' ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '"' ? "&quot;"
                       : std::string(1, c);
  }
  return safe;
}

class Writer {
 public:
  explicit Writer(const Records& records) : r_(records) {
    // NCCL lists what data go through. Systems have NICs without interfaces, too, and their
    // bridges.
    std::vector<bool> used(r_.devices.size(), r_.format.starts_with("NCCL"));
    for (std::size_t i = used.size(); i-- > 0;) {
      const DeviceRecord& d = r_.devices[i];
      if (d.gpu || !d.nets.empty() || !d.peer_switches.empty()) used[i] = true;
      const bool below = d.parent >= 0 && d.parent < static_cast<int>(i);
      if (used[i] && below) used[static_cast<std::size_t>(d.parent)] = true;
    }
    std::map<std::pair<int, BusId>, int> divided;
    for (int i = 0; i < static_cast<int>(r_.devices.size()); ++i) {
      const DeviceRecord& d = r_.devices[static_cast<std::size_t>(i)];
      if (!used[static_cast<std::size_t>(i)]) continue;
      if (d.gpu && d.gpu->mig && d.bus) {
        // MIG's instances are in the element of their device.
        const auto [first, is_new] = divided.try_emplace({d.cpu, d.bus->slot()}, i);
        if (!is_new) {
          instances_[first->second].push_back(i);
          continue;
        }
      }
      (d.parent >= 0 && d.parent < i ? children_[d.parent] : roots_[std::max(0, d.cpu)])
          .push_back(i);
    }
  }

  std::string write() {
    bool amd = r_.version == 2;
    for (const DeviceRecord& d : r_.devices) {
      for (const GpuLinkRecord& l : d.gpu ? d.gpu->links : std::vector<GpuLinkRecord>()) {
        amd = amd || l.kind == GpuLinkRecord::Kind::xgmi;
      }
    }
    open(0, fmt::format("system version=\"{}\"", amd ? 2 : 1));
    for (std::size_t c = 0; c < r_.cpus.size(); ++c) {
      write_cpu(r_.cpus[c], roots_[static_cast<int>(c)]);
    }
    line(0, "</system>");
    return text_;
  }

 private:
  void line(int depth, const std::string& what) {
    text_ += fmt::format("{:{}}{}\n", "", 2 * depth, what);
  }
  void open(int depth, const std::string& what) { line(depth, "<" + what + ">"); }

  void write_cpu(const CpuRecord& cpu, const std::vector<int>& devices) {
    std::string head = "cpu";
    const std::string host = cpu.host < static_cast<int>(r_.hosts.size())
                                 ? r_.hosts[static_cast<std::size_t>(cpu.host)]
                                 : "";
    if (host.starts_with("0x")) head += fmt::format(" host_hash=\"{}\"", escaped(host));
    head += fmt::format(" numaid=\"{}\"", cpu.numa);
    if (!cpu.affinity.empty()) head += fmt::format(" affinity=\"{}\"", escaped(cpu.affinity));
    if (!cpu.arch.empty()) head += fmt::format(" arch=\"{}\"", escaped(cpu.arch));
    if (!cpu.vendor.empty()) head += fmt::format(" vendor=\"{}\"", escaped(cpu.vendor));
    if (cpu.family) head += fmt::format(" familyid=\"{}\"", *cpu.family);
    if (cpu.model) head += fmt::format(" modelid=\"{}\"", *cpu.model);
    open(1, head);
    for (const int d : devices) write_device(d, 2);
    line(1, "</cpu>");
  }

  void write_device(int index, int depth) {
    const DeviceRecord& d = r_.devices[static_cast<std::size_t>(index)];
    if (!d.bus) {
      // A host bridge, which NCCL does not know, or interfaces without a device.
      if (d.has_nic || !d.nets.empty()) write_nic(d, depth);
      for (const int child : children_[index]) write_device(child, depth);
      return;
    }
    const bool mig = d.gpu && d.gpu->mig;
    std::string head = fmt::format("pci busid=\"{}\"", text_of(mig ? d.bus->slot() : *d.bus));
    if (d.pci_class != 0) head += fmt::format(" class=\"0x{:06x}\"", d.pci_class);
    const auto id = [&](const char* name, const std::string& value) {
      if (!value.empty()) head += fmt::format(" {}=\"{}\"", name, escaped(value));
    };
    id("vendor", d.vendor);
    id("device", d.device);
    id("subsystem_vendor", d.subsystem_vendor);
    id("subsystem_device", d.subsystem_device);
    if (d.speed) head += fmt::format(" link_speed=\"{:.1f} GT/s PCIe\"", *d.speed);
    if (d.width) head += fmt::format(" link_width=\"{}\"", *d.width);
    const auto& children = children_[index];
    const bool nic = d.nic_elements > 0 || !d.nets.empty();
    if (!d.gpu && !nic && children.empty() && d.peer_switches.empty()) {
      open(depth, head + "/");
      return;
    }
    open(depth, head);
    if (d.gpu) write_gpu(*d.gpu, depth + 1);
    for (const int other : instances_[index]) {
      write_gpu(*r_.devices[static_cast<std::size_t>(other)].gpu, depth + 1);
    }
    if (nic) write_nic(d, depth + 1);
    for (const BusId& peer : d.peer_switches) {
      open(depth + 1, fmt::format("pcilink target=\"{}\"/", text_of(peer)));
    }
    for (const int child : children) write_device(child, depth + 1);
    line(depth, "</pci>");
  }

  void write_gpu(const GpuRecord& g, int depth) {
    std::string head = fmt::format("gpu dev=\"{}\"", g.dev);
    if (g.sm != 0) head += fmt::format(" sm=\"{}\"", g.sm);
    if (!g.gcn.empty()) head += fmt::format(" gcn=\"{}\"", escaped(g.gcn));
    if (!g.arch.empty()) head += fmt::format(" arch=\"{}\"", escaped(g.arch));
    if (g.rank >= 0) head += fmt::format(" rank=\"{}\"", g.rank);
    if (g.gdr) head += fmt::format(" gdr=\"{}\"", *g.gdr);
    if (g.links.empty()) {
      open(depth, head + "/");
      return;
    }
    open(depth, head);
    for (const GpuLinkRecord& l : g.links) {
      if (l.kind == GpuLinkRecord::Kind::c2c) {
        open(depth + 1, fmt::format("c2c bw=\"{}\" count=\"{}\"/", l.bandwidth, l.count));
      } else if (l.target) {
        // The nameless switch has seven digits of domain.
        open(depth + 1, fmt::format("{} target=\"{}\" count=\"{}\" tclass=\"0x{:06x}\"/",
                                    l.kind == GpuLinkRecord::Kind::xgmi ? "xgmi" : "nvlink",
                                    text_of(*l.target), l.count, l.target_class));
      }
    }
    line(depth, "</gpu>");
  }

  void write_nic(const DeviceRecord& d, int depth) {
    if (d.nets.empty()) {
      open(depth, "nic/");
      return;
    }
    open(depth, "nic");
    for (const NetRecord& n : d.nets) {
      std::string head = fmt::format("net name=\"{}\" dev=\"{}\"", escaped(n.name), n.dev);
      if (n.latency) head += fmt::format(" latency=\"{}\"", *n.latency);
      if (n.speed) head += fmt::format(" speed=\"{}\"", *n.speed);
      head += fmt::format(" port=\"{}\"", n.port);
      if (!n.guid.empty()) head += fmt::format(" guid=\"{}\"", escaped(n.guid));
      if (n.max_connections) head += fmt::format(" maxconn=\"{}\"", *n.max_connections);
      if (n.gdr) head += fmt::format(" gdr=\"{}\"", *n.gdr);
      if (n.coll) head += fmt::format(" coll=\"{}\"", *n.coll);
      open(depth + 1, head + "/");
    }
    line(depth, "</nic>");
  }

  const Records& r_;
  std::map<int, std::vector<int>> roots_, children_;
  std::map<int, std::vector<int>> instances_;  // by the first of a device
  std::string text_;
};

}  // namespace

std::string to_nccl_xml(const Records& records) { return Writer(records).write(); }

}  // namespace tutti::topology
