// Agreement: whether the ranks of one or two axes have the same, and who differs.
//
// Engines whose ranks were set up differently would compute nonsense, or wait for each other for
// ever. So an engine writes down as lines of text what has to be alike, and its ranks compare the
// lines once, when it is made. What a rank finds wrong by itself meanwhile is everybody's error,
// too.
//
// To ask costs an all-reduce of 16 bytes on each axis. Only where the answer is no does anything
// else travel, so that all ranks throw the same error, which names the rank that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axis.h"

namespace tutti::parallel {

/// A hash that goes on from another one.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);
std::uint64_t mix(std::uint64_t hash, std::string_view text);

/// The ranks of one axis, or of two that cross, as one group that compares what it has. The axes
/// outlive it; it is as cheap to copy as two pointers.
class Agreement {
 public:
  /// `replicate` may be null. Not explicit: an axis stands for its ranks.
  Agreement(Axis& shard, Axis* replicate = nullptr) : shard_(shard), replicate_(replicate) {}

  int ranks() const { return shard_.size() * (replicate_ ? replicate_->size() : 1); }
  int rank() const { return shard_.rank() + (replicate_ ? replicate_->rank() * shard_.size() : 0); }
  /// A number as all() and rank() have it, as the ranks of the mesh are counted.
  int world_rank(int rank) const;
  /// "rank 2", or, of axes of no mesh, "rank 2 of replica 1".
  std::string name(int rank) const;

  // Collective.
  /// Whether all have called it with this value.
  bool same(std::uint64_t value);
  /// The largest of the ranks' values.
  std::uint64_t largest(std::uint64_t value);
  /// What all ranks have passed, `values.size()` of each, which has to be the same.
  std::vector<std::uint64_t> all(std::span<const std::uint64_t> values);
  /// The text of one of them, cut off at 240 bytes.
  std::string text_of(int rank, std::string_view text);

 private:
  void reduce_max(std::uint64_t* values, std::size_t count);

  Axis& shard_;
  Axis* replicate_;
};

/// Collective over `ranks`. Returns where all have the same lines; otherwise all throw
/// Error(mismatch), with the first line that differs and a rank that is alone with it, or else the
/// first that differs from rank 0. `what` says what the lines describe ("the mesh").
void agree(Agreement ranks, std::string_view what, std::span<const std::string> lines);

/// Collective over `ranks`: does `body`, which each rank does by itself. Where it throws on some
/// ranks, all throw, so that nobody waits for a rank that has been refused: what it threw, where
/// that is the same on all; else Error(mismatch), with the first such rank and what it was told.
void together(Agreement ranks, std::string_view what, const std::function<void()>& body);

/// The rank that is alone with its value, if any, else the first that differs from rank 0; -1: all
/// have the same.
int odd_one(std::span<const std::uint64_t> values);

/// The first of `columns` entries that ranks have differently, of those of all ranks, which are one
/// rank's after the other's: a rank that differs, and one that it differs from.
struct Difference {
  std::size_t entry = 0;
  int rank = -1, other = -1;  // -1: there is none
};
Difference first_difference(std::span<const std::uint64_t> entries, std::size_t columns);

}  // namespace tutti::parallel
