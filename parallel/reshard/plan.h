// A reshard as data: the messages that bring each element of a target layout, once, from a rank
// that holds it. It has no pointers and no times. So the same plan can be proved (verify.h),
// predicted (predict.h), drawn (draw.h) and executed (reshard.h).
//
// A move copies a box of elements from a piece into a piece. Source is a piece of the layout
// `from`, or a piece of the layout `to` in which the elements have arrived before (a relay): so
// ranks of one host get from each other what came to the host once. A message is the moves from a
// rank to another that travel together; from a rank to itself it is a copy.
//
// Order. A rank sends its messages in the order of the plan, and receives its messages in the order
// of the plan, sends and receives side by side, with at least one slot for each. A move relays only
// what earlier messages have brought. So a plan cannot end in a deadlock: of the messages that are
// not over, the first of the plan is the next one of its sender and of its receiver, and all that
// it relays has arrived.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout.h"

namespace tutti::parallel::reshard {

constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

struct Move {
  std::uint32_t tensor = 0;  // its number in the layout `to`
  std::uint32_t source =
      0;  // the piece, by number in its tensor: of layout `from`, or, of a relay, of `to`
  std::uint32_t target = 0;  // the piece of `to`
  bool relay = false;
  Box box;
  bool operator==(const Move&) const = default;
};

struct Message {
  std::int32_t from = 0, to = 0;       // ranks
  std::uint64_t begin = 0, count = 0;  // of Plan::moves
  std::uint64_t bytes = 0;             // on the way, of all moves
  bool operator==(const Message&) const = default;
};

struct Plan {
  std::vector<std::uint32_t> tensors;  // by tensor of `to`: its number in `from`
  std::vector<int> hosts;              // by rank: the number of its host, from 0 on
  std::vector<Message> messages;       // in their order
  std::vector<Move> moves;
  std::uint64_t most_bytes = 0;  // of a message that is not from a rank to itself

  int ranks() const { return static_cast<int>(hosts.size()); }
  std::span<const Move> moves_of(const Message& m) const {
    return std::span(moves).subspan(m.begin, m.count);
  }
  bool operator==(const Plan&) const = default;
};

/// The type of elements on their way from a piece of type `from` to one of type `to`: the narrower
/// one, so the sender converts to it, or the receiver from it. Of two that are equally wide it is
/// `from`.
DataType travel_type(DataType from, DataType to);
/// Of a move of these layouts. A relay narrows again what was widened, which changes no value.
DataType travel_type(const Layout& from, const Layout& to, const Plan& plan, const Move& move);

/// The choices of a plan.
struct PlanOptions {
  std::vector<int> hosts{};  // by rank, numbered from 0 without gaps; none: all are on one host
  std::uint64_t message_bytes = 4u << 20;        // about the most between hosts
  std::uint64_t host_message_bytes = 16u << 20;  // about the most inside a host
};

/// Makes the plan. The layouts have passed check(). Throws Error(invalid_argument) if they are of
/// different numbers of ranks, if `from` lacks a tensor of `to`, or has it with another shape, or
/// with a type from which there is no conversion (floats convert into floats; all else keeps its
/// type). Tensors that `from` alone has are left out.
Plan make_plan(const Layout& from, const Layout& to, const PlanOptions& options = {});

}  // namespace tutti::parallel::reshard
