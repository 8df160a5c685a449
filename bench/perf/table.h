// The text that the *_perf programs print: header, rows and footer in nccl-tests' columns, so
// programs that read the output of nccl-tests read this too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/options.h"
#include "collectives/collective.h"
#include "core/types.h"

namespace tutti::perf {

/// The names that nccl-tests uses: "float", "half", "f8e4m3", "mulsum", ...; "none" for no
/// operator.
std::string_view label(DataType type);
std::string_view label(std::optional<ReduceKind> op);

/// Times of single iterations, the slowest rank's each, in microseconds.
struct IterationStats {
  double minimum = 0, maximum = 0, mean = 0;
  double p50 = 0, p95 = 0, p99 = 0;  // nearest rank
  double deviation = 0;              // of the population
  double variation_percent = 0;      // deviation / mean
  std::vector<double> times;         // all, the skipped ones too
  int skipped = 0;
};
IterationStats summarize(std::vector<double> times, int skipped);

/// The results of one library.
struct Timed {
  double seconds = 0;  // per call
  double cpu_seconds = 0;
  double algorithm_gbps = 0;  // 1e9 bytes per second
  double bus_gbps = 0;
  std::optional<std::uint64_t> wrong;  // elements; empty: not checked
  std::optional<IterationStats> iterations;
};

/// One of the two halves of a row: Tutti, and the library beside it (--nccl).
struct Measurement : Timed {
  std::optional<Timed> nccl;
  /// How many times as long the other library took; with -C, by the CPU time.
  double ratio(bool cpu_time) const {
    const double mine = cpu_time ? cpu_seconds : seconds;
    return mine > 0 ? (cpu_time ? nccl->cpu_seconds : nccl->seconds) / mine : 0;
  }
};

struct Row {
  std::size_t bytes = 0;
  std::size_t count = 0;
  DataType type = DataType::float32;
  std::optional<ReduceKind> op;
  int root = -1;
  Measurement out_of_place;
  std::optional<Measurement> in_place;  // empty: the collective has no in-place form
  std::string timestamp;
};

struct RankInfo {
  int rank = 0;
  int pid = 0;
  std::string host;
  int device = 0;
  std::string device_id = "cpu";
  std::string memory = "host memory";
};

struct Total {
  std::uint64_t wrong = 0;
  double average_bus_gbps = 0;
};

/// Everything above the first row. `nccl_version`: with --nccl. `transport`: the transport between
/// ranks; empty if it is not known.
std::string format_header(std::string_view program, const PerfOptions& options,
                          const std::vector<RankInfo>& ranks, std::string_view nccl_version = "",
                          std::string_view transport = "");
std::string format_row(const Row& row, const PerfOptions& options);
std::string format_footer(std::string_view program, const Total& total);

/// `value` with as many of two decimals as fit into `width` characters.
std::string format_number(double value, int width);

}  // namespace tutti::perf
