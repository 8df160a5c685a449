// Agreement: whether the ranks of one or two axes have equal settings, and which rank differs.
//
// An engine would compute nonsense, or its ranks would wait for each other for ever, if the ranks
// were set up differently. So an engine writes down, as lines of text, everything that has to be
// equal, and its ranks compare the lines once, in the constructor. An error of one rank meanwhile
// becomes an error of all ranks.
//
// The comparison costs an all-reduce of 16 bytes on each axis. Only if ranks differ, more data
// travel, so that all ranks throw the same error, which names the rank that differs.
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

/// A hash that continues another one.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);
std::uint64_t mix(std::uint64_t hash, std::string_view text);

/// The ranks of one axis, or of two that cross, as one group that compares values. The axes outlive
/// it; copying it costs as little as copying two pointers.
class Agreement {
 public:
  /// `replicate` may be null. Not explicit: an axis stands for its ranks. Throws
  /// Error(invalid_argument) for two axes that do not cross: of more than one rank, and one and the
  /// same, or with another rank in common, as far as they know their ranks.
  Agreement(Axis& shard, Axis* replicate = nullptr);

  int ranks() const { return shard_.size() * (replicate_ ? replicate_->size() : 1); }
  Device& device() const { return shard_.device(); }
  int rank() const { return shard_.rank() + (replicate_ ? replicate_->rank() * shard_.size() : 0); }
  /// The number in the mesh of a rank with the number of all() and rank().
  int world_rank(int rank) const;
  /// "rank 2", or, for axes without a mesh, "rank 2 of replica 1".
  std::string name(int rank) const;

  // Collective.
  /// Whether all ranks have called it with this value.
  bool same(std::uint64_t value);
  /// The largest of the ranks' values.
  std::uint64_t largest(std::uint64_t value);
  /// The values of all ranks, `values.size()` of each; all ranks pass equally many.
  std::vector<std::uint64_t> all(std::span<const std::uint64_t> values);
  /// The text of one rank, cut off at 240 bytes.
  std::string text_of(int rank, std::string_view text);

 private:
  void reduce_max(std::uint64_t* values, std::size_t count);

  Axis& shard_;
  Axis* replicate_;
};

/// Collective over `ranks`. Returns if all have the same lines, and are all on the host or all on
/// GPUs (Axis::use()) of the same abilities. Otherwise all throw
/// Error(mismatch), with the first line that differs, and the rank that is alone with its line, or
/// else the first rank that differs from rank 0. `what` says what the lines describe ("the mesh",
/// "linear 'up'"), and is the same on all ranks, too.
void agree(Agreement ranks, std::string_view what, std::span<const std::string> lines);

/// Collective over `ranks`: each rank runs `body` by itself. If it throws on some ranks, all throw,
/// so no rank waits for a rank that has failed. They throw the same exception if it is the same on
/// all ranks; otherwise Error(mismatch), with the first such rank and its error.
void together(Agreement ranks, std::string_view what, const std::function<void()>& body);

/// The rank that is alone with its value, if any, else the first that differs from rank 0; -1: all
/// have the same.
int odd_one(std::span<const std::uint64_t> values);

/// All ranks have `columns` entries, listed one rank after the other. Finds the first entry in
/// which ranks differ: a rank that differs, and a rank that it differs from.
struct Difference {
  std::size_t entry = 0;
  int rank = -1, other = -1;  // -1: there is none
};
Difference first_difference(std::span<const std::uint64_t> entries, std::size_t columns);

}  // namespace tutti::parallel
