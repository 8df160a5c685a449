// See steadiness.h.
#include "tools/calibrate/steadiness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>

namespace tutti {
namespace {

constexpr double kMostOthers = 0.25;  // cores that a host's own services may take
constexpr double kSteady = 2;         // a larger factor changes which algorithm is the fastest
constexpr std::size_t kNamed = 4;     // constants in the warning

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

OtherLoad::OtherLoad() : start_(now()) {}

std::optional<OtherLoad::Times> OtherLoad::now() {
  std::ifstream stat("/proc/stat");
  std::string label;
  // In ticks: at work, at low priority, in the kernel, idle, waiting for disks, in interrupts of
  // two kinds, and taken by the hypervisor for others.
  double work = 0, nice = 0, kernel = 0, idle = 0, disks = 0, hard = 0, soft = 0, stolen = 0;
  stat >> label >> work >> nice >> kernel >> idle >> disks >> hard >> soft >> stolen;
  if (!stat || label != "cpu") return std::nullopt;
  const double ticks = work + nice + kernel + hard + soft + stolen;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
  return Times{wall.count(), ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)),
               cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN)};
}

std::optional<double> OtherLoad::cores() const {
  const std::optional<Times> end = start_ ? now() : std::nullopt;
  if (!end || end->wall <= start_->wall) return std::nullopt;
  const double others = (end->all - start_->all) - (end->own - start_->own);
  return std::max(others, 0.0) / (end->wall - start_->wall);
}

std::vector<std::string_view> unsteady_constants(const std::vector<Machine>& rounds) {
  std::vector<std::string_view> unsteady;
  if (rounds.size() < 3) return unsteady;
  for (const MachineConstant& c : machine_constants()) {
    std::vector<double> values;
    for (const Machine& round : rounds) values.push_back(round.*c.value);
    std::ranges::sort(values);
    const std::size_t quarter = std::max<std::size_t>(values.size() / 4, 1);
    const double low = values[quarter], high = values[values.size() - 1 - quarter];
    if (high > kSteady * low) unsteady.push_back(c.name);
  }
  return unsteady;
}

std::string warning_of_load(std::optional<double> other_cores, const std::vector<Machine>& rounds) {
  std::vector<std::string_view> unsteady = unsteady_constants(rounds);
  const bool busy = other_cores && *other_cores > kMostOthers;
  // Some constants are differences of measurements that nearly cancel: a few may vary.
  const bool varies = unsteady.size() > machine_constants().size() / 4;
  if (!busy && !varies) return "";
  std::string text = "this machine was not idle, so the constants may be wrong";
  if (busy) {
    text += fmt::format("; other processes used {:.1f} cores meanwhile", *other_cores);
  }
  if (varies) {
    const std::size_t more = unsteady.size() - std::min(unsteady.size(), kNamed);
    unsteady.resize(unsteady.size() - more);
    text +=
        fmt::format("; the rounds differ by more than a factor of {:g} in {}{}", kSteady,
                    fmt::join(unsteady, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
  }
  return text + ". Calibrate again when nothing else runs";
}

}  // namespace tutti
