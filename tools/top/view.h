// What `tutti top` has seen on one host: the processes that hold ranks, each rank's part in each of
// its communicators, and the ranks that have not met the others yet. All times are durations, so
// views of several hosts can lie beside each other. A view travels as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::top {

/// A call of a rank that waits for another rank.
struct Wait {
  int peer = -1;
  double seconds = 0;
  std::string call;      // "all_reduce #42 (float32 x 8, sum)"
  bool fresh = false;    // the rank has looked since; else its process stands still
  bool started = false;  // the call; no caller may wait for it
};

/// A rank's part in one communicator.
struct Member {
  std::uint64_t communicator = 0;  // the same on all of its ranks
  std::uint64_t identity = 0;      // the rank, in whatever communicator
  int rank = 0, size = 0;
  int here = 0;       // so many of the ranks are on this host
  int job_rank = -1;  // among those that met at the start; -1: it came later
  int pid = 0;
  double age = 0;            // seconds
  std::uint64_t calls = 0;   // collectives so far
  std::uint64_t number = 0;  // of the newest one on memory of the host
  std::string newest;        // in words; "": none
  double calls_a_second = 0, bytes_a_second = 0;
  double waited = 0;         // by callers so far, seconds
  double waiting_share = 0;  // of the newest interval
  int futures = 0;           // so many callers wait for started calls
  std::vector<Wait> waits;
  std::string refused, error, failure;  // "": none
  double error_age = 0;
  bool left = false;
};

struct Process {
  int pid = 0;
  std::string host;
  std::string command;
  char state = '?';       // as in /proc/PID/stat, of the main thread
  std::string sleeps_in;  // the kernel's function; "": unknown, or it does not sleep
  double cores = 0;       // that it used in the newest interval
  int ranks = 0;          // that are threads of it
};

/// A process that a launcher has started as a rank, or that meets others, and has no communicator.
struct Start {
  int pid = 0;
  int rank = 0, size = 0;
  std::uint64_t job = 0;    // the same for those that a launcher started together; 0: unknown
  std::uint64_t place = 0;  // where it meets the others; 0: it does not yet
  double seconds = 0;       // since it does
};

struct View {
  std::string host;
  std::vector<Process> processes;
  std::vector<Member> members;
  std::vector<Start> starts;
  std::vector<std::string> notes;  // what could not be seen, and why

  const Process* process(int pid) const;
};

nlohmann::json to_json(const View& view);
/// Throws Error(system) unless `text` is a view, as to_json() makes it.
View view_from_json(std::string_view text);

}  // namespace tutti::top
