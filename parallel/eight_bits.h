// Gradients that travel in 8 bits for an element (Call::compressed, docs/low-precision.md): the
// choice of the engines that average them so, and what their compression leaves out.
#pragma once

#include <cstddef>

#include "../core/types.h"

namespace tutti::parallel {

struct EightBits {
  /// What a rank's compression leaves out is added to its gradients of the next step. Takes as much
  /// memory as all gradients.
  bool error_feedback = true;
};

/// Error feedback for `count` gradients that one call compresses from here on. Adds to them what
/// earlier calls have left out, and notes in `left_out`, of the same type, what this one will leave
/// out. The gradients become what is sent. What is not finite leaves out nothing.
void feed_back(DataType type, std::byte* gradients, std::byte* left_out, std::size_t count);

}  // namespace tutti::parallel
