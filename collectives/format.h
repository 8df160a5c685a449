// How the links and tmp of a plan carry elements (plan.h says what that means for steps). Apart
// from plan.h, because kernels include it.
#pragma once

#include <cstdint>

namespace tutti {

enum class Format : std::uint8_t {
  plain,       // as the user's buffers have them
  compressed,  // in 8 bits; all_reduce and reduce_scatter only
  wide,        // partial sums of 16- and 8-bit floats as float32; reductions only
};

}  // namespace tutti
