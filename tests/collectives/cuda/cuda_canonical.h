// Collectives in the canonical order (docs/determinism.md) by the CUDA executor, on any Device that
// has the host's memory: the bits of core/combine(), whose inputs are numbers whose order can be
// told. (The data of cuda_matrix.h has one result in every order.)
#pragma once

#include <cstddef>
#include <string>

#include "tests/collectives/cuda/cuda_matrix.h"

namespace tutti::test {

/// Elements that are wrong after one launch of `c`, a reduction of floats, with
/// DeviceCase::canonical set; throws a failure of the executor. `in_turn`, if not null: how many
/// elements the sum of one source after the other would have had wrong.
std::size_t run_canonical(DeviceRanks& all, const DeviceCase& c, std::size_t* in_turn = nullptr);

}  // namespace tutti::test
