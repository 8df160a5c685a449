// Error feedback (Seide and others: 1-Bit Stochastic Gradient Descent, 2014; Karimireddy and
// others: Error Feedback Fixes SignSGD, 2019): a rank adds what the compression of its gradients
// has left out to its gradients of the next step. So in all its steps together a rank has sent
// everything that it had to send, but for one step's error. The error of compressing the sum of all
// ranks is not fed back.
//
// core/compressed.h says what compressing changes. Its blocks begin at multiples of 64 bytes of a
// bucket, as those of the call do, so this rank knows what the others get.
#include "parallel/data_parallel/eight_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/compressed.h"
#include "core/convert.h"
#include "parallel/axis.h"

namespace tutti::parallel {
namespace {

class EightBitsReduction final : public Reduction {
 public:
  EightBitsReduction(const EightBits& policy, MemoryPool& memory)
      : policy_(policy), memory_(memory) {}

  /// The engine lays buckets out anew once, after the first step; what that has left out is lost.
  void bind(const BucketLayout& layout, std::byte* gradients) override {
    Reduction::bind(layout, gradients);
    if (!policy_.error_feedback) return;
    left_out_.reset();  // before the next one is there
    left_out_ = memory_.zeros(layout.bytes);
  }

  Call prepare(std::size_t b, int round) override {
    Call call = Reduction::prepare(b, round);
    if (!is_compressible(call.type)) return call;
    call.compressed = true;
    if (policy_.error_feedback) feed_back(b);
    return call;
  }

  void discard() override {
    if (left_out_.size() > 0) std::memset(left_out_.data(), 0, left_out_.size());
  }

 private:
  static constexpr std::size_t kPiece = 1024;  // elements: whole blocks

  /// Adds to the bucket what earlier steps have left out, and notes what this one will leave out.
  void feed_back(std::size_t b) {
    const DataType type = bucket(b).type;
    const std::size_t size = size_of(type);
    float sum[kPiece], other[kPiece];
    std::byte packed[2 * kPiece];
    for (std::size_t at = 0; at < bucket(b).count; at += kPiece) {
      const std::size_t n = std::min(kPiece, bucket(b).count - at);
      std::byte* const gradient = data(b) + at * size;
      std::byte* const left_out = left_out_.data() + bucket(b).offset + at * size;
      convert(gradient, type, sum, DataType::float32, n);
      convert(left_out, type, other, DataType::float32, n);
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
      convert(sum, DataType::float32, left_out, type, n);
    }
  }

  const EightBits policy_;
  MemoryPool& memory_;
  Buffer left_out_;  // as the gradients lie
};

}  // namespace

std::unique_ptr<Reduction> make_eight_bits(const EightBits& policy, MemoryPool& memory) {
  return std::make_unique<EightBitsReduction>(policy, memory);
}

}  // namespace tutti::parallel
