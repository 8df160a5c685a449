// What a kernel does when a wait is long, or something is wrong: all of it out of line, so that it
// takes neither registers nor instructions from what is fast.
#pragma once

#include <cstdint>

#include "collectives/execute/cuda/launch.h"
#include "collectives/execute/cuda/memory.h"

namespace tutti::device {

/// Where a thread is, and whom it waits for.
struct Spot {
  std::uint64_t operation;
  std::uint32_t messages, lane, copy, tile, step;
  std::uint32_t peer, sending;
  std::uint32_t own;  // 1: it waits for its own rank's blocks
};

TUTTI_COLD void write_report(Report& r, const Spot& s, Trouble trouble, std::uint64_t expected,
                             std::uint64_t found) {
  store_relaxed(&r.messages, s.messages);
  store_relaxed(&r.operation, s.operation);
  store_relaxed(&r.lane, s.lane);
  store_relaxed(&r.copy, s.copy);
  store_relaxed(&r.tile, s.tile);
  store_relaxed(&r.step, s.step);
  store_relaxed(&r.peer, s.peer);
  store_relaxed(&r.sending, s.sending);
  store_relaxed(&r.expected, expected);
  store_relaxed(&r.found, found);
  // release: the host reads the rest after this.
  store_release(&r.trouble, static_cast<std::uint64_t>(trouble));
}

/// The first failure of a rank is the one that counts.
TUTTI_COLD void report_failure(Control* control, State* state, Spot s, Trouble trouble,
                               std::uint64_t expected, std::uint64_t found) {
  if (claim(&state->failed, 1)) write_report(control->report, s, trouble, expected, found);
}

struct Verdict {
  bool go_on, told;
};

/// On a wait of `waited` ns. `told`: the host has been told that it is long.
TUTTI_COLD Verdict judge(Control* control, State* state, Spot s, std::uint64_t waited, bool told) {
  if (load_relaxed(&control->abort) != 0) return {false, told};
  const std::uint64_t timeout = load_relaxed(&control->timeout_ns);
  const std::uint64_t late = load_relaxed(&control->late_ns);
  if (late != 0 && waited > late && !told) {
    told = true;
    if (claim(&state->telling, 1)) {
      Report& r = control->late;
      // Unless the host has not read another one yet.
      if (load_acquire(&r.trouble) == static_cast<std::uint64_t>(Trouble::none)) {
        write_report(r, s, Trouble::late, 0, 0);
      }
      // release: who claims it next sees the report.
      store_release(&state->telling, 0);
    }
  }
  if (timeout == 0 || waited <= timeout) return {true, told};
  report_failure(control, state, s, Trouble::timed_out, 0, 0);
  return {false, told};
}

}  // namespace tutti::device
