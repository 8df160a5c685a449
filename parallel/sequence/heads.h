// Ulysses (Jacobs et al., 2023): before the attention each rank has some rows of all heads, during
// it all rows of some heads. An all-to-all of each tensor turns the one into the other.
//
// Which heads a rank gets: if there are at least as many key heads as ranks, whole key heads, with
// all query heads that use them, as evenly as can be (the counts of two ranks differ by one key
// head at most). Otherwise the ranks are divided among the key heads as evenly as can be. The ranks
// of a key head divide its query heads, each of them gets the key head, and the gradients that they
// make for it are added in the order of the ranks. So on every rank each of its key heads has
// equally many query heads.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "parallel/axis.h"
#include "parallel/in_flight.h"
#include "parallel/sequence/layout.h"

namespace tutti::parallel::sequence {

struct HeadShare {
  Range queries, keys;  // of the query heads, and of the key heads
};
/// Of each rank. `kv_heads` divides `heads`, and there are at least as many heads as ranks.
std::vector<HeadShare> share_heads(std::size_t heads, std::size_t kv_heads, std::size_t ranks);

/// The exchange of tensors of one kind, queries' or keys'.
class HeadExchange {
 public:
  /// `heads`: of all, and of each rank. `rows`: of a rank, before the exchange.
  HeadExchange(Axis& axis, std::size_t heads, std::vector<Range> shares, std::size_t rows,
               std::size_t batch, std::size_t dim, DataType type);

  /// The bytes of the tensors before and during the attention, and of the memory for its messages.
  std::size_t share_bytes() const;
  std::size_t message_bytes() const;

  /// Starts to turn `own` (rows x batch x heads x dim) into `share` (all ranks' rows x batch x this
  /// rank's heads x dim).
  void to_heads(InFlight& in_flight, const void* own, void* messages, void* share) const;
  /// Starts the way back; once it is over, finish() writes `own`.
  void to_rows(InFlight& in_flight, const void* share, void* messages) const;
  /// Several ranks' parts of a head, gradients of keys, are added in wide(type).
  void finish(const void* messages, void* own) const;

 private:
  void start(InFlight& in_flight, const void* in, void* out, bool to_heads) const;
  /// Calls `copy` for each rank's heads: where its message begins, the bytes of a run of it, and
  /// where the first run begins in own; others follow there all heads apart.
  template <class Copy>
  void for_each_rank(const Copy& copy) const;

  Axis& axis_;
  const std::size_t heads_, rows_, batch_, dim_;
  const DataType type_;
  const std::vector<Range> shares_;
  const std::size_t row_;                // the bytes of dim elements
  std::vector<std::size_t> firsts_;      // of each rank's heads
  std::vector<std::size_t> counts_;      // elements of the message with each rank's heads
  std::vector<std::size_t> own_counts_;  // of messages with this rank's heads
  bool even_ = true, shared_ = false;    // equal messages; heads that several ranks have
};

}  // namespace tutti::parallel::sequence
