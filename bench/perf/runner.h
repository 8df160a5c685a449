// Measures and checks one collective, as one rank of a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "bench/perf/buffer.h"
#include "bench/perf/report.h"

namespace tutti::perf {

class Runner {
 public:
  Runner(Communicator& communicator, Collective collective, const PerfOptions& options,
         std::vector<std::string> arguments);

  /// Runs all sizes, types, operators and roots; rank 0 prints. Returns the number of wrong
  /// elements on all ranks.
  std::uint64_t run();

 private:
  struct Timing {
    double seconds = 0, cpu_seconds = 0;  // per call
    std::vector<double> iterations;       // microseconds per call
  };

  void run_sizes(DataType type, std::optional<ReduceKind> op, int root);
  Row measure_row(std::size_t bytes, DataType type, std::optional<ReduceKind> op, int root);
  Measurement measure(const CallSetup& setup, std::optional<ReduceKind> op);
  Timing time_calls(const CallSetup& setup, const BoundCall& call);
  std::uint64_t check(const CallSetup& setup, const BoundCall& call, std::optional<ReduceKind> op);
  std::byte* start_of(const Buffer& buffer, DataType type) const;
  double over_ranks(double mine) const;
  std::vector<RankInfo> everyone() const;
  MemoryReport memory() const;

  Communicator& communicator_;
  Collective collective_;
  PerfOptions options_;
  std::unique_ptr<Report> report_;  // on rank 0
  MemoryUse at_start_;
  Buffer send_, receive_;
  MemoryUse with_buffers_;
  std::uint64_t seed_ = 0;  // a fresh one for every check, the same on all ranks
  std::uint64_t wrong_ = 0;
  double bus_gbps_ = 0;  // sum over measurements
  std::uint64_t measurements_ = 0;
};

}  // namespace tutti::perf
