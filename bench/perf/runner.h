// Measures and checks one collective, as one thread with its ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/nccl/functions.h"
#include "bench/perf/benchmark.h"
#include "bench/perf/buffer.h"
#include "bench/perf/nccl_library.h"
#include "bench/perf/rank_memory.h"
#include "bench/perf/report.h"
#include "bench/perf/timing.h"

namespace tutti::perf {

/// The ranks of one thread: one on host memory, one or more on GPUs.
struct ThreadRanks {
  std::vector<Communicator> communicators;  // of consecutive ranks
  std::vector<int> devices;                 // each rank's GPU; empty: host memory
  Communicator threads;  // on GPUs: a rank for each thread of the job, which never waits for a GPU

  /// The threads of the job talk through it about their measurements.
  Communicator& control() { return threads ? threads : communicators.front(); }
};

class Runner {
 public:
  /// `nccl`: the library that is measured beside Tutti, or null.
  Runner(ThreadRanks& ranks, Collective collective, const PerfOptions& options,
         const bench::NcclFunctions* nccl, std::vector<std::string> arguments);
  ~Runner();

  /// Runs all sizes, types, operators and roots; the job's rank 0 prints. Returns the number of
  /// wrong elements on all ranks.
  std::uint64_t run();

 private:
  void show_bits(DataType type, ReduceKind kind, int root);
  void run_sizes(DataType type, std::optional<ReduceKind> op, int root);
  Row measure_row(std::size_t bytes, DataType type, std::optional<ReduceKind> op, int root);
  Measurement measure(CallSetup setup, std::optional<ReduceKind> op);
  Timed summary_of(const Timing& timing, const CallSetup& setup) const;
  /// Makes calls with fresh data and compares them bit by bit; stops at the first call with a wrong
  /// result on any rank.
  std::uint64_t check(CallSetup setup, std::optional<ReduceKind> op, Library& library);
  std::vector<RankCalls> bind(CallSetup setup, const Data& data) const;
  void paint(const Data& data, CallSetup setup) const;

  void start_nccl();
  /// Drops the other library on all ranks if it has failed on one.
  void agree_on_nccl();

  double over_ranks(double mine) const;
  std::vector<RankInfo> everyone() const;
  MemoryUse memory_use() const;
  MemoryReport memory() const;

  ThreadRanks& ranks_;
  Communicator& control_;
  int size_;  // ranks of the job
  Collective collective_;
  PerfOptions options_;
  const bench::NcclFunctions* nccl_functions_;
  std::unique_ptr<Report> report_;  // on rank 0
  MemoryUse at_start_;
  std::vector<RankMemory> memory_;  // of each rank
  MemoryUse with_buffers_;
  Tutti tutti_;
  std::unique_ptr<Nccl> nccl_;  // null: not asked for, or given up
  std::uint64_t seed_ = 0;      // a fresh one for every check, the same on all ranks
  std::uint64_t wrong_ = 0;
  double bus_gbps_ = 0;  // sum over measurements
  std::uint64_t measurements_ = 0;
};

}  // namespace tutti::perf
