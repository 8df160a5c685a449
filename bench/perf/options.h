// The command line of the *_perf programs: the options of nccl-tests, with their names, defaults
// and meaning; docs/benchmarks.md lists what differs. Strict: mistakes that nccl-tests ignores or
// repairs with a warning are errors here, because a benchmark that measures something else than
// asked is worse than none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/types.h"

namespace tutti::perf {

enum class Average : std::uint8_t { rank0 = 0, mean = 1, minimum = 2, maximum = 3 };

/// -z: waits and barriers between the calls. (Calls on host memory return when they are complete,
/// so there no_barrier, which waits for that, is the same as off.)
enum class Blocking : std::uint8_t {
  off = 0,
  barrier_after_call = 1,
  no_barrier = 2,
  barrier_after_iteration = 3,  // the barrier's time does not count
};

struct PerfOptions {
  int threads = 1;
  int gpus = 0;  // ranks of a thread, on GPU memory; 0: one, on host memory
  std::size_t min_bytes = 32 << 20;
  std::size_t max_bytes = 32 << 20;
  std::size_t step_bytes = 1 << 20;
  std::size_t step_factor = 0;  // 0: add step_bytes instead
  int iterations = 20;
  int warmup = 1;
  int aggregate = 1;
  int cycles = 1;  // 0: for ever
  bool parallel_init = false;
  int checks = 1;
  std::optional<ReduceKind> op = ReduceKind::sum;    // empty: all
  std::optional<DataType> type = DataType::float32;  // empty: all
  int root = 0;                                      // -1: all
  Blocking blocking = Blocking::off;
  int timeout_seconds = 0;  // 0: the library's default
  bool cpu_time = false;
  bool timestamps = false;
  std::string output_file;
  Average average = Average::mean;
  // Host: 0 malloc; 1, 2 window memory. GPU: the registration of the buffers with the library of
  // --nccl: 0 none; 1 ncclCommRegister; 2 ncclMemAlloc and ncclCommWindowRegister.
  int local_register = 2;
  bool memory_report = false;
  int unalign = 0;  // elements
  bool per_iteration = false;
  int skip_iterations = 0;  // of the per-iteration summary
  int graph_launches = 0;   // 0: the calls are not recorded into a graph
  bool started = false;     // each call is start() and wait()
  bool invariant = false;   // as Options::invariant
  bool compressed = false;  // as Call::compressed
  bool bits = false;        // of results, for machines to compare
  std::string nccl;         // a libnccl.so.2 to measure as well; "": none

  int ranks_per_thread() const { return gpus > 0 ? gpus : 1; }
};

/// The parsed command line: run, or print `text` and exit with `exit_code`.
struct ParsedOptions {
  PerfOptions options;
  bool run = true;
  std::string text;
  int exit_code = 0;
};

/// Never throws and never prints. `arguments` without the program's name.
ParsedOptions parse_options(std::string_view program, std::span<const std::string> arguments);

/// The sizes of a run, in order: min, min + step or min * factor, ..., up to max.
std::optional<std::size_t> next_size(const PerfOptions& options, std::size_t size);

}  // namespace tutti::perf
