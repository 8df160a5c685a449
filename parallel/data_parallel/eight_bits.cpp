// Buckets averaged by compressed all-reduces, with error feedback (parallel/eight_bits.h) or
// without. The engine's buckets begin at multiples of 64 bytes, as the blocks of compressed
// messages do.
#include "parallel/data_parallel/eight_bits.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/compressed.h"
#include "parallel/axis.h"

namespace tutti::parallel {
namespace {

class EightBitsReduction final : public Reduction {
 public:
  EightBitsReduction(const EightBits& policy, std::span<const Parameter> parameters, int ranks,
                     MemoryPool& memory)
      : policy_(policy), parameters_(parameters), ranks_(ranks), memory_(memory) {}

  /// The engine lays buckets out anew once, after the first step. What that has left out goes with
  /// its gradients.
  void bind(const BucketLayout& layout, std::byte* gradients) override {
    Reduction::bind(layout, gradients);
    if (!policy_.error_feedback) return;
    std::vector<std::size_t> first(parameters_.size());
    std::size_t count = 0;
    for (const Bucket& b : layout.buckets) {
      for (const std::uint32_t i : b.gradients) {
        first[i] = count;
        count += parameters_[i].count();
      }
    }
    Buffer left_out = memory_.zeros(count * sizeof(float));
    for (std::size_t i = 0; i < first_.size(); ++i) {
      std::copy_n(floats(left_out_) + first_[i], parameters_[i].count(),
                  floats(left_out) + first[i]);
    }
    left_out_ = std::move(left_out);
    first_ = std::move(first);
  }

  Call prepare(std::size_t b, int round) override {
    Call call = Reduction::prepare(b, round);
    if (!is_compressible(call.type)) return call;
    call.compressed = true;
    if (policy_.error_feedback && call.count > 0) {
      call.left_out = floats(left_out_) + first_[bucket(b).gradients.front()];
      call.left_out_times = static_cast<float>(ranks_);
      feed_back(call.type, data(b), call.left_out, call.count);
    }
    return call;
  }

  void discard() override {
    std::fill_n(floats(left_out_), left_out_.size() / sizeof(float), 0.0F);
  }

 private:
  static float* floats(const Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

  const EightBits policy_;
  const std::span<const Parameter> parameters_;
  const int ranks_;
  MemoryPool& memory_;
  // What this rank still has to send: of each gradient, in the order of the buckets.
  Buffer left_out_;
  std::vector<std::size_t> first_;  // number of each parameter in it
};

}  // namespace

std::unique_ptr<Reduction> make_eight_bits(const EightBits& policy,
                                           std::span<const Parameter> parameters, int ranks,
                                           MemoryPool& memory) {
  return std::make_unique<EightBitsReduction>(policy, parameters, ranks, memory);
}

}  // namespace tutti::parallel
