// Reductions whose bits are to be invariant, against a reference that knows nothing of plans: the
// canonical expression of docs/determinism.md, element by element. So two communicators that pass
// have the same bits, whatever their ranks, memory and hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tutti::test {

struct InvariantCases {
  std::vector<DataType> types = {DataType::float16, DataType::bfloat16,    DataType::float32,
                                 DataType::float64, DataType::float8_e4m3, DataType::float8_e5m2};
  std::vector<ReduceKind> kinds = {ReduceKind::sum, ReduceKind::avg,
                                   ReduceKind::pre_multiplied_sum};
  std::vector<std::size_t> counts;  // elements of the whole vector
  bool window = false;              // buffers from tutti::allocate; else from malloc
  std::function<void(Communicator&, const Call&)> run;  // instead of Communicator::run(call)
};

struct InvariantTally {
  std::uint64_t cases = 0;
  std::uint64_t wrong = 0;
  std::string first;  // what went wrong first
};

/// Makes the calls of all cases, in several ways: blocking and started, in place and not, at odd
/// addresses, as one call and as three. Collective.
InvariantTally run_invariant_cases(Communicator& c, const InvariantCases& cases);

}  // namespace tutti::test
