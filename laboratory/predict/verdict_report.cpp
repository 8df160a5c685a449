// See verdict_report.h.
#include "laboratory/predict/verdict_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "bench/perf/benchmark.h"
#include "core/counted.h"

namespace tutti {
namespace {

/// Shorter calls are all latency: their time says more than their rate.
constexpr double kRates = 1 << 20;

std::string size(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

/// Of a rate, a time or a multiple: no more digits than it deserves.
std::string figure(double value) {
  return value >= 100  ? fmt::format("{:.0f}", value)
         : value >= 10 ? fmt::format("{:.0f}", value)
                       : fmt::format("{:.2g}", value);
}

std::string rate(const VerdictReport& r, const JudgedRow& row, double us) {
  if (row.bytes < kRates) return figure(us) + " us";
  return figure(row.bytes / us / 1000 * perf::bus_factor(r.collective, r.ranks)) + " GB/s";
}

std::string times(double ratio) {
  return ratio >= 1 ? fmt::format("{} times slower", figure(ratio))
                    : fmt::format("{} times faster", figure(1 / ratio));
}

std::string sizes(const SpeedVerdict& v, const Span& s) {
  const double first = s.rows.front().bytes, last = s.rows.back().bytes;
  if (first == last) return size(first);
  if (&s == &v.spans.back() && &s != &v.spans.front())
    return fmt::format("from {} on", size(first));
  return fmt::format("{} to {}", size(first), size(last));
}

std::string expected(const VerdictReport& r, const Span& s) {
  const JudgedRow& row = s.middle();
  return fmt::format("{} where {} are expected ({})", rate(r, row, row.measured),
                     rate(r, row, row.predicted), times(row.ratio()));
}

std::string line_of(const VerdictReport& r, const Span& s) {
  if (s.outcome == Outcome::fine) {
    double low = s.rows.front().ratio(), high = low;
    for (const JudgedRow& row : s.rows) {
      low = std::min(low, row.ratio());
      high = std::max(high, row.ratio());
    }
    return fmt::format("  fine    {}: {} to {} times the expected time", sizes(r.verdict, s),
                       figure(low), figure(high));
  }
  const JudgedRow& row = s.middle();
  return fmt::format("  {}    {}: {}; {} to {} times the expected time would be fine{}",
                     s.outcome == Outcome::slow ? "slow" : "fast", sizes(r.verdict, s),
                     expected(r, s), figure(row.band.low), figure(row.band.high),
                     s.decides ? "" : "; too few sizes to say more");
}

std::string doubt_of(const JudgedRow& row) {
  if (!row.known) return "no log of this kind of call was at hand, so the expectation is a guess";
  if (row.band.machines == 0) return "no log of such calls of this size was at hand";
  return fmt::format("90 % of such rows of {} lie within these multiples of the expected time",
                     counted(row.band.machines, "machine"));
}

std::string all_fine(const SpeedVerdict& v) {
  std::size_t fine = 0, all = v.stalls.size();
  double first = 0, last = 0, low = 1, high = 1;
  for (const Span& s : v.spans) {
    all += s.rows.size();
    if (s.outcome != Outcome::fine) continue;
    for (const JudgedRow& row : s.rows) {
      low = fine == 0 ? row.ratio() : std::min(low, row.ratio());
      high = fine == 0 ? row.ratio() : std::max(high, row.ratio());
      if (fine == 0) first = row.bytes;
      last = row.bytes;
      ++fine;
    }
  }
  if (fine == 0) return fmt::format("fine: no {} in a row are slow", counted(3, "size"));
  return fmt::format("fine: {} of {} from {} to {} take {} to {} times the expected time", fine,
                     counted(all, "size"), size(first), size(last), figure(low), figure(high));
}

/// The one that says most of all tables: slow, then none.
Outcome worst_of(const std::vector<VerdictReport>& tables) {
  for (const Outcome outcome : {Outcome::slow, Outcome::none, Outcome::fine}) {
    for (const VerdictReport& r : tables) {
      if (r.verdict.outcome == outcome) return outcome;
    }
  }
  return tables.empty() ? Outcome::none : Outcome::fast;
}

std::string headline(const std::vector<VerdictReport>& tables) {
  constexpr std::array<const char*, 4> kWords{"fine", "slow", "better than expected", "no verdict"};
  const Outcome worst = worst_of(tables);
  const auto of_it =
      std::ranges::count(tables, worst, [](const VerdictReport& r) { return r.verdict.outcome; });
  return fmt::format("{}: {} of {} tables", kWords[static_cast<std::size_t>(worst)], of_it,
                     tables.size());
}

}  // namespace

std::string first_line(const VerdictReport& r) {
  if (!r.refused.empty()) return "no verdict: " + r.refused;
  const SpeedVerdict& v = r.verdict;
  const Span* s = v.worst();
  if (s == nullptr) return "no verdict: there are no rows";
  if (!v.depends_on.empty()) {
    return fmt::format("no verdict: {} {}, if it is as guessed; {}", sizes(v, *s), expected(r, *s),
                       v.depends_on);
  }
  switch (v.outcome) {
    case Outcome::slow:
      if (s->outcome != Outcome::slow || !s->decides) {
        return fmt::format(
            "slow: {} sizes take much longer than larger ones do, as {} with {} us where "
            "{} are expected",
            v.stalls.size(), size(v.stalls.back().bytes), figure(v.stalls.back().measured),
            figure(v.stalls.back().predicted));
      }
      return fmt::format("slow: {} {}; at least {} times whatever the doubt", sizes(v, *s),
                         expected(r, *s), figure(std::max(s->at_least(), 1.0)));
    case Outcome::fast:
      return fmt::format("better than expected: {} {}", sizes(v, *s), expected(r, *s));
    case Outcome::none:
      return fmt::format("no verdict: {} {}, but no log of this kind of call was at hand",
                         sizes(v, *s), expected(r, *s));
    case Outcome::fine:
      break;
  }
  return all_fine(v);
}

std::string text_of(const VerdictReport& r) {
  std::string text = first_line(r) + "\n";
  for (const Span& s : r.verdict.spans) text += line_of(r, s) + "\n";
  for (const JudgedRow& row : r.verdict.stalls) {
    text += fmt::format("  stall   {}: {} us, {}\n", size(row.bytes), figure(row.measured),
                        times(row.ratio()));
  }
  if (const Span* s = r.verdict.worst())
    text += fmt::format("  doubt   {}\n", doubt_of(s->middle()));
  for (const std::string& g : r.guessed) text += fmt::format("  guessed {}\n", g);
  if (!r.causes.empty())
    text += "likely causes, the best fit first (guesses by the pattern of sizes):\n";
  int number = 0;
  for (const Cause& c : r.causes) {
    text += fmt::format(
        "  {}. {}{}{}\n     look at {}\n", ++number, c.what, c.said ? "; the log says so" : "",
        c.off > 1 ? fmt::format(" (times fit within x{:.2f})", c.off) : "", c.look_at);
  }
  return text;
}

std::string summary_of(const std::vector<VerdictReport>& tables) {
  std::string text = headline(tables) + "\n";
  int number = 0;
  for (const VerdictReport& r : tables) {
    text += fmt::format("  {}. {} of {} on {}: {}\n", ++number, name(r.collective),
                        counted(r.ranks, "rank"), counted(r.hosts, "host"), first_line(r));
  }
  return text;
}

namespace {

using nlohmann::ordered_json;

ordered_json object_of(const VerdictReport& r) {
  const auto row_of = [](const JudgedRow& row) {
    return ordered_json{{"bytes", row.bytes},
                        {"measured_us", row.measured},
                        {"predicted_us", row.predicted},
                        {"least_us", row.predicted * row.band.low},
                        {"most_us", row.predicted * row.band.high},
                        {"known", row.known}};
  };
  ordered_json j;
  j["verdict"] = name(r.verdict.outcome);
  j["line"] = first_line(r);
  const Span* s = r.verdict.worst();
  j["times_slower"] = s == nullptr ? 0 : s->middle().ratio();
  j["at_least"] = s == nullptr ? 0 : s->at_least();
  j["source"] = r.source;
  j["machine"] = r.machine;
  j["collective"] = name(r.collective);
  j["ranks"] = r.ranks;
  j["hosts"] = r.hosts;
  j["guessed"] = r.guessed;
  j["depends_on"] = r.verdict.depends_on;
  j["spans"] = ordered_json::array();
  for (const Span& span : r.verdict.spans) {
    ordered_json one{{"verdict", name(span.outcome)}, {"decides", span.decides}};
    one["rows"] = ordered_json::array();
    for (const JudgedRow& row : span.rows) one["rows"].push_back(row_of(row));
    j["spans"].push_back(one);
  }
  j["stalls"] = ordered_json::array();
  for (const JudgedRow& row : r.verdict.stalls) j["stalls"].push_back(row_of(row));
  j["causes"] = ordered_json::array();
  for (const Cause& c : r.causes) {
    j["causes"].push_back(ordered_json{
        {"id", c.id}, {"what", c.what}, {"look_at", c.look_at}, {"off", c.off}, {"said", c.said}});
  }
  return j;
}

}  // namespace

std::string json_of(const std::vector<VerdictReport>& tables) {
  ordered_json j;
  if (tables.size() == 1) {
    j = object_of(tables.front());
  } else {
    j["verdict"] = name(worst_of(tables));
    j["line"] = headline(tables);
    j["tables"] = ordered_json::array();
    for (const VerdictReport& r : tables) j["tables"].push_back(object_of(r));
  }
  // What is no UTF-8 in a file's name is replaced.
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

int exit_status(const std::vector<VerdictReport>& tables) {
  SpeedVerdict all;
  all.outcome = worst_of(tables);
  return exit_status(all);
}

int exit_status(const SpeedVerdict& verdict) {
  switch (verdict.outcome) {
    case Outcome::slow:
      return 1;
    case Outcome::none:
      return 3;
    case Outcome::fine:
    case Outcome::fast:
      break;
  }
  return 0;
}

}  // namespace tutti
