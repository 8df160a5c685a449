// Error feedback (Seide and others: 1-Bit Stochastic Gradient Descent, 2014; Karimireddy and
// others: Error Feedback Fixes SignSGD, 2019): a rank adds what compression has left out to its
// gradients of the next step. So in all its steps together a rank has sent everything that it had
// to send, but for one step's error. That sums are compressed as well, and that this needs a
// feedback too, is from Tang and others: DoubleSqueeze, 2019.
//
// core/compressed.h says what compressing changes. Its blocks begin where the call's data (of a
// reduce_scatter: the data for a rank) begin, so this rank knows what the others get.
#include "parallel/eight_bits.h"

#include <algorithm>
#include <cmath>

#include "core/compressed.h"
#include "core/convert.h"

namespace tutti::parallel {
namespace {

constexpr std::size_t kPiece = 1024;  // elements: whole blocks

/// compress(values of a piece, their left_out, n): for all pieces.
void for_pieces(DataType type, std::byte* values, float* left_out, std::size_t count,
                const auto& compress) {
  for (std::size_t at = 0; at < count; at += kPiece) {
    compress(values + at * size_of(type), left_out + at, std::min(kPiece, count - at));
  }
}

/// The values become what is sent of them, also in float32: to compress that again changes nothing,
/// and an axis of one rank, which compresses nothing, has the same.
void send(DataType type, std::byte* values, float* sent, std::size_t count) {
  std::byte packed[2 * kPiece];
  compress(type, values, packed, count);
  decompress(type, packed, values, count);
  convert(values, type, sent, DataType::float32, count);
}

/// What was lost with numbers that are not finite must not come again.
float finite(float x) { return std::isfinite(x) ? x : 0; }

/// The largest that a gradient may become by what is added to it: one that is finite stays so.
float largest(DataType type) {
  if (type == DataType::float16) return 65504;
  return type == DataType::bfloat16 ? 0x1.fep127F : 0x1.fffffep127F;
}

}  // namespace

void feed_back(DataType type, std::byte* gradients, float* left_out, std::size_t count) {
  const float most = largest(type);
  for_pieces(type, gradients, left_out, count, [&](std::byte* values, float* rest, std::size_t n) {
    float sum[kPiece], sent[kPiece];
    convert(values, type, sum, DataType::float32, n);
    for (std::size_t i = 0; i < n; ++i) {
      const bool was_finite = std::isfinite(sum[i]);
      sum[i] += rest[i];
      sent[i] = was_finite ? std::clamp(sum[i], -most, most) : sum[i];
    }
    convert(sent, DataType::float32, values, type, n);
    send(type, values, sent, n);
    for (std::size_t i = 0; i < n; ++i) rest[i] = finite(sum[i] - sent[i]);
  });
}

void leave_out(DataType type, std::byte* values, float* left_out, float times, std::size_t count) {
  for_pieces(type, values, left_out, count, [&](std::byte* whole, float* rest, std::size_t n) {
    float exact[kPiece], sent[kPiece];
    convert(whole, type, exact, DataType::float32, n);
    send(type, whole, sent, n);
    for (std::size_t i = 0; i < n; ++i) rest[i] += finite(times * (exact[i] - sent[i]));
  });
}

}  // namespace tutti::parallel
