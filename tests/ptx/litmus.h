// Small programs that tell models of memory apart, written in PTX: which results does the
// interpreter's memory give, over many seeds?
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti::ptx {

struct Litmus {
  /// One thread each. %x, %y, %z are addresses of words that are 0 at first, %w of 128 bytes; %r0
  /// to %r3 are the thread's results, 0 unless it sets them; %p0, %t0, %t1 are for anything.
  std::vector<std::string> threads;
  bool one_block = false;  // all threads in one; else each in its own
  /// What the threads of a block do after they have met (`bar.sync`, or this).
  std::vector<std::string> after = {};
  std::string meeting = "bar.sync 0;";
  bool one_gpu = true;  // else each block on a GPU of its own
  bool whole_lines = true;
};

struct Result {
  std::array<std::array<std::uint64_t, 4>, 4> r{};  // of each thread
  std::uint64_t x = 0, y = 0, z = 0;                // in memory at the end
  auto operator<=>(const Result&) const = default;
};

/// How often each came, and the faults by their first line.
struct Results {
  std::map<Result, int> seen;
  std::map<std::string, int> faults;

  template <class F>
  bool any(const F& f) const {
    for (const auto& [result, times] : seen) {
      if (f(result)) return true;
    }
    return false;
  }
  bool has_race() const {
    for (const auto& [text, times] : faults) {
      if (text.starts_with("a race")) return true;
    }
    return false;
  }
};

Results run_litmus(const Litmus& litmus, int seeds = 600);

}  // namespace tutti::ptx
