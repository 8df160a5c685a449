// Averaging of buckets: in their own type, in another type, or compressed. The engine decides when.
#pragma once

#include <tutti/comm/communicator.h>

#include <cstddef>
#include <memory>
#include <span>

#include "../memory_pool.h"
#include "buckets.h"

namespace tutti::parallel {

/// A bucket takes rounds() collectives, one after the other. In each step every rank asks for the
/// same collectives in the same order, and their results have the same bits on all ranks. A value
/// at the beginning of a bucket that is not finite stays so: in this way ranks learn of missing
/// gradients (Unused::error). A user's own reduction (OwnReduction) overrides prepare() and
/// complete(), for instance. If it throws, the operation fails on all ranks.
class Reduction {
 public:
  virtual ~Reduction() = default;
  /// Sets the place of the buckets. Both arguments outlive the reduction, or the next bind().
  virtual void bind(const BucketLayout& layout, std::byte* gradients) {
    layout_ = &layout;
    gradients_ = gradients;
  }
  /// Step `step` begins; steps count up.
  virtual void begin(std::uint64_t step) { (void)step; }
  virtual int rounds() const { return 1; }
  /// The collective of a round, after that of the previous round is over. Its memory stays valid
  /// until it is over.
  virtual Call prepare(std::size_t bucket, int round);
  /// The last round is over: the averages replace the gradients.
  virtual void complete(std::size_t bucket) { (void)bucket; }
  /// The step's averages are worthless: they must not change any state.
  virtual void discard() {}

 protected:
  const Bucket& bucket(std::size_t b) const { return layout_->buckets[b]; }
  std::byte* data(std::size_t b) const { return gradients_ + bucket(b).offset; }

  const BucketLayout* layout_ = nullptr;
  std::byte* gradients_ = nullptr;
};

/// Makes the reduction of `policy` among `ranks`, with memory from `memory`. `parameters` outlives
/// it.
std::unique_ptr<Reduction> make_reduction(const DataParallelPolicy& policy,
                                          std::span<const Parameter> parameters, int ranks,
                                          MemoryPool& memory);

}  // namespace tutti::parallel
