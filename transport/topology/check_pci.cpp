// Speeds and widths of PCI links; see check.h. What a device runs at is believed as far as it is
// possible: a GPU in a slot with 8 lanes is slow, not wrong.
#include <fmt/format.h>

#include <algorithm>

#include "transport/topology/check.h"

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
    for (DeviceRecord& d : r_.devices) wake(d);
    for (DeviceRecord& d : r_.devices) compare(d);
    // From the leaves up: what a bridge has below it is known when its turn comes.
    for (std::size_t i = r_.devices.size(); i-- > 0;) check_bridge(i);
    if (!any_ && !r_.devices.empty() && !r_.format.starts_with("nvidia-smi")) {
      r_.unseen.emplace_back("speeds of PCI links");
    }
  }

 private:
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
      repaired_.push_back(&d);
    }
    if (d.speed && !is_a_speed(*d.speed)) {
      doubts_.add(name_of(d), d.origin,
                  fmt::format("says a PCI link of {} GT/s; no link has that, so it is taken as not "
                              "known",
                              *d.speed));
      d.speed.reset();
      repaired_.push_back(&d);
    }
  }

  bool is_repaired(const DeviceRecord& d) const {
    return std::ranges::find(repaired_, &d) != repaired_.end();
  }

  /// GPUs that have nothing to do slow their link down to 2.5 GT/s.
  void wake(DeviceRecord& d) {
    if (!d.gpu || !d.speed || *d.speed != 2.5) return;
    const double built = d.possible_speed ? *d.possible_speed : model_of(d).pci_speed;
    std::vector<double> others;
    for (const DeviceRecord& o : r_.devices) {
      if (o.gpu && &o != &d && o.device == d.device && o.speed) others.push_back(*o.speed);
    }
    const double usual = others.empty() ? 0 : std::ranges::max(others);
    const double taken = usual > 2.5 ? usual : built;
    if (taken <= 2.5) return;
    doubts_.add(name_of(d), d.origin,
                fmt::format("says 2.5 GT/s, as idle GPUs do; {} GT/s is taken", taken));
    d.speed = taken;
  }

  /// With the others of its kind: GPUs with GPUs, ports of one switch with each other.
  void compare(DeviceRecord& d) {
    if (!any_ || !has_a_link(d)) return;
    std::vector<double> speeds;
    std::vector<int> widths;
    for (const DeviceRecord& o : r_.devices) {
      const bool kin = o.device == d.device && o.vendor == d.vendor && o.pci_class == d.pci_class;
      if (&o == &d || !kin || !has_a_link(o)) continue;
      if (o.speed) speeds.push_back(*o.speed);
      if (o.width) widths.push_back(*o.width);
    }
    const auto speed = common(speeds);
    const auto width = common(widths);
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
    if (speed && *d.speed > *speed && speeds.size() >= 2 && *d.speed > model_of(d).pci_speed) {
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

  void check_bridge(std::size_t index) {
    DeviceRecord& d = r_.devices[index];
    if (!any_ || !has_a_link(d)) return;
    double below = 0;
    const DeviceRecord* fastest = nullptr;
    for (const DeviceRecord& child : r_.devices) {
      if (child.parent != static_cast<int>(index) || bandwidth_of(child) <= below) continue;
      below = bandwidth_of(child);
      fastest = &child;
    }
    if (fastest == nullptr) return;
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
      const bool slow = bandwidth_of(d) < below / 5;
      if (!slow && !(least && bandwidth_of(d) < below)) return;
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
  bool complete_ = false;  // who writes such files says all links, if any
  std::vector<const DeviceRecord*> repaired_;
};

}  // namespace

void check_pci(Records& records, Doubts& doubts) { PciCheck(records, doubts).run(); }

}  // namespace tutti::topology
