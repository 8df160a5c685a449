// Network ports: their speeds, and NICs that have lost theirs; see check.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "topology/check.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

std::string port_name(const NetRecord& n) {
  return n.name.empty() ? fmt::format("net {}", n.dev) : printable(n.name);
}

/// Values that are no speed in Mbit/s that ports have, but are one in another unit.
std::int64_t in_megabits(std::int64_t speed) {
  if (speed > kFastestPort) {
    for (const std::int64_t unit : {1'000LL, 1'000'000LL}) {
      if (speed % unit == 0 && speed / unit <= kFastestPort && speed / unit >= 1000) {
        return speed / unit;
      }
    }
  }
  // 25, 40, 50, 200, 400, 800 are Gb/s; 10 and 100 and 1000 Mb/s exist.
  for (const std::int64_t giga : {25, 40, 50, 56, 200, 400, 800}) {
    if (speed == giga) return giga * 1000;
  }
  return speed;
}

class PortCheck {
 public:
  PortCheck(Records& records, Doubts& doubts) : r_(records), doubts_(doubts) {}

  void run() {
    drop_twins();
    number_ports();
    count_kin();
    const auto said = [](const NetRecord& n) { return n.speed && *n.speed > 0; };
    bool any = false;
    for (const DeviceRecord& d : r_.devices) any = any || std::ranges::any_of(d.nets, said);
    missing_ports();
    bool missing = false;
    for (DeviceRecord& d : r_.devices) {
      for (NetRecord& n : d.nets) {
        if (n.speed && *n.speed > 0) {
          check_speed(d, n);
        } else if (!any && !n.speed) {
          n.speed = taken(d);
          missing = true;
        } else {
          const std::int64_t speed = taken(d, true);
          const bool expected = r_.format.starts_with("NCCL") || n.speed;
          if (expected)
            doubts_.add(port_name(n), n.origin,
                        fmt::format("{} speed; {} Mb/s is taken{}",
                                    n.speed ? "has no sensible" : "does not say a", speed,
                                    of_kin(d).empty() ? "" : ", as others of its kind have"));
          n.speed = speed;
        }
      }
    }
    if (missing && !r_.format.starts_with("nvidia-smi")) {
      r_.unseen.emplace_back("speeds of network ports (those of the devices' models are taken)");
    }
  }

 private:
  /// The same port twice in one device.
  void drop_twins() {
    for (DeviceRecord& d : r_.devices) {
      std::set<std::pair<std::string, int>> known;
      std::erase_if(d.nets, [&](const NetRecord& n) {
        if (n.name.empty() || known.insert({n.name, n.port}).second) return false;
        doubts_.add(port_name(n), n.origin, "is there twice; the first record counts");
        return true;
      });
    }
  }

  /// Ports that have lost their number, where others have one.
  void number_ports() {
    if (!r_.format.starts_with("NCCL")) return;
    std::set<int> used;
    for (const DeviceRecord& d : r_.devices) {
      for (const NetRecord& n : d.nets) used.insert(n.dev);
    }
    if (used.empty() || *used.rbegin() < 0) return;
    int next = 0;
    for (DeviceRecord& d : r_.devices) {
      for (NetRecord& n : d.nets) {
        if (n.dev >= 0) continue;
        while (used.contains(next)) ++next;
        doubts_.add(port_name(n), n.origin,
                    fmt::format("has no dev; {} is taken, which no other port has", next));
        n.dev = next++;
      }
    }
  }

  void missing_ports() {
    const bool named =
        std::ranges::any_of(r_.devices, [](const auto& d) { return d.bus && !d.nets.empty(); });
    const bool nccl = r_.format.starts_with("NCCL");
    for (DeviceRecord& d : r_.devices) {
      if (!is_nic_class(d.pci_class) || !d.nets.empty()) continue;
      // A list of all devices has those that nothing goes through; with a <nic>, something does.
      const bool lost = nccl && (named || d.has_nic);
      if (lost) {
        doubts_.add(d.bus ? text_of(*d.bus) : "a NIC", d.origin,
                    "is a NIC, but has no port; it is taken to have one");
      } else if (!nccl) {
        continue;  // the system has no interface of it
      }
      NetRecord port;
      port.name = d.bus ? text_of(*d.bus) : "nic";
      port.port = 1;
      port.origin = d.origin;
      if (named || lost) port.speed = taken(d, lost);
      d.has_nic = true;
      d.nets.push_back(std::move(port));
    }
  }

  using Kind = std::tuple<std::string, std::string, std::string>;
  static Kind kind_of(const DeviceRecord& d) { return {d.vendor, d.device, d.subsystem_device}; }

  /// What ports say, by kind of device.
  void count_kin() {
    for (const DeviceRecord& d : r_.devices) {
      if (d.device.empty() || !is_nic_class(d.pci_class)) continue;
      for (const NetRecord& n : d.nets) {
        if (!n.speed || *n.speed <= 0) continue;
        const std::int64_t speed = in_megabits(*n.speed);
        if (speed <= kFastestPort) kin_[kind_of(d)].emplace_back(&d, speed);
      }
    }
  }

  /// Speeds of the other devices of the same kind, of the first ones.
  std::vector<std::int64_t> of_kin(const DeviceRecord& d) const {
    std::vector<std::int64_t> speeds;
    const auto all = kin_.find(kind_of(d));
    if (all == kin_.end() || d.device.empty() || !is_nic_class(d.pci_class)) return speeds;
    for (const auto& [other, speed] : all->second) {
      if (other != &d) speeds.push_back(speed);
      if (speeds.size() == kEnough) break;
    }
    return speeds;
  }

  /// What a port is taken to have that does not say: as others of its kind, as its model, or usual.
  /// `lost`: it would say, so it is one that data go through, and its PCI link tells more.
  std::int64_t taken(const DeviceRecord& d, bool lost = false) const {
    if (const auto usual = common(of_kin(d))) return *usual;
    const std::int64_t model = nic_speed(id_of(d.vendor), id_of(d.device));
    if (model > 0) return model;
    return std::max(kUsualPort, lost ? as_wide_as_its_slot(d) : 0);
  }

  /// NICs are built for a slot that carries what they do: 100 Gb/s for 16 lanes of generation 3.
  static std::int64_t as_wide_as_its_slot(const DeviceRecord& d) {
    if (!is_nic_class(d.pci_class) || !d.speed || !d.width || *d.width < 8) return 0;
    const double slot = 8000 * pci_bandwidth(*d.speed, *d.width);
    std::int64_t widest = 0;
    for (const std::int64_t usual : {25'000, 50'000, 100'000, 200'000, 400'000, 800'000}) {
      if (static_cast<double>(usual) < 1.1 * slot) widest = usual;
    }
    return widest;
  }

  void check_speed(const DeviceRecord& d, NetRecord& n) {
    const std::int64_t said = *n.speed;
    if (const std::int64_t real = in_megabits(said); real != said) {
      doubts_.add(
          port_name(n), n.origin,
          fmt::format("says {} Mb/s, which no port has; it must be another unit, and {} Mb/s "
                      "is taken",
                      said, real));
      n.speed = real;
      return;
    }
    if (said > kFastestPort) {
      const std::int64_t real = taken(d);
      doubts_.add(port_name(n), n.origin,
                  fmt::format("says {} Mb/s, which no port has; {} Mb/s is taken", said, real));
      n.speed = real;
      return;
    }
    const auto kin = of_kin(d);
    const auto usual = kin.size() >= 2 ? common(kin) : Maybe<std::int64_t>();
    if (usual && said >= 2 * *usual && d.nets.size() == 1) {
      doubts_.add(port_name(n), n.origin,
                  fmt::format("says {} Mb/s where the others of its kind have {}; {} is taken",
                              said, *usual, *usual));
      n.speed = usual;
    }
  }

  static constexpr std::size_t kEnough = 256;  // to know what is usual

  Records& r_;
  Doubts& doubts_;
  std::map<Kind, std::vector<std::pair<const DeviceRecord*, std::int64_t>>> kin_;
};

}  // namespace

void check_ports(Records& records, Doubts& doubts) { PortCheck(records, doubts).run(); }

}  // namespace tutti::topology
