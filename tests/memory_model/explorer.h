// Runs small programs of a few threads in all ways that the memory model allows, up to bounds, and
// then in random ones. The threads are fibers of one thread, and the compiler's calls for
// ThreadSanitizer (hooks.cpp) lead here: so the code under test is the code that ships, and nothing
// in it knows of this.
//
// An execution is a list of choices: which thread goes on before each atomic operation, which store
// a load reads, where in the order of its word a store comes, whether a weak exchange fails. The
// same choices make the same execution.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/memory_model/memory.h"

struct robust_list_head;  // linux/futex.h

namespace tutti::model {

/// One execution of a program: its threads, and what is to hold when all have ended. What they
/// share is made before, and owned by the closures.
struct Execution {
  std::vector<std::function<void()>> threads;  // kMostThreads at most
  std::function<void()> after = [] {};
};
using Program = std::function<Execution()>;

struct Bounds {
  int preemptions = 2;                // of threads that could go on, in an execution
  std::size_t executions = 4000;      // of all, those that are tried one after the other
  std::size_t random = 2000;          // with any number of preemptions, where those are not all
  std::size_t most_choices = 20'000;  // of an execution, which ends there without a result
  std::uint64_t seed = 1;
};

using Choices = std::vector<std::uint32_t>;

struct Result {
  std::size_t executions = 0;
  bool complete = false;  // all were tried, up to the bound of preemptions
  std::string failure;    // of the first execution that failed; empty: none did
  Choices choices;        // which lead to it
  std::string story;      // its last operations
};

Result explore(const Program& program, const Bounds& bounds = {});
/// The execution of these choices.
Result replay(const Program& program, const Choices& choices);

// --- For programs --------------------------------------------------------------------------------

/// The execution has failed, and ends here, unless `holds`.
void require(bool holds, const char* what);
/// Waits until `ready` holds. `ready` may look at stale values at first, and finds the newest when
/// no other thread can go on. The execution fails where nobody can go on any more.
void await(const std::function<bool()>& ready);
/// Any number below `ways`.
std::size_t choose(std::size_t ways);
/// How often a thread has slept until its time was over, since no other one could go on.
int timeouts();
/// The thread ends where it is, as where its process is killed, and this one sees all that it has
/// done. False: it has ended by itself.
bool kill(std::size_t thread);

// --- For hooks.cpp -------------------------------------------------------------------------------

/// Whether a thread of a program runs now.
bool runs();
std::size_t this_thread();
/// The number of this execution, from 1 on; no other one of this process has it.
std::size_t execution();
Memory& memory();
/// Another thread may go on here. `what` and `at` are for the story, `site` for mutants (sites.h).
void may_switch(const char* what, std::uintptr_t at);
/// Waits until wake() of `at`. `timed`: or until no other thread can go on; false in that case.
bool sleep_on(std::uintptr_t at, bool timed);
/// Wakes the threads that sleep on `at`, up to `most`, in the order in which they came.
void wake(std::uintptr_t at, std::size_t most);
/// Lets the others go on first, as a thread does that looks again and again.
void pause();
/// The list of a thread that has called set_robust_list(2) last, outside of programs.
const robust_list_head* held_list();
/// Nanoseconds, which pass as the program waits.
std::int64_t now();

}  // namespace tutti::model
