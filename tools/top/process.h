// What /proc says of a process: what it runs, what it is doing, and which rank of which job a
// launcher has made it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::top {

/// The value of `name` in what the kernel has of an environment; none: it is not set.
std::optional<std::string_view> value_in(std::string_view environment, std::string_view name);

/// "python train.py --layers 8": what was started, cut to `most` bytes.
std::string command_of(int pid, std::size_t most = 60);

struct Doing {
  char state = '?';  // of the main thread
  int parent = 0;
  double cpu_seconds = 0;     // that all threads have used so far
  std::uint64_t started = 0;  // ticks after the system's start
  std::string sleeps_in;
};
/// None: there is no such process any more.
std::optional<Doing> doing_of(int pid);

/// The process's number in its own container.
int own_number_of(int pid);

struct Launched {
  int rank = 0, size = 0;
  std::uint64_t job = 0;
};
/// None: no launcher has started it, or its environment cannot be read.
std::optional<Launched> launched_as(int pid);

/// Whether `pid` is `ancestor`, or comes from it.
bool descends_from(int pid, int ancestor);

/// Whether a file with `name` in its name is mapped into it.
bool has_mapped(int pid, const char* name);

}  // namespace tutti::top
