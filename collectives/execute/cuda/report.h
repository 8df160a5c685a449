// What kernels report (launch.h), in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/execute/cuda/launch.h"
#include "core/error.h"

namespace tutti::device {

/// The first failure of a kernel of rank `rank`: a sentence, as an Error to throw.
std::optional<Error> failure_in(const Control& control, int rank);

/// A wait that is long: a sentence, and for whom the kernel waits.
struct LateRank {
  int rank = -1;
  std::string text;
};

/// The long waits of a rank's kernels, each once.
class LateReports {
 public:
  /// The wait that has been told since the last call, if one was. By one thread at a time.
  std::optional<LateRank> next(Control& control, int rank);

 private:
  // Of the newest one.
  std::uint64_t operation_ = ~std::uint64_t{0};
  int rank_ = -1;
};

}  // namespace tutti::device
