// The measuring loop: the calls of one row of the table, by the ranks of one thread, timed as a
// whole as nccl-tests does it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/perf/benchmark.h"
#include "bench/perf/library.h"
#include "bench/perf/options.h"

namespace tutti::perf {

/// The work of the thread's ranks in every iteration.
struct RankCalls {
  BoundCall call;
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
};

struct Timing {
  double seconds = 0, cpu_seconds = 0;  // per call
  std::vector<double> iterations;       // microseconds per call, with -I
};

/// Call i starts i * `bytes` into the buffers (modulo their size): so the caches behave as in a
/// program that does not reduce the same few bytes for ever. All threads of the job do this
/// together; `control` has a rank for each.
Timing time_calls(const PerfOptions& options, std::span<RankCalls> ranks, std::size_t bytes,
                  Library& library, Communicator& control);

/// One call of every rank, together; not timed, and not waited for.
void call_once(std::span<RankCalls> ranks, std::size_t shift, Library& library);

}  // namespace tutti::perf
