// Plans as text: one step a line, so people can read a plan, compare it with diff, write it by hand
// and keep it in a file. docs/plans.md describes the form; an example:
//
//     tutti plan 1
//     all_reduce ring  ranks 2  pieces 2  slots 2  lanes 1
//     rank 0
//       lane 0
//         to(1) <- in[0]
//         out[1], to(1) <= from(1) + in[1]
//         out[0] <- from(1)
//     rank 1
//       ...
//
// Reading a written text gives the same plan, and writing a plan that was read gives the same text
// (except for comments and spacing).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/plan.h"

namespace tutti {

/// The limits of plan_from_text. They bound the memory that a reader of the plan allocates;
/// otherwise a short hostile text could ask for any amount.
struct TextLimits {
  static constexpr std::uint32_t ranks = 65'536;
  static constexpr std::uint32_t lanes = kMostChannels;  // a link's channel is one byte
  static constexpr std::uint32_t lanes_of_all_ranks = 1u << 20;
  static constexpr std::uint32_t slots = 65'536;
  static constexpr std::uint32_t chunks = 1u << 24;               // pieces, tmp, a message
  static constexpr std::uint64_t chunks_of_all_ranks = 1u << 26;  // in, out and tmp together
  static constexpr std::uint64_t bytes = 0xffff'ffff;
};

/// One step, as in the plan's text: "out[1], to(1) <= from(3) + in[1]".
std::string to_text(const RankPlan& rank, std::uint32_t lane, const Step& step);
/// `count` chunks of memory, as a step names them: "out[3]", "in[0:4]@2".
std::string to_text(const Operand& memory, std::uint32_t count);
/// "in", "out" or "tmp".
std::string_view name(Space memory);
/// Its word in a plan's header.
std::string_view name(Format format);

/// The inverse of to_text(plan) (write.h). Checks the grammar and that every rank exists, and
/// throws Error(invalid_argument), which names the line, the expected text and the actual one. The
/// verifier decides whether the plan is right.
Plan plan_from_text(std::string_view text);

}  // namespace tutti
