// What kernels report (launch.h), in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "execute/cuda/launch.h"

namespace tutti::device {

/// The first failure of a kernel of rank `rank`: a sentence, as an Error to throw.
std::optional<Error> failure_in(const Control& control, int rank);

/// A wait that is long: a sentence, and the rank that the kernel waits for.
struct LateRank {
  int rank = -1;
  std::string text;
  std::uint64_t operation = ~std::uint64_t{0};
};
/// The wait that a kernel of rank `rank` has told since the last call, if it is not `told`, which
/// becomes it. By one thread at a time.
std::optional<LateRank> late_in(Control& control, int rank, LateRank& told);

}  // namespace tutti::device
