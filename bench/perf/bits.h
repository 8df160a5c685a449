// --bits: the bits of a reduction as one number, which two machines can compare.
//
// The inputs are the same on every machine: irregular numbers that depend on the rank and the
// position, and repeat after kPeriod elements. So the results have to repeat as well, and those of
// all sizes have to be the same; their hash is the number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "bench/perf/rank_memory.h"
#include "comm/communicator.h"

namespace tutti::perf {

class Bits {
 public:
  /// Of the calls of one type, operator and root; `memory` is this rank's.
  Bits(Communicator& communicator, const RankMemory& memory, Collective collective, DataType type,
       ReduceKind kind, int root);

  /// Makes the call for this size, out of place and in place. Collective.
  void add(std::size_t bytes);

  struct Result {
    std::string text;    // a line without its end
    bool agree = false;  // all elements of all sizes do
  };
  /// What all ranks have seen. Collective; the text is rank 0's.
  Result finish();

 private:
  static constexpr std::size_t kPeriod = 256;

  std::uint64_t input(std::size_t position) const;
  void look(const std::byte* found, std::size_t first, std::size_t count);

  Communicator& communicator_;
  const RankMemory& memory_;
  CallSetup setup_;
  ReduceOp op_;
  std::vector<std::uint64_t> seen_, bits_;  // by element of the period: 1 if it was seen
  std::uint64_t differ_ = 0;
};

}  // namespace tutti::perf
