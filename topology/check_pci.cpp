// Speeds and widths of PCI links; see check.h. The check believes the speed at which a device runs,
// as far as it is possible: a GPU in a slot with 8 lanes is slow, not wrong.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/number.h"
#include "topology/check.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

bool is_a_width(int w) {
  return w == 1 || w == 2 || w == 4 || w == 8 || w == 12 || w == 16 || w == 32;
}

bool is_a_speed(double s) {
  return s == 2.5 || s == 5 || s == 8 || s == 16 || s == 32 || s == 64 || s == 128;
}

std::string link_text(const DeviceRecord& d) {
  return fmt::format("{} GT/s x{}", *d.speed, *d.width);
}

double bandwidth_of(const DeviceRecord& d) {
  return d.speed && d.width ? pci_bandwidth(*d.speed, *d.width) : 0;
}

class PciCheck {
 public:
  PciCheck(Records& records, Doubts& doubts) : r_(records), doubts_(doubts) {}

  void run() {
    const auto says = [](const DeviceRecord& d) { return d.speed && d.width && *d.width > 0; };
    any_ = std::ranges::any_of(r_.devices, says);
    complete_ = r_.format.starts_with("NCCL");
    for (DeviceRecord& d : r_.devices) drop_impossible(d);
    for (const DeviceRecord& d : r_.devices) name_unreadable(d);
    for (const DeviceRecord& d : r_.devices) {
      if (!has_a_link(d)) continue;
      if (d.speed) ++kin_[kind_of(d)].speeds[*d.speed];
      if (d.width) ++kin_[kind_of(d)].widths[*d.width];
    }
    for (DeviceRecord& d : r_.devices) wake(d);
    for (DeviceRecord& d : r_.devices) compare(d);
    // From the leaves up: what a bridge has below it is known when its turn comes.
    std::vector<const DeviceRecord*> fastest(r_.devices.size());
    for (std::size_t i = r_.devices.size(); i-- > 0;) {
      DeviceRecord& d = r_.devices[i];
      check_bridge(d, fastest[i]);
      if (d.parent < 0 || bandwidth_of(d) <= 0) continue;
      const DeviceRecord*& above = fastest[static_cast<std::size_t>(d.parent)];
      if (above == nullptr || bandwidth_of(d) >= bandwidth_of(*above)) above = &d;
    }
    if (!any_ && !r_.devices.empty() && !r_.format.starts_with("nvidia-smi")) {
      r_.unseen.emplace_back("speeds of PCI links");
    }
  }

 private:
  /// What devices of one kind say, and how often.
  struct Kin {
    std::map<double, int> speeds;
    std::map<int, int> widths;

    /// What more than half of the others say, and two at least.
    template <typename T>
    Maybe<T> usual(const std::map<T, int>& said, const Maybe<T>& own) const {
      int all = 0;
      for (const auto& [value, count] : said) all += count - (own == value ? 1 : 0);
      for (const auto& [value, count] : said) {
        const int others = count - (own == value ? 1 : 0);
        if (others >= 2 && 2 * others > all) return value;
      }
      return {};
    }
  };
  using Kind = std::tuple<std::string, std::string, std::uint32_t>;
  static Kind kind_of(const DeviceRecord& d) { return {d.vendor, d.device, d.pci_class}; }

  bool has_a_link(const DeviceRecord& d) const {
    return d.bus && !d.host_bridge && d.pci_class >> 8 != 0x0600;
  }

  /// Records that no link can have. A width of 0 with an empty speed is how guests say nothing.
  void drop_impossible(DeviceRecord& d) {
    if (d.width && *d.width == 0 && !d.speed) d.width.reset();
    if (d.width && !is_a_width(*d.width)) {
      doubts_.add(
          name_of(d), d.origin,
          fmt::format("says a PCI link of {} lanes; no link has that, so it is taken as not "
                      "known",
                      *d.width));
      d.width.reset();
      repaired_.insert(&d);
    }
    if (d.speed && !is_a_speed(*d.speed)) {
      doubts_.add(name_of(d), d.origin,
                  fmt::format("says a PCI link of {} GT/s; no link has that, so it is taken as not "
                              "known",
                              *d.speed));
      d.speed.reset();
      repaired_.insert(&d);
    }
  }

  /// Of NCCL's files: a guest's system says nothing, or that it is unknown.
  void name_unreadable(const DeviceRecord& d) {
    const auto text = trimmed(d.speed_text);
    const bool readable = transfers_per_second(text).has_value();
    if (!complete_ || readable || text.empty() || text.starts_with("Unknown")) return;
    doubts_.add(name_of(d), d.origin,
                fmt::format("says link_speed=\"{}\", no speed such as 16.0 GT/s PCIe; it is taken "
                            "as not known",
                            printable(text)));
    repaired_.insert(&d);
  }

  bool is_repaired(const DeviceRecord& d) const { return repaired_.contains(&d); }

  /// GPUs that have nothing to do slow their link down to 2.5 GT/s. A system that also says what
  /// both ends can do explains that itself, and nothing is in doubt.
  void wake(DeviceRecord& d) {
    if (!d.gpu || !d.speed || *d.speed != 2.5) return;
    double built = d.possible_speed ? *d.possible_speed : model_of(d).pci_speed;
    if (d.parent >= 0) {
      const DeviceRecord& above = r_.devices[static_cast<std::size_t>(d.parent)];
      if (above.possible_speed) built = std::min(built, *above.possible_speed);
    }
    const auto kin = kin_.find(kind_of(d));
    double usual = 0;
    if (kin != kin_.end()) {
      for (const auto& [speed, count] : kin->second.speeds) usual = std::max(usual, speed);
    }
    const double taken = usual > 2.5 ? usual : built;
    if (taken <= 2.5) return;
    if (d.possible_speed) {
      awake_.insert(&d);
    } else {
      doubts_.add(name_of(d), d.origin,
                  fmt::format("says 2.5 GT/s, as idle GPUs do; {} GT/s is taken", taken));
    }
    d.speed = taken;
  }

  /// With the others of its kind: GPUs with GPUs, ports of one switch with each other.
  void compare(DeviceRecord& d) {
    if (!any_ || !has_a_link(d)) return;
    const Kin& kin = kin_[kind_of(d)];
    const auto speed = kin.usual(kin.speeds, d.speed);
    const auto width = kin.usual(kin.widths, d.width);
    if (!d.speed || !d.width) {
      if (is_bridge_class(d.pci_class)) return;  // by what is below it
      const bool said = is_repaired(d);
      const double taken = d.speed ? *d.speed : speed ? *speed : d.gpu ? model_of(d).pci_speed : 0;
      if (!said && complete_) {
        doubts_.add(
            name_of(d), d.origin,
            speed || taken > 0
                ? fmt::format("does not say its PCI link, unlike others; {} GT/s x{} is taken",
                              taken > 0 ? taken : 16, d.width ? *d.width : width.value_or(16))
                : "does not say its PCI link, unlike others; the one above it counts");
      }
      if (taken > 0) d.speed = taken;
      if (!d.width && d.speed) d.width = width.value_or(16);
      return;
    }
    if (!d.gpu) return;
    if (speed && *d.speed > *speed && *d.speed > model_of(d).pci_speed) {
      doubts_.add(name_of(d), d.origin,
                  fmt::format("says {} GT/s where all others of its kind have {}; {} is taken",
                              *d.speed, *speed, *speed));
      d.speed = speed;
    }
    if (width && *d.width > *width && *d.width > 16) {
      doubts_.add(name_of(d), d.origin,
                  fmt::format("says {} lanes where all others of its kind have {}; {} are taken",
                              *d.width, *width, *width));
      d.width = width;
    } else if (width && speed && bandwidth_of(d) < 0.6 * pci_bandwidth(*speed, *width)) {
      doubts_.add(name_of(d), d.origin,
                  fmt::format("has a PCI link of {} where all others of its kind have {} GT/s x{}; "
                              "that is possible, so it is believed",
                              link_text(d), *speed, *width));
    }
  }

  /// `fastest`: of what hangs on it.
  void check_bridge(DeviceRecord& d, const DeviceRecord* fastest) {
    if (!any_ || !has_a_link(d)) return;
    if (fastest == nullptr) {
      if (is_bridge_class(d.pci_class) && (!d.speed || !d.width) && complete_ && !is_repaired(d)) {
        doubts_.add(text_of(*d.bus), d.origin,
                    "does not say its PCI link, unlike others, and nothing is below it");
      }
      return;
    }
    if (awake_.contains(fastest) && d.speed == 2.5 && d.possible_speed.value_or(0) > 2.5) {
      d.speed = std::min(*d.possible_speed, *fastest->speed);  // the other end of the idle link
      awake_.insert(&d);
      if (d.width) return;
    }
    if (!d.speed || !d.width) {
      if (!is_repaired(d) && complete_) {
        doubts_.add(
            text_of(*d.bus), d.origin,
            fmt::format("does not say its PCI link, unlike others; {} is taken, as below it",
                        link_text(*fastest)));
      }
    } else {
      // Virtual bridges say the least that there is; real ones may be a generation behind.
      const bool least = *d.speed == 2.5 || (*d.width == 1 && *fastest->width >= 4);
      const bool slow = bandwidth_of(d) < bandwidth_of(*fastest) / 5;
      if (!slow && !(least && bandwidth_of(d) < bandwidth_of(*fastest))) return;
      doubts_.add(fmt::format("bridge {}", text_of(*d.bus)), d.origin,
                  fmt::format("says {} before a device with {}, which virtual bridges do; the "
                              "device's is taken",
                              link_text(d), link_text(*fastest)));
    }
    d.speed = fastest->speed;
    d.width = fastest->width;
  }

  Records& r_;
  Doubts& doubts_;
  bool any_ = false;       // some link is said
  bool complete_ = false;  // the writer of such a file says all links, if any
  std::map<Kind, Kin> kin_;
  std::set<const DeviceRecord*> repaired_;
  std::set<const DeviceRecord*> awake_;  // idle before
};

}  // namespace

void check_pci(Records& records, Doubts& doubts) { PciCheck(records, doubts).run(); }

}  // namespace tutti::topology
