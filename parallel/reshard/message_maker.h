// Moves become messages. A message's place in the order, its key, is its number among those of its
// two ranks; of a relay it is one behind that of the message that it relays. So ranks talk to all
// others in turn, and what is relayed comes before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "parallel/reshard/plan.h"

namespace tutti::parallel::reshard {

class MessageMaker {
 public:
  /// Both outlive it. The plan gets its hosts before begin().
  MessageMaker(Plan& plan, const PlanOptions& options) : plan_(plan), options_(options) {}
  void begin();

  /// Adds a move, of so many bytes on its way. `after`: of a relay, the key of what it relays.
  /// Returns the key of its message.
  std::uint32_t add(const Move& move, int from, int to, std::uint64_t bytes, std::uint32_t after);
  /// Bytes that a rank sends, or receives, so far.
  std::uint64_t sent(int rank) const { return sent_[index(rank)]; }
  std::uint64_t received(int rank) const { return received_[index(rank)]; }

  /// Puts all into the plan.
  void gather();

 private:
  /// A move that is on its way: to which message it belongs.
  struct Hop {
    int from = 0, to = 0;
    std::uint64_t bytes = 0;
    std::uint32_t message = 0;  // by number of creation
  };
  /// The messages from a rank to another; those that relay what came with one key are a lane of
  /// their own.
  struct LaneName {
    int from = 0, to = 0;
    std::uint64_t after = 0;
    bool operator==(const LaneName&) const = default;
  };
  struct LaneHash {
    std::size_t operator()(const LaneName& l) const;
  };
  struct Lane {
    std::uint32_t next_key = 0;
    std::uint32_t open = 0;  // the message that the next small move joins
    std::uint64_t room = 0;  // in it, bytes
  };

  Plan& plan_;
  const PlanOptions& options_;
  std::vector<std::uint64_t> sent_, received_;  // by rank
  std::vector<Hop> hops_;                       // by move
  std::unordered_map<LaneName, Lane, LaneHash> lanes_;
  std::vector<std::uint32_t> keys_;  // by message
};

}  // namespace tutti::parallel::reshard
