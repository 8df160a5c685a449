// Error feedback (Seide and others: 1-Bit Stochastic Gradient Descent, 2014; Karimireddy and
// others: Error Feedback Fixes SignSGD, 2019): a rank adds what the compression of its gradients
// has left out to its gradients of the next step. So in all its steps together a rank has sent
// everything that it had to send, but for one step's error. The error of compressing the sum of all
// ranks is not fed back.
//
// core/compressed.h says what compressing changes. Its blocks begin where the call's data (of a
// reduce_scatter: the data for a rank) begin, so this rank knows what the others get.
#include "parallel/eight_bits.h"

#include <algorithm>
#include <cmath>

#include "core/compressed.h"
#include "core/convert.h"

namespace tutti::parallel {

void feed_back(DataType type, std::byte* gradients, std::byte* left_out, std::size_t count) {
  constexpr std::size_t kPiece = 1024;  // elements: whole blocks
  const std::size_t size = size_of(type);
  float sum[kPiece], other[kPiece];
  std::byte packed[2 * kPiece];
  for (std::size_t at = 0; at < count; at += kPiece) {
    const std::size_t n = std::min(kPiece, count - at);
    std::byte* const gradient = gradients + at * size;
    std::byte* const rest = left_out + at * size;
    convert(gradient, type, sum, DataType::float32, n);
    convert(rest, type, other, DataType::float32, n);
    for (std::size_t i = 0; i < n; ++i) sum[i] += other[i];
    convert(sum, DataType::float32, gradient, type, n);
    compress(type, gradient, packed, n);
    // The gradient becomes the value that is sent: to compress that again changes nothing, and an
    // axis of one rank, which compresses nothing, has the same.
    decompress(type, packed, gradient, n);
    convert(gradient, type, other, DataType::float32, n);
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] -= other[i];
      if (!std::isfinite(sum[i])) sum[i] = 0;  // what was lost with it must not come again
    }
    convert(sum, DataType::float32, rest, type, n);
  }
}

}  // namespace tutti::parallel
