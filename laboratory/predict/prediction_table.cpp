// See prediction_table.h.
#include "laboratory/predict/prediction_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "bench/perf/benchmark.h"
#include "collectives/cluster/parts.h"
#include "laboratory/predict/nccl_model.h"

namespace tutti {

using cluster::Cluster;

namespace {

std::string micro(double us) {
  return us < 100     ? fmt::format("{:.2f}", us)
         : us < 10000 ? fmt::format("{:.1f}", us)
                      : fmt::format("{:.0f}", us);
}

/// To two digits.
double rounded(double us) {
  const double unit = std::pow(10, std::floor(std::log10(us)) - 1);
  return std::round(us / unit) * unit;
}

}  // namespace

std::string protocol_of(const Prediction& p) {
  if (p.algorithm == nullptr) return std::string(algorithm_of(p));
  return fmt::format("{} {}", p.algorithm->name, name(p.protocol));
}

void print_table(const std::vector<Line>& lines, const Cluster& c, Collective collective,
                 const ClusterSetup& setup, const NcclLog* log) {
  const double factor = perf::bus_factor(collective, c.ranks());
  const bool reduces = is_reduction(collective);
  fmt::print("# predicted {} with {} ranks: {}\n", name(collective), c.ranks(), setup.said);
  for (const std::string& g : setup.guessed) fmt::print("# guessed: {}\n", g);
  if (log != nullptr) {
    fmt::print("# measured: {} ({} rows{})\n", log->source, log->rows.size(),
               log->left_out > 0 ? fmt::format(", {} that are not whole", log->left_out) : "");
    if (log->of_others > 0) {
      fmt::print("# {} rows of other tests in it are left out\n", log->of_others);
    }
  }
  if (std::ranges::any_of(lines, [](const Line& l) { return !l.known; })) {
    fmt::print("# no log of such calls was at hand: the times are guesses\n");
  }
  fmt::print("#\n#{:>12}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}", "size", "count", "type", "redop",
             "root", "time", "algbw", "busbw");
  fmt::print("{}", log == nullptr ? "  by\n" : "   measured    error  by\n");
  fmt::print("#{:>12}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}{}\n", "(B)", "(elements)", "", "", "",
             "(us)", "(GB/s)", "(GB/s)", log == nullptr ? "" : "       (us)      (%)");
  for (const Line& l : lines) {
    const double us = l.known ? l.predicted.us() : rounded(l.predicted.us());
    const double algbw = l.bytes / us / 1000;
    fmt::print("{:>13.0f}{:>14.0f}{:>10}{:>8}{:>8}{:>11}{:>9.2f}{:>9.2f}", l.bytes,
               std::floor(cluster::block_of(collective, l.bytes, c.ranks()) / 4), "float",
               reduces ? "sum" : "none", is_rooted(collective) ? 0 : -1, micro(us), algbw,
               algbw * factor);
    if (l.measured) fmt::print("{:>11}{:>+9.1f}", micro(l.measured->us), l.error());
    fmt::print("  {}\n", protocol_of(l.predicted));
  }
}

namespace {

/// Nearest rank.
double percentile(std::vector<double> all, double part) {
  std::ranges::sort(all);
  const auto n = static_cast<double>(all.size());
  return all[static_cast<std::size_t>(std::max(0.0, std::ceil(part * n) - 1))];
}

}  // namespace

void print_errors(const std::vector<Line>& lines) {
  std::vector<double> errors;
  for (const Line& l : lines) {
    if (l.measured && l.bytes >= 1024) errors.push_back(std::abs(l.error()));
  }
  if (errors.empty()) return;
  fmt::print("# error of {} rows of 1 KiB and more: median {:.1f} %, 90th percentile {:.1f} %\n",
             errors.size(), percentile(errors, 0.5), percentile(errors, 0.9));
}

}  // namespace tutti
