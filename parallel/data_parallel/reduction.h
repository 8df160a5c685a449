// How buckets are averaged: as they are, in another type, or compressed. The engine decides when.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "../../comm/communicator.h"
#include "../memory_pool.h"
#include "buckets.h"

namespace tutti::parallel {

/// A bucket takes rounds() collectives, one after the other. In each step every rank asks for the
/// same ones in the same order, and what comes of them has the same bits on all ranks. What is not
/// finite at the beginning of a bucket stays so: that is how ranks learn of gradients that are
/// missing (Unused::error). A user's own (OwnReduction) overrides prepare() and complete(), say. If
/// it throws, the operation fails on all ranks.
class Reduction {
 public:
  virtual ~Reduction() = default;
  /// The buckets are here from now on. Both outlive it, or the next bind().
  virtual void bind(const BucketLayout& layout, std::byte* gradients) {
    layout_ = &layout;
    gradients_ = gradients;
  }
  /// Step `step` begins; steps count up.
  virtual void begin(std::uint64_t step) { (void)step; }
  virtual int rounds() const { return 1; }
  /// The collective of a round, after that of the round before is over; its memory stays as it is
  /// until this one's is over.
  virtual Call prepare(std::size_t bucket, int round);
  /// The last round is over: the averages go where the gradients were.
  virtual void complete(std::size_t bucket) { (void)bucket; }
  /// The step's averages are worthless: no state may come of them.
  virtual void discard() {}

 protected:
  const Bucket& bucket(std::size_t b) const { return layout_->buckets[b]; }
  std::byte* data(std::size_t b) const { return gradients_ + bucket(b).offset; }

  const BucketLayout* layout_ = nullptr;
  std::byte* gradients_ = nullptr;
};

/// As `policy` says; its memory comes from `memory`. `parameters` outlives it.
std::unique_ptr<Reduction> make_reduction(const DataParallelPolicy& policy,
                                          std::span<const Parameter> parameters,
                                          MemoryPool& memory);

}  // namespace tutti::parallel
