// Gradients that travel in 8 bits for an element (Call::compressed, docs/low-precision.md): the
// choice of the engines that average them so, and what their compression leaves out.
//
// Whatever compressing leaves out of a gradient, a rank keeps in one number for each of its own
// gradients: what it still has to send. It comes from two places. The rank has compressed its own
// gradients (feed_back()). And of the sums of all ranks it has compressed some: what they lack is
// missing in every rank's result, so this rank alone sends it later (Call::left_out).
#pragma once

#include <tutti/core/types.h>

#include <cstddef>

namespace tutti::parallel {

struct EightBits {
  /// What a rank's compression leaves out is added to its gradients of the next step. Takes 4 bytes
  /// for each gradient.
  bool error_feedback = true;
};

/// Error feedback for `count` gradients that one call compresses from here on. Adds to them
/// `left_out`, which becomes what is left out now. The gradients become what is sent. What is not
/// finite leaves out nothing.
///
/// What is left out is float32 whatever the gradients are: in a narrower type a small gradient
/// would be lost in the sum of its predecessors.
void feed_back(DataType type, std::byte* gradients, float* left_out, std::size_t count);

/// feed_back() for values that are compressed on the way, after gradients: adds nothing to them,
/// and adds what is left out now, `times` so much, to `left_out`.
void leave_out(DataType type, std::byte* values, float* left_out, float times, std::size_t count);

}  // namespace tutti::parallel
