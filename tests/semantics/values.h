// Reductions of the numbers at which libraries differ: NaNs, infinities, zeros of both signs, the
// largest and the smallest numbers, integers that wrap. The expectation is the table of
// docs/semantics.md, by plain arithmetic in doubles that knows nothing of plans. Each sum is exact
// in every type and order, so the bits of a result are the same by any algorithm, in any memory and
// on any hosts; only which NaN a NaN is stays open.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tutti::test {

struct ValueCases {
  std::vector<std::size_t> blocks = {1, 67};  // elements of a rank's block
  bool window = false;                        // buffers from tutti::allocate(); else from malloc
  std::function<void(Communicator&, const Call&)> run;  // instead of the ways below
};

/// Every type and operator by every collective that reduces: blocking, started and in a group; in
/// place and not; at odd addresses. What is wrong on this rank, at most a few lines; a byte written
/// outside of an output, or to an input, is wrong, too. Collective; up to 4 ranks.
std::vector<std::string> wrong_values(Communicator& c, const ValueCases& cases = {});

/// The same of all that moves data without a change: bits that are no number of their type arrive
/// as they are.
std::vector<std::string> wrong_copies(Communicator& c, const ValueCases& cases = {});

}  // namespace tutti::test
