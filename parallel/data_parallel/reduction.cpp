#include "parallel/data_parallel/reduction.h"

#include <vector>

#include "core/error.h"
#include "parallel/axis.h"
#include "parallel/data_parallel/eight_bits.h"
#include "parallel/data_parallel/power_sgd.h"

namespace tutti::parallel {
namespace {

/// In another type than the gradients'.
class ConvertedReduction final : public Reduction {
 public:
  ConvertedReduction(DataType type, MemoryPool& memory) : type_(type), memory_(memory) {}

  void bind(const BucketLayout& layout, std::byte* gradients) override {
    Reduction::bind(layout, gradients);
    offsets_.clear();
    std::size_t bytes = 0;
    for (const Bucket& b : layout.buckets) {
      offsets_.push_back(bytes);
      // Gradients that have the type already stay where they are.
      if (b.type == type_) continue;
      const std::size_t end = bytes + b.count * size_of(type_);
      bytes = (end + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
    }
    buffer_.reset();  // before the next one is there
    buffer_ = memory_.zeros(bytes);
  }

  Call prepare(std::size_t b, int round) override {
    if (bucket(b).type == type_) return Reduction::prepare(b, round);
    memory_.device().convert(bucket(b).type, data(b), type_, converted(b), bucket(b).count);
    return call_of(Collective::all_reduce, converted(b), converted(b), bucket(b).count, type_,
                   ReduceKind::avg);
  }

  void complete(std::size_t b) override {
    if (bucket(b).type == type_) return;
    memory_.device().convert(type_, converted(b), bucket(b).type, data(b), bucket(b).count);
  }

 private:
  std::byte* converted(std::size_t b) const { return buffer_.data() + offsets_[b]; }

  const DataType type_;
  MemoryPool& memory_;
  Buffer buffer_;
  std::vector<std::size_t> offsets_;  // by bucket
};

}  // namespace

Call Reduction::prepare(std::size_t b, int) {
  return call_of(Collective::all_reduce, data(b), data(b), bucket(b).count, bucket(b).type,
                 ReduceKind::avg);
}

std::unique_ptr<Reduction> make_reduction(const DataParallelPolicy& policy,
                                          std::span<const Parameter> parameters, int ranks,
                                          MemoryPool& memory) {
  if (policy.reduction) {
    const OwnReduction& own = *policy.reduction;
    if (auto made = own.make ? own.make(parameters, memory) : nullptr) return made;
    throw Error(ErrorCode::invalid_argument,
                "data parallel: the reduction '" + own.name + "' has not been made");
  }
  if (policy.eight_bits) return make_eight_bits(*policy.eight_bits, parameters, ranks, memory);
  if (policy.power_sgd) return make_power_sgd(*policy.power_sgd, parameters, memory);
  if (policy.reduce_type) return std::make_unique<ConvertedReduction>(*policy.reduce_type, memory);
  return std::make_unique<Reduction>();
}

}  // namespace tutti::parallel
