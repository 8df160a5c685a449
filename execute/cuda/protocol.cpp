#include "execute/cuda/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "collectives/cut.h"
#include "core/error.h"

namespace tutti::device {
namespace {

// LL while latency is all, Simple where LL128's flags outweigh its fences. Measured with two ranks
// on an H200: LL and LL128 are even at 32 KiB; at 256 KiB LL128 takes three quarters of LL's time,
// and 94 % of Simple's; at 2 MiB 1.6 times Simple's. In between LL128 follows a line that Simple's
// crosses at 400 KiB.
constexpr std::size_t kMostForLL = std::size_t{64} << 10;
constexpr std::size_t kMostForLL128 = std::size_t{400} << 10;

// Bytes that are worth a block of their own: below, another block's start costs more than it moves.
constexpr std::size_t bytes_per_block(Protocol p) {
  return p == Protocol::ll ? std::size_t{4} << 10 : std::size_t{32} << 10;
}

// Through windows nothing limits a tile but the tmp that some plans keep of it. Not measured.
constexpr std::size_t kMostWindowChunk = std::size_t{8} << 20;

// A turn of all warps of a block that shares a tile is at most that much (sum_packs()). Each has so
// many.
constexpr std::size_t kTurn = std::size_t{64} << 10;
constexpr std::size_t kLeastTurns = 8;

// From a tile to the next: a range has 32 bits for it.
constexpr std::size_t kMostTile = std::size_t{1} << 30;

/// Bytes of data of one chunk that surely fit, `widest` of them in a slot.
std::size_t chunk_capacity(Protocol p, const SegmentShape& s, std::uint32_t widest) {
  const std::size_t slot = p == Protocol::ll      ? s.ll_bytes
                           : p == Protocol::ll128 ? s.ll128_bytes
                                                  : s.simple_bytes;
  return slot / wire_unit(p) / widest * message_unit(p);
}

[[noreturn]] void refuse(const PlanHeader& plan, const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} by '{}' on CUDA: {}", name(plan.collective), plan.algorithm, why));
}

/// For so many bytes, where data may travel in every way.
Protocol protocol_for(std::size_t bytes, bool whole_lines, const Protocols& allowed) {
  using enum Protocol;
  const std::array best = bytes <= kMostForLL      ? std::array{ll, ll128, simple}
                          : bytes <= kMostForLL128 ? std::array{ll128, simple, ll}
                                                   : std::array{simple, ll128, ll};
  for (const Protocol p : best) {
    if (allowed.has(p) && (p != ll128 || whole_lines)) return p;
  }
  return simple;  // which every link can do
}

}  // namespace

Protocols protocols_from(std::string_view text) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  const bool inverted = text.starts_with('^');
  std::string_view rest = text.substr(inverted ? 1 : 0);
  if (rest.empty() && !inverted) return {};
  Protocols p{inverted, inverted, inverted};
  for (;;) {
    const std::string_view name = rest.substr(0, rest.find(','));
    const auto is = [&](std::string_view known) { return std::ranges::equal(name, known, same); };
    if (is("simple")) {
      p.simple = !inverted;
    } else if (is("ll")) {
      p.ll = !inverted;
    } else if (is("ll128")) {
      p.ll128 = !inverted;
    } else {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("there is no protocol \"{}\" (in \"{}\"; TUTTI_CUDA_PROTOCOLS): there "
                      "are ll, ll128 and simple",
                      name, text));
    }
    if (name.size() == rest.size()) break;
    rest.remove_prefix(name.size() + 1);
  }
  if (!p.simple && !p.ll && !p.ll128) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("\"{}\" (TUTTI_CUDA_PROTOCOLS) leaves no protocol", text));
  }
  return p;
}

bool may_be_flagged(const PlanHeader& plan, const Traits& t) {
  return plan.lanes == 1 && t.link_data && !t.windows;
}

Choice choose(const PlanHeader& plan, const Traits& t, const SegmentShape& shape, Protocol protocol,
              std::uint32_t copies) {
  Choice c;
  c.protocol = may_be_flagged(plan, t) ? protocol : Protocol::simple;
  if (c.protocol == Protocol::ll128 && !t.sums) c.protocol = Protocol::simple;
  // Flags take so much of a slot that wide messages may fit only without.
  if (chunk_capacity(c.protocol, shape, plan.widest) < 64) c.protocol = Protocol::simple;
  if (plan.slots > shape.slots) {
    refuse(plan,
           fmt::format("it needs links of {} slots, but they have {}", plan.slots, shape.slots));
  }
  const std::uint32_t channels = shape.channels + (t.link_data ? 0 : shape.signal_channels);
  if (t.plan_channels > channels) {
    refuse(plan, fmt::format("it needs {} channels, but there are {}", t.plan_channels, channels));
  }
  if (plan.lanes > std::min(t.most_blocks, kMostBlocks)) {
    refuse(plan, fmt::format("its {} lanes need as many thread blocks, but {} fit beside those of "
                             "the other ranks",
                             plan.lanes, std::min(t.most_blocks, kMostBlocks)));
  }
  const std::size_t capacity = chunk_capacity(c.protocol, shape, plan.widest);
  if (t.link_data && capacity < 64) {
    refuse(plan, fmt::format("its messages of {} chunks do not fit the slots", plan.widest));
  }
  c.copies =
      std::max<std::uint32_t>(1, std::min({copies, channels / t.plan_channels,
                                           std::min(t.most_blocks, kMostBlocks) / plan.lanes}));
  // Blocks that need nothing of each other can work at one place of the memory, side by side; where
  // each has many turns, as one more or less must not count.
  const auto piece = t.block * t.element_bytes / plan.pieces;
  c.shares_tiles = t.windows && !t.link_data && t.from_inputs && t.tmp_chunks == 0 &&
                   !t.tiles_by_lane && plan.lanes == 1 && piece >= kLeastTurns * kTurn * c.copies;
  std::size_t chunk = t.link_data ? capacity : c.shares_tiles ? kMostTile : kMostWindowChunk;
  if (t.tmp_chunks > 0) chunk = std::min(chunk, kMostTmp / t.tmp_chunks);
  chunk = std::max<std::size_t>(std::min(chunk, kMostTile / plan.pieces) / 64 * 64, 64);
  // Where only the two ends know a block's size, tiles are as large as can be. Else every copy has
  // as many as any other, so that none waits for the rest of a last round.
  if (!t.tiles_by_lane) {
    const auto parts = [](std::size_t all, std::size_t of) { return (all + of - 1) / of; };
    const std::size_t sharers = c.shares_tiles ? 1 : c.copies;
    const std::size_t share =
        std::max<std::size_t>(parts(t.block * t.element_bytes, sharers * plan.pieces), 1);
    chunk = parts(parts(share, parts(share, chunk)), 64) * 64;
  }
  c.tiling = Tiling::of(t.tiles_by_lane ? 0 : t.block, t.element_bytes, plan.pieces, chunk);
  return c;
}

Choice choose(const PlanHeader& plan, const Traits& t, const SegmentShape& shape) {
  const Protocol p = may_be_flagged(plan, t)
                         ? protocol_for(t.bytes, t.whole_lines && t.sums, t.allowed)
                         : Protocol::simple;
  const std::size_t blocks = t.bytes / bytes_per_block(p) / plan.lanes + 1;
  return choose(plan, t, shape, p,
                static_cast<std::uint32_t>(std::min<std::size_t>(blocks, kMostBlocks)));
}

MessageCut cut_message(std::size_t bytes, bool whole_lines, const SegmentShape& shape) {
  constexpr std::size_t kUnit = 64;  // tiles begin where wide accesses can
  MessageCut c;
  c.protocol = protocol_for(bytes, whole_lines, {});
  std::size_t capacity = chunk_capacity(c.protocol, shape, 1) / kUnit * kUnit;
  if (capacity == 0) {
    c.protocol = Protocol::simple;
    capacity = chunk_capacity(c.protocol, shape, 1) / kUnit * kUnit;
  }
  // A tile for every channel, if there is enough.
  const std::size_t blocks = std::clamp<std::size_t>(bytes / bytes_per_block(c.protocol), 1,
                                                     std::max(shape.message_channels, 1U));
  const std::size_t share = (bytes + blocks - 1) / blocks;
  c.tile = std::min(capacity, std::max((share + kUnit - 1) / kUnit * kUnit, kUnit));
  c.tiles = static_cast<std::uint32_t>((bytes + c.tile - 1) / c.tile);
  return c;
}

}  // namespace tutti::device
