// Rows, table and JSON; see compare_report.h.
#include "laboratory/compare/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/perf/benchmark.h"

namespace tutti::compare {
namespace {

std::string format_us(double us) {
  const int decimals = us < 10 ? 3 : us < 100 ? 2 : us < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", us, decimals);
}

/// "0.250 ±4%": half the distance between the quartiles, as a part of the median; the quartiles
/// themselves where that says nothing.
std::string format_times(const Times& times, bool verbose) {
  if (times.empty()) return "-";
  const Figure us = figure_of(times);
  const double spread = (us.high - us.low) / us.median * 50;
  if (verbose || !(spread <= 100)) {
    return fmt::format("{} ({}-{})", format_us(us.median), format_us(us.low), format_us(us.high));
  }
  return fmt::format("{} ±{:.0f}%", format_us(us.median), spread);
}

/// "2.00 (1.90-2.20)"; no number to quote where that would be a guess.
std::string format_figure(const std::optional<Figure>& figure, double unit, int decimals,
                          std::string_view suffix) {
  if (!figure) return "-";
  const auto quoted = figure->steady()
                          ? fmt::format("{:.{}f}{}", figure->median * unit, decimals, suffix)
                          : "unsteady";
  return fmt::format("{} ({:.{}f}-{:.{}f}{})", quoted, figure->low * unit, decimals,
                     figure->high * unit, decimals, suffix);
}

std::string format_bytes(std::size_t bytes) {
  constexpr std::string_view kUnits = "KMG";
  std::size_t unit = 0;
  std::size_t number = bytes;
  while (unit < kUnits.size() && number >= 1024 && number % 1024 == 0) {
    number /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", number) : fmt::format("{}{}", number, kUnits[unit - 1]);
}

/// On a screen: the bytes that continue a character of UTF-8 take no place.
std::size_t width(std::string_view text) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continues));
}

/// Right-aligned columns, as wide as they need to be.
std::string align(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], width(line[c]));
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) {
      text +=
          fmt::format("{}{:>{}}{}", c == 0 ? "" : "  ", "", widths[c] - width(line[c]), line[c]);
    }
    text += '\n';
  }
  return text;
}

/// Round by round.
Figure ratio_of(const Times& others, const Times& tutti) {
  Times ratios;
  for (std::size_t round = 0; round < std::min(others.size(), tutti.size()); ++round) {
    ratios.push_back(others[round] / tutti[round]);
  }
  return figure_of(std::move(ratios));
}

}  // namespace

Figure figure_of(Times times) {
  if (times.empty()) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    return {kNone, kNone, kNone};
  }
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double part) {  // between two of them, in proportion
    const double at = part * static_cast<double>(times.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const std::size_t above = std::min(below + 1, times.size() - 1);
    return times[below] + (at - static_cast<double>(below)) * (times[above] - times[below]);
  };
  return {quantile(0.5), quantile(0.25), quantile(0.75)};
}

double Row::bus_gbps() const {
  return perf::bus_factor(collective, ranks) * static_cast<double>(bytes) /
         figure_of(tutti).median / 1e3;
}

std::string Row::best_peer() const {
  std::string best;
  double best_us = std::numeric_limits<double>::infinity();
  for (const auto& [peer, times] : peers) {
    const double us = figure_of(times).median;
    if (!(us < best_us)) continue;
    best = peer;
    best_us = us;
  }
  return best;
}

Times Row::best_limit() const {
  Times best;
  for (const Times& way : limit) {
    if (best.empty() || figure_of(way).median < figure_of(best).median) best = way;
  }
  return best;
}

std::optional<Figure> Row::ratio() const {
  const auto best = peers.find(best_peer());
  if (best == peers.end()) return std::nullopt;
  return ratio_of(best->second, tutti);
}

std::optional<Figure> Row::of_limit() const {
  const Times best = best_limit();
  if (best.empty()) return std::nullopt;
  return ratio_of(best, tutti);
}

std::string format_table(const std::vector<Row>& rows, const std::vector<std::string>& peers,
                         bool verbose) {
  const Row& first = rows.front();
  std::string text =
      fmt::format("{}, {} ranks, {}, Tutti's buffers from {}; times in us, busbw in GB/s\n",
                  name(first.collective), first.ranks, name(first.type), first.memory);
  std::vector<std::vector<std::string>> lines{{"size", "tutti", "busbw"}};
  lines[0].insert(lines[0].end(), peers.begin(), peers.end());
  for (const char* title : {"limit", "ratio", "of limit"}) lines[0].push_back(title);
  for (const Row& row : rows) {
    auto& line = lines.emplace_back();
    line = {format_bytes(row.bytes), format_times(row.tutti, verbose),
            fmt::format("{:.2f}", row.bus_gbps())};
    for (const std::string& peer : peers) {
      const auto found = row.peers.find(peer);
      line.push_back(found == row.peers.end() ? "-" : format_times(found->second, verbose));
    }
    line.push_back(format_times(row.best_limit(), verbose));
    line.push_back(format_figure(row.ratio(), 1, 2, ""));
    line.push_back(format_figure(row.of_limit(), 100, 0, "%"));
  }
  return text + align(lines);
}

std::string format_json(const std::vector<Row>& rows, const Conditions& run) {
  using Json = nlohmann::ordered_json;
  const auto quoted = [](const std::optional<Figure>& figure) {
    return figure && figure->steady() ? Json(figure->median) : Json();
  };
  Json list = Json::array();
  for (const Row& row : rows) {
    Json peers = Json::object(), quartiles = Json::object();
    const auto add_quartiles = [&](std::string_view what, const Figure& figure) {
      quartiles[std::string(what)] = {figure.low, figure.high};
    };
    add_quartiles("tutti", figure_of(row.tutti));
    for (const auto& [peer, times] : row.peers) {
      if (times.empty()) continue;
      peers[peer] = figure_of(times).median;
      add_quartiles(peer, figure_of(times));
    }
    const Times limit = row.best_limit();
    if (!limit.empty()) add_quartiles("limit", figure_of(limit));
    if (row.ratio()) add_quartiles("ratio", *row.ratio());
    if (row.of_limit()) add_quartiles("of_limit", *row.of_limit());
    list.push_back({{"collective", name(row.collective)},
                    {"type", name(row.type)},
                    {"bytes", row.bytes},
                    {"ranks", row.ranks},
                    {"memory", row.memory},
                    {"tutti_us", figure_of(row.tutti).median},
                    {"busbw", row.bus_gbps()},
                    {"peers", peers},
                    {"limit_us", limit.empty() ? Json() : Json(figure_of(limit).median)},
                    {"ratio", quoted(row.ratio())},
                    {"of_limit", quoted(row.of_limit())},
                    {"quartiles", quartiles}});
  }
  const Json document{{"version", 2},
                      {"tutti_version", TUTTI_VERSION},
                      {"cpu", run.cpu},
                      {"cores", run.cores},
                      {"bound", run.bound},
                      {"rounds", run.rounds},
                      {"tutti_over", run.carrier},
                      {"slice_ms", run.slice},
                      {"notes", run.notes},
                      {"rows", list}};
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::compare
