// Formatting; see table.h.
#include "bench/perf/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::perf {

namespace {

constexpr std::string_view kDateFormat = "%Y-%m-%d %H:%M:%S";  // of Row::timestamp

double column_microseconds(const Timed& timed, const PerfOptions& options) {
  return (options.cpu_time ? timed.cpu_seconds : timed.seconds) * 1e6;
}

std::string format_wrong(const Timed& timed) {
  return timed.wrong ? fmt::format("{:g}", static_cast<double>(*timed.wrong)) : "N/A";
}

std::string format_measurement(const Measurement* measurement, const PerfOptions& options) {
  const auto columns = [](const std::string& time, const std::string& algorithm,
                          const std::string& bus, const std::string& wrong) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, algorithm, bus, wrong);
  };
  const auto statistics = [](const std::string& a, const std::string& b, const std::string& c,
                             const std::string& d) {
    return fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", a, b, c, d);
  };
  const std::string none = "N/A";
  if (measurement == nullptr) {
    return columns(none, none, none, none) +
           (options.per_iteration ? statistics(none, none, none, none) : "");
  }
  std::string text = columns(format_number(column_microseconds(*measurement, options), 7),
                             format_number(measurement->algorithm_gbps, 6),
                             format_number(measurement->bus_gbps, 6), format_wrong(*measurement));
  if (measurement->iterations) {
    const IterationStats& stats = *measurement->iterations;
    text += statistics(format_number(stats.minimum, 7), format_number(stats.maximum, 7),
                       format_number(stats.p99, 7), format_number(stats.variation_percent, 7));
  }
  return text;
}

// What --nccl measured, beside that half of the row.
std::string format_nccl(const Measurement* measurement, const PerfOptions& options) {
  const auto columns = [](const std::string& time, const std::string& bus, const std::string& wrong,
                          const std::string& ratio) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, bus, wrong, ratio);
  };
  if (measurement == nullptr || !measurement->nccl) return columns("N/A", "N/A", "N/A", "N/A");
  const Timed& nccl = *measurement->nccl;
  return columns(format_number(column_microseconds(nccl, options), 7),
                 format_number(nccl.bus_gbps, 6), format_wrong(nccl),
                 format_number(measurement->ratio(options.cpu_time), 6));
}

// The three lines over the columns.
std::string format_columns(const PerfOptions& options) {
  const auto line = [&](std::string_view size, std::string_view count, std::string_view type,
                        std::string_view op, std::string_view root, const std::string& half,
                        const std::string& nccl, std::string_view timestamp) {
    std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}", size, count, type,
                                   op, root, half, half);
    if (!options.nccl.empty()) text += nccl + nccl;
    if (options.timestamps) text += fmt::format("{:>21}", timestamp);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string names =
      fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", options.cpu_time ? "cputime" : "time", "algbw",
                  "busbw", "#wrong");
  std::string units = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  std::string halves = fmt::format("{:>23}{:>31}", "out-of-place", "in-place");
  if (options.per_iteration) {
    names += fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", "i_min", "i_max", "i_p99", "i_cv%");
    units += fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", "(us)", "(us)", "(us)", "(%)");
    halves =
        fmt::format("{:>44}{:>65}", "out-of-place (+ per-iteration)", "in-place (+ per-iteration)");
  }
  if (!options.nccl.empty()) {
    // The in-place title ends so many columns before its half does.
    const int rest = options.per_iteration ? 29 : 12;
    halves += fmt::format("{:>{}}{:>33}", "NCCL, out-of-place", rest + 26, "NCCL, in-place");
  }
  const std::string nccl_names =
      fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", options.cpu_time ? "cputime" : "time", "busbw",
                  "#wrong", "ratio");
  const std::string nccl_units =
      fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "", "");
  return fmt::format("# {:>50}{}\n", "", halves) +
         line("size", "count", "type", "redop", "root", names, nccl_names, "timestamp") +
         line("(B)", "(elements)", "", "", "", units, nccl_units, kDateFormat);
}

}  // namespace

std::string_view label(DataType type) {
  switch (type) {
    case DataType::float16:
      return "half";
    case DataType::float32:
      return "float";
    case DataType::float64:
      return "double";
    case DataType::float8_e4m3:
      return "f8e4m3";
    case DataType::float8_e5m2:
      return "f8e5m2";
    default:
      return name(type);
  }
}

std::string_view label(std::optional<ReduceKind> op) {
  if (!op) return "none";
  return *op == ReduceKind::pre_multiplied_sum ? "mulsum" : name(*op);
}

IterationStats summarize(std::vector<double> times, int skipped) {
  IterationStats stats;
  stats.skipped = skipped;
  std::vector<double> sorted(times.begin() + skipped, times.end());
  stats.times = std::move(times);
  if (sorted.empty()) return stats;
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<double>(sorted.size());
  const auto percentile = [&](double percent) {
    const auto nth = static_cast<std::size_t>(std::ceil(percent / 100 * n));
    return sorted[std::max<std::size_t>(nth, 1) - 1];
  };
  for (const double time : sorted) stats.mean += time / n;
  double variance = 0;
  for (const double time : sorted) variance += (time - stats.mean) * (time - stats.mean) / n;
  stats.minimum = sorted.front();
  stats.maximum = sorted.back();
  stats.p50 = percentile(50);
  stats.p95 = percentile(95);
  stats.p99 = percentile(99);
  stats.deviation = std::sqrt(variance);
  stats.variation_percent = stats.mean > 0 ? stats.deviation / stats.mean * 100 : 0;
  return stats;
}

std::string format_number(double value, int width) {
  std::string text;
  for (const int decimals : {2, 1, 0}) {
    text = fmt::format("{:.{}f}", value, decimals);
    if (text.size() <= static_cast<std::size_t>(width)) return fmt::format("{:>{}}", text, width);
  }
  return fmt::format("{:>{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string format_header(std::string_view program, const PerfOptions& options,
                          const std::vector<RankInfo>& ranks, std::string_view nccl_version,
                          std::string_view transport) {
  const bool factor = options.step_factor > 1;
  std::string text =
      fmt::format("# tutti-tests version {0} tutti-library={0}\n", TUTTI_PERF_VERSION);
  text += fmt::format("# Collective test starting: {}\n", program);
  text += fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: {} validation: {} graph: {} unalign: {}\n",
      options.threads, options.ranks_per_thread(), options.min_bytes, options.max_bytes,
      factor ? options.step_factor : options.step_bytes, factor ? "factor" : "bytes",
      options.warmup, options.iterations, options.aggregate, options.checks, options.graph_launches,
      options.unalign);
  if (!options.nccl.empty()) {
    text += fmt::format("# NCCL {} beside it: {} (ratio: its time / Tutti's)\n", nccl_version,
                        options.nccl);
  }
  if (!transport.empty()) text += fmt::format("# transport: {}\n", transport);
  text += "#\n# Using devices\n";
  for (const RankInfo& rank : ranks) {
    text +=
        fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [{}] {}\n", rank.rank,
                    0, rank.pid, rank.host, rank.device, rank.device_id, rank.memory);
  }
  return text + "#\n" + format_columns(options);
}

std::string format_row(const Row& row, const PerfOptions& options) {
  std::string text = fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count,
                                 label(row.type), label(row.op), row.root);
  text += format_measurement(&row.out_of_place, options);
  const Measurement* const in_place = row.in_place ? &*row.in_place : nullptr;
  text += format_measurement(in_place, options);
  if (!options.nccl.empty()) {
    text += format_nccl(&row.out_of_place, options) + format_nccl(in_place, options);
  }
  if (options.timestamps) text += fmt::format("{:>21}", row.timestamp);
  return text + "\n";
}

std::string format_footer(std::string_view program, const Total& total) {
  return fmt::format("# {:<20} : {} {}\n", "Out of bounds values", total.wrong,
                     total.wrong == 0 ? "OK" : "FAILED") +
         fmt::format("# {:<20} : {:g}\n", "Avg bus bandwidth", total.average_bus_gbps) +
         fmt::format("#\n# Collective test concluded: {}\n#\n", program);
}

}  // namespace tutti::perf
