// Each collective for the *_perf programs: its name, the counts for a size in bytes, the bus
// bandwidth factor, the contents of the buffers before and after a call, and the call.
//
// Sizes, counts and factors are those of nccl-tests, so that numbers can be compared.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "bench/perf/image.h"
#include "collectives/collective.h"
#include "comm/communicator.h"
#include "core/types.h"

namespace tutti::perf {

/// "all_reduce_perf", ...; empty for a collective without such a program.
std::string_view program_name(Collective collective);

/// The size of one call, in elements.
struct Shape {
  std::size_t count = 0;  // the call's count: per rank's block where there are blocks
  std::size_t in = 0;     // a whole input buffer, on a rank that has one
  std::size_t out = 0;    // a whole output buffer
  std::size_t largest() const { return in > out ? in : out; }
};

/// `bytes` is the larger buffer of a rank. If it is divided among the ranks, every block is rounded
/// down to a multiple of 16 bytes.
Shape shape_of(Collective collective, std::size_t bytes, DataType type, int ranks);

/// bus bandwidth = factor * bytes / time: the rate on the busiest link.
double bus_factor(Collective collective, int ranks);

/// all_to_all_v: elements from `from` to `to`. They grow with the distance (to - from) modulo
/// ranks, from 0 for the own rank to almost twice `count`, and sum up to at most ranks * count.
std::size_t all_to_all_v_count(int from, int to, std::size_t count, DataType type, int ranks);

/// The common part of all calls of one table row.
struct CallSetup {
  Collective collective = Collective::all_reduce;
  Shape shape;
  DataType type = DataType::float32;
  int ranks = 1;
  int rank = 0;
  int root = 0;  // rooted collectives
  bool in_place = false;
  bool compressed = false;
};

/// In place both buffers are one, and input and output start at these elements of it.
std::size_t in_place_input(const CallSetup& setup);
std::size_t in_place_output(const CallSetup& setup);

/// The expected contents of this rank's two buffers. In place only the second one is used. Elements
/// are counted from the buffer's start; images include `guard` elements on both sides of it.
struct Expectation {
  Image send;            // before and after
  Image receive_before;  //
  Image receive_after;
};
Expectation expectation(const CallSetup& setup, std::size_t guard);

/// A rank's call, for repetition: everything except the addresses is bound, and no later call
/// allocates.
class BoundCall {
 public:
  BoundCall(const CallSetup& setup, ReduceOp op);
  BoundCall(BoundCall&&) = default;  // not copied: the calls point to the counts
  /// On buffers that start at `send` and `receive` (in place: `send` is not used). send_recv is two
  /// calls, which have to be in one group. Valid until the next on().
  std::span<const Call> on(std::byte* send, std::byte* receive);

 private:
  bool in_place_;
  std::size_t in_offset_ = 0, out_offset_ = 0;  // bytes
  std::vector<std::size_t> in_counts_, out_counts_;
  std::vector<Call> calls_;
};

}  // namespace tutti::perf
