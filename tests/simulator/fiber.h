// The threads of the simulated processes. A fiber has a stack, and the thread-local memory of a
// real thread that is parked for it: so thread_local variables, errno and exceptions work as ever.
// One kernel thread runs them all, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::simulator {

/// What a fiber needs to run: a stack, and a thread's control block. Made once; a history that is
/// a forked process finds all of them unused.
struct Seat {
  std::uint64_t thread = 0;  // the control block, which is what pthread_self() returns
  std::byte* stack_end = nullptr;
};

/// Makes the seats; parks a real thread for each. At most once.
void make_seats();
inline constexpr std::size_t kSeats = 96;
const Seat& seat(std::size_t number);

/// A place to come back to.
struct Context {
  void* stack = nullptr;
  std::uint64_t thread = 0;
};

/// `entry` runs on the seat when it is first switched to. It never returns.
Context begin_at(const Seat& seat, void (*entry)());
/// Leaves what runs now at `from`, and goes on at `to`.
void switch_to(Context& from, const Context& to);

}  // namespace tutti::simulator
