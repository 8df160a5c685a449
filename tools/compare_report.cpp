// Rows, table and JSON; see compare_report.h.
#include "tools/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bench/perf/benchmark.h"
#include "core/error.h"

namespace tutti::compare {
namespace {

std::string format_us(double us) {
  const int decimals = us < 10 ? 3 : us < 100 ? 2 : us < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", us, decimals);
}

std::string format_times(const Times& times, bool verbose) {
  if (times.empty()) return "-";
  if (!verbose) return format_us(median(times));
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return fmt::format("{} ({}-{})", format_us(median(times)), format_us(*least), format_us(*most));
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

/// Right-aligned columns, as wide as they need to be.
std::string align(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) {
      text += fmt::format("{}{:>{}}", c == 0 ? "" : "  ", line[c], widths[c]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace

double median(Times times) {
  if (times.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 != 0 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

Output parse_output(std::string_view text) {
  Output output;
  std::istringstream lines{std::string(text)};
  constexpr std::string_view kUnsupported = "unsupported ";
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kUnsupported, 0) == 0) {
      output.unsupported = line.substr(kUnsupported.size());
      continue;
    }
    std::istringstream words(line);
    std::size_t bytes = 0;
    double us = 0;
    std::string more;
    if (!(words >> bytes >> us) || words >> more || !(us > 0) || !std::isfinite(us)) {
      throw Error(ErrorCode::internal,
                  fmt::format("expected 'bytes microseconds' from it, got '{}'", line));
    }
    output.times[bytes] = us;
  }
  return output;
}

double Row::bus_gbps() const {
  return perf::bus_factor(collective, ranks) * static_cast<double>(bytes) / tutti_us() / 1e3;
}

std::optional<std::pair<std::string, double>> Row::best_peer() const {
  std::optional<std::pair<std::string, double>> best;
  for (const auto& [peer, times] : peers) {
    if (times.empty()) continue;
    const double us = median(times);
    if (!best || us < best->second) best = {peer, us};
  }
  return best;
}

std::optional<double> Row::ratio() const {
  const auto best = best_peer();
  if (!best) return std::nullopt;
  return best->second / tutti_us();
}

std::optional<double> Row::of_limit() const {
  if (limit.empty()) return std::nullopt;
  return median(limit) / tutti_us();
}

std::string format_table(const std::vector<Row>& rows, const std::vector<std::string>& peers,
                         bool verbose) {
  const Row& first = rows.front();
  std::string text =
      fmt::format("{}, {} ranks, {}, Tutti's buffers from {}; median times in us, busbw in GB/s\n",
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
    const auto ratio = row.ratio(), of_limit = row.of_limit();
    line.push_back(format_times(row.limit, verbose));
    line.push_back(ratio ? fmt::format("{:.2f}", *ratio) : "-");
    line.push_back(of_limit ? fmt::format("{:.0f}%", *of_limit * 100) : "-");
  }
  return text + align(lines);
}

std::string format_json(const std::vector<Row>& rows, const Conditions& run) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
  Json list = Json::array();
  for (const Row& row : rows) {
    Json peers = Json::object();
    for (const auto& [peer, times] : row.peers) {
      if (!times.empty()) peers[peer] = median(times);
    }
    list.push_back({{"collective", name(row.collective)},
                    {"type", name(row.type)},
                    {"bytes", row.bytes},
                    {"ranks", row.ranks},
                    {"memory", row.memory},
                    {"tutti_us", row.tutti_us()},
                    {"busbw", row.bus_gbps()},
                    {"peers", peers},
                    {"limit_us", row.limit.empty() ? Json() : Json(median(row.limit))},
                    {"ratio", or_null(row.ratio())},
                    {"of_limit", or_null(row.of_limit())}});
  }
  const Json document{{"version", 1},
                      {"tutti_version", TUTTI_VERSION},
                      {"cpu", run.cpu},
                      {"cores", run.cores},
                      {"bound", run.bound},
                      {"alternations", run.alternations},
                      {"iterations", run.iterations},
                      {"notes", run.notes},
                      {"rows", list}};
  return document.dump(2) + "\n";
}

}  // namespace tutti::compare
