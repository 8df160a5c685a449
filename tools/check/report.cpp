// See report.h.
#include "tools/check/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "tools/size_text.h"

namespace tutti::check {
namespace {

constexpr double kMuch = 0.1;  // of all processors, or seconds that a control group takes

const char* name(Speed speed) {
  switch (speed) {
    case Speed::fine:
      return "fine";
    case Speed::slow:
      return "slow";
    case Speed::fast:
      return "fast";
    case Speed::none:
      break;
  }
  return "no verdict";
}

Speed speed_of(const CheckedSize& s, double band) {
  if (s.ratio() > band) return Speed::slow;
  return s.ratio() < 1 / band ? Speed::fast : Speed::fine;
}

/// Whether two neighbours are so, or the only size is.
bool has_span(const Check& c, Speed speed) {
  std::size_t together = 0;
  for (const CheckedSize& s : c.sizes) {
    together = speed_of(s, c.band) == speed ? together + 1 : 0;
    if (together == std::min<std::size_t>(2, c.sizes.size())) return true;
  }
  return false;
}

const CheckedSize& worst_of(const Check& c) {
  return *std::ranges::max_element(c.sizes, {}, &CheckedSize::ratio);
}

}  // namespace

Speed verdict_of(const Check& c) {
  if (c.sizes.empty()) return Speed::none;
  if (has_span(c, Speed::slow)) return Speed::slow;
  return has_span(c, Speed::fast) ? Speed::fast : Speed::fine;
}

std::vector<std::string> causes_of(const Check& c) {
  std::vector<std::string> causes;
  if (c.load.throttled > kMuch) {
    causes.push_back(
        fmt::format("a control group stopped processes for {:.1f} s: give the ranks a "
                    "core each (cpu.max, --cpus; `tutti doctor` shows the limit)",
                    c.load.throttled));
  }
  if (c.load.stolen > kMuch) {
    causes.push_back(
        fmt::format("the hypervisor took {:.0f} % of the processors: another host has "
                    "more of them to give",
                    100 * c.load.stolen));
  }
  if (c.load.others > kMuch) {
    causes.push_back(
        fmt::format("other processes used {:.0f} % of the processors: see `top`, and "
                    "measure when they are done",
                    100 * c.load.others));
  }
  if (c.hosts > 1) {
    causes.push_back("the network between the hosts: `tutti doctor --to HOST` measures the way");
  }
  causes.push_back("one rank that is slow holds up all: `tutti top`, while a job runs, names it");
  if (!c.calibrated) {
    causes.push_back("the expectation is of a usual server: `tutti calibrate` measures this one");
  }
  return causes;
}

std::string text_of(const Check& c) {
  const Speed verdict = verdict_of(c);
  std::string text;
  if (verdict == Speed::none) return "no verdict: nothing was measured\n";
  if (verdict == Speed::slow) {
    const CheckedSize& s = worst_of(c);
    text = fmt::format("slow: {} take {:.1f} us where {:.1f} are expected ({:.1f} times slower)\n",
                       size_text(static_cast<std::uint64_t>(s.bytes)), s.measured, s.expected,
                       s.ratio());
  } else if (verdict == Speed::fast) {
    text = "fast: calls take less than half of what is expected; `tutti calibrate` again\n";
  } else {
    text = fmt::format("fine: all sizes are within {:g} times of what is expected\n", c.band);
  }
  text += fmt::format("{} of {} on {}; constants: {}\n", c.collective, counted(c.ranks, "rank"),
                      counted(c.hosts, "host"), c.origin);
  if (c.line_rate > 0) text += fmt::format("line rate: {:g} Gbit/s\n", c.line_rate);
  text += fmt::format("\n{:>10} {:>12} {:>12} {:>7} {:>9}\n", "SIZE", "MEASURED us", "EXPECTED us",
                      "TIMES", "busbw");
  for (const CheckedSize& s : c.sizes) {
    const Speed speed = speed_of(s, c.band);
    text += fmt::format("{:>10} {:>12.1f} {:>12.1f} {:>7.2f} {:>9.2f}{}\n",
                        size_text(static_cast<std::uint64_t>(s.bytes)), s.measured, s.expected,
                        s.ratio(), s.busbw,
                        speed == Speed::fine ? "" : fmt::format("  {}", name(speed)));
  }
  if (verdict != Speed::slow) return text;
  text += "\nWhat may be the cause:\n";
  for (const std::string& cause : causes_of(c)) text += fmt::format("  {}\n", cause);
  return text;
}

std::string json_of(const Check& c) {
  nlohmann::ordered_json j;
  const Speed verdict = verdict_of(c);
  j["verdict"] = name(verdict);
  j["collective"] = c.collective;
  j["ranks"] = c.ranks;
  j["hosts"] = c.hosts;
  j["band"] = c.band;
  j["constants"] = c.origin;
  j["calibrated"] = c.calibrated;
  j["line_rate_gbit"] = c.line_rate;
  j["sizes"] = nlohmann::ordered_json::array();
  for (const CheckedSize& s : c.sizes) {
    j["sizes"].push_back({{"bytes", s.bytes},
                          {"measured_us", s.measured},
                          {"expected_us", s.expected},
                          {"times", s.ratio()},
                          {"busbw", s.busbw},
                          {"verdict", name(speed_of(s, c.band))}});
  }
  j["load"] = {
      {"others", c.load.others}, {"stolen", c.load.stolen}, {"throttled_s", c.load.throttled}};
  j["causes"] = verdict == Speed::slow ? causes_of(c) : std::vector<std::string>();
  return j.dump(2) + "\n";
}

int exit_status(Speed speed) {
  constexpr int kNoVerdict = 3;
  return speed == Speed::none ? kNoVerdict : speed == Speed::slow ? 1 : 0;
}

}  // namespace tutti::check
