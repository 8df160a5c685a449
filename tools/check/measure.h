// The measurement of `tutti check`: a program of nccl-tests' kind, run on all ranks, its output,
// and what went on on this host meanwhile.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::check {

struct MeasureOptions {
  std::string program;              // all_reduce_perf, or another of that kind
  std::vector<std::string> words;   // its options
  std::vector<std::string> launch;  // of `tutti run`; empty: the program runs by itself
  int seconds = 60;                 // that it may take
};

/// What else had this host's processors. Shares are of all of them together, 0 to 1.
struct HostLoad {
  double others = 0;     // processes that are none of the ranks
  double stolen = 0;     // by the hypervisor
  double throttled = 0;  // seconds in which a control group stopped processes
};

struct Measurement {
  std::string output;
  int status = 0;  // exit status; 128 + the signal that ended it
  bool late = false;
  HostLoad load;
};

/// Runs it to its end, or for options.seconds; then its processes are ended. Throws Error where it
/// cannot be started.
Measurement measure(const MeasureOptions& options);

}  // namespace tutti::check
