// Buckets averaged by compressed all-reduces, with error feedback (parallel/eight_bits.h) or
// without. The engine's buckets begin at multiples of 64 bytes, as the blocks of compressed
// messages do.
#include "parallel/data_parallel/eight_bits.h"

#include <cstring>

#include "core/compressed.h"
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
    if (policy_.error_feedback) {
      feed_back(call.type, data(b), left_out_.data() + bucket(b).offset, bucket(b).count);
    }
    return call;
  }

  void discard() override {
    if (left_out_.size() > 0) std::memset(left_out_.data(), 0, left_out_.size());
  }

 private:
  const EightBits policy_;
  MemoryPool& memory_;
  Buffer left_out_;  // as the gradients lie
};

}  // namespace

std::unique_ptr<Reduction> make_eight_bits(const EightBits& policy, MemoryPool& memory) {
  return std::make_unique<EightBitsReduction>(policy, memory);
}

}  // namespace tutti::parallel
