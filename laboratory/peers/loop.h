// The loop that measures a library, the same for Tutti, its peers and the machine's limit. A
// program is for one library: it says how to call the library (Bind), and the loop does everything
// else.
//
// A turn (turns.h) measures one size for some tens of milliseconds. Again and again: fill the input
// with data that depends on the rank, the position and the iteration, meet at a barrier, time the
// call on every rank; an iteration counts as long as its slowest rank took, and the turn as the
// median of its iterations. One call is too short for a clock up to 16 KiB: there an iteration is a
// block of calls back to back that lasts about 20 us, and before every call each rank writes the
// first cache lines of the input again, as a computing program would have done. With --cold there
// is no warm-up: the turn is the first calls of a process. The loop checks the result of every
// turn's last iteration, so no library is fast by doing nothing, or the wrong thing.
// docs/comparing.md is the user's version of this.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "collectives/collective.h"
#include "core/types.h"

namespace tutti::peers {

/// The arguments that `tutti compare` gives each program.
struct Arguments {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  bool window = false;  // where Tutti's buffers are; the others' are always malloc's
  int ranks = 0;
  int cores = 0;                   // for all ranks together
  int slice = 0;                   // about how many milliseconds a turn lasts
  int cold = 0;                    // a turn is so many calls, the first ones; 0: it warms up
  int pause = 0;                   // milliseconds before each call; 0: blocks of calls
  std::string folder;              // of this program alone: its ranks meet there
  std::vector<int> cpus;           // rank r is pinned to cpus[r % size]; empty: not pinned
  std::vector<std::size_t> bytes;  // of the larger buffer
};
Arguments parse_arguments(int argc, char** argv);

/// Pins the calling thread. Call it after the library has started (its own threads stay free), and
/// before you make the buffers (so that their pages are near this rank). Throws unless the launcher
/// has started the requested number of ranks: under another MPI's launcher every rank is alone.
void take_place(const Arguments& arguments, int rank, int ranks);

/// The number of elements that the buffers need for all sizes.
perf::Shape largest_shape(const Arguments& arguments);

/// One collective on one size. broadcast is in place (in == out), everything else out of place;
/// send_recv is a round trip between the ranks 0 and 1; the report has half of its time.
struct Job {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  int rank = 0, ranks = 1;  // root: 0
  std::size_t count = 0;    // elements, as Tutti and MPI count
  std::byte* in = nullptr;
  std::byte* out = nullptr;

  std::size_t bytes() const { return count * size_of(type); }
};

using Call = std::function<void()>;
/// The ways to do a job: a library has one, the limit several.
using Bind = std::function<std::vector<Call>(const Job&)>;

/// Measures in these buffers whenever it is this program's turn, until the comparison is over.
void run_loop(const Arguments& arguments, int rank, std::byte* in, std::byte* out,
              const Bind& bind);

/// Runs a program's main(); turns an exception into a message and exit status 1.
int guarded(const std::function<void()>& body);

}  // namespace tutti::peers
