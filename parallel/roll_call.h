// Roll call: whether the ranks of one or two axes say the same, and who does not.
//
// To ask costs an all_reduce of 16 bytes on each axis. Only where the answer is no does anything
// else travel, so that all ranks throw the same error, which names the rank that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axis.h"

namespace tutti::parallel {

/// A hash that goes on from another one.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);
std::uint64_t mix(std::uint64_t hash, std::string_view text);

class RollCall {
 public:
  /// `replicate` may be null.
  RollCall(Axis& shard, Axis* replicate) : shard_(shard), replicate_(replicate) {}

  int ranks() const { return shard_.size() * (replicate_ ? replicate_->size() : 1); }
  int rank() const { return shard_.rank() + (replicate_ ? replicate_->rank() * shard_.size() : 0); }
  /// A number as all() and rank() have it, as the ranks of the mesh are counted.
  int world_rank(int rank) const;
  /// "rank 2", or, of axes of no mesh, "rank 2 of replica 1".
  std::string name(int rank) const;

  /// Whether all have called it with this value.
  bool same(std::uint64_t value);
  /// The largest of the ranks' values.
  std::uint64_t largest(std::uint64_t value);
  /// What all ranks have passed, `values.size()` of each, which has to be the same.
  std::vector<std::uint64_t> all(std::span<const std::uint64_t> values);
  /// The text of one of them, cut off at 240 bytes.
  std::string text_of(int rank, std::string_view text);
  /// The rank that is alone with its value, if any, else the first that differs from rank 0.
  static int odd_one(std::span<const std::uint64_t> values);

 private:
  void reduce_max(std::uint64_t* values, std::size_t count);

  Axis& shard_;
  Axis* replicate_;
};

}  // namespace tutti::parallel
