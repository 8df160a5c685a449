#include "collectives/execute/cuda/device_plan.h"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "collectives/execute/cuda/block_writer.h"
#include "collectives/execute/windows.h"
#include "core/error.h"

namespace tutti::device {
namespace {

class Builder {
 public:
  explicit Builder(const DeviceCall& call) : call_(call), plan_(*call.plan) {}

  std::vector<std::byte> run() {
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) add_lane(l);
    PlanBlock h{};
    const std::size_t element = size_of(call_.type);
    const Tiling& tiling = call_.choice.tiling;
    // Copies of tmp begin on lines of their own.
    const std::size_t tmp = tiling.tile / plan_.header.pieces * element * plan_.tmp_chunks;
    h.tmp_stride = (tmp + kLine - 1) / kLine * kLine;
    h.lanes = static_cast<std::uint32_t>(parts_.lanes.size());
    h.copies = call_.choice.copies;
    h.windows = call_.windows ? 1 : 0;
    h.reduction = is_reduction(plan_.header.collective) ? 1 : 0;
    h.divisor = static_cast<std::uint32_t>(plan_.header.ranks);
    h.reciprocal = 1.0 / h.divisor;
    h.plan_channels = call_.plan_channels;
    h.shares_tiles = call_.choice.shares_tiles ? 1 : 0;
    return write_block(h, parts_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} by '{}' on CUDA: {}", name(plan_.header.collective),
                            plan_.header.algorithm, why));
  }

  ProgramShape shape() const {
    return {call_.type, call_.in, call_.out, call_.choice.tiling,
            message_unit(call_.choice.protocol)};
  }

  void add_lane(std::size_t l) {
    DeviceLane lane{};
    lane.first_range = u32(parts_.ranges.size());
    lane.first_end = u32(parts_.ends.size());
    if (!plan_.lanes[l].empty()) {
      lane.actions = u32(plan_.lanes[l].size());
      const std::uint32_t tiles =
          u32(call_.tiles_by_lane ? tiles_of(plan_, shape(), l) : call_.choice.tiling.tiles);
      for (const std::size_t tile : changes(l)) {
        if (tile >= tiles) break;
        if (parts_.ranges.size() > lane.first_range) parts_.ranges.back().end_tile = u32(tile);
        add_range(l, tile, lane.first_end);
      }
      if (parts_.ranges.size() > lane.first_range) parts_.ranges.back().end_tile = tiles;
    }
    lane.ranges = u32(parts_.ranges.size()) - lane.first_range;
    lane.ends = u32(parts_.ends.size()) - lane.first_end;
    if (lane.ends > kMostEnds) {
      refuse(fmt::format("lane {} has {} links, more than the {} that a thread block keeps", l,
                         lane.ends, kMostEnds));
    }
    parts_.lanes.push_back(lane);
  }

  /// The tiles that are cut unlike the one before: where a block ends, and the one after.
  std::set<std::size_t> changes(std::size_t lane) const {
    std::set<std::size_t> tiles{0};
    for (const Step& step : plan_.lanes[lane]) {
      const BlockTable& table = step.shape_space == Space::in ? call_.in : call_.out;
      for (std::uint32_t i = 0; i < step.count; ++i) {
        const std::size_t elements = table.elements((step.shape_chunk + i) / plan_.header.pieces);
        tiles.insert(elements / call_.choice.tiling.tile);
        tiles.insert(elements / call_.choice.tiling.tile + 1);
      }
    }
    return tiles;
  }

  void add_range(std::size_t lane, std::size_t tile, std::uint32_t first_end) {
    const TileProgram program = compile(plan_, shape(), tile, nullptr, lane);
    const std::size_t stride = call_.choice.tiling.tile * size_of(call_.type);
    parts_.ranges.push_back({u32(tile), 0, u32(parts_.actions.size()), u32(stride)});
    // Every tile sends the same messages, so each range counts them anew.
    for (std::size_t e = first_end; e < parts_.ends.size(); ++e) parts_.ends[e].per_tile = 0;
    for (const Action& a : program.lanes[lane]) {
      DeviceAction d{};
      d.check = a.bytes_out * 0x9E3779B1U;
      d.protocol = call_.choice.protocol;
      d.bytes_out = !a.signals ? a.bytes_out : call_.windows ? u32(sizeof(BufferAddresses)) : 0;
      d.signals = a.signals ? 1 : 0;
      d.completes = a.completes ? 1 : 0;
      d.receives = u32(a.receives.size());
      d.first_use = u32(parts_.uses.size());
      for (const ReceiveLink& link : a.receives) {
        parts_.uses.push_back(use(link.rank, link.channel, false, first_end));
      }
      d.sends = u32(a.sends.size());
      for (const SendLink& link : a.sends) {
        parts_.uses.push_back(use(link.rank, link.channel, true, first_end));
      }
      d.moves = u32(a.moves.size());
      d.first_move = u32(parts_.moves.size());
      for (const Move& m : a.moves) add_move(m);
      parts_.actions.push_back(d);
    }
  }

  void add_move(const Move& m) {
    if (m.destinations + m.sources > static_cast<int>(kMostOperands)) {
      refuse(fmt::format("a step has {} operands, more than the {} that a thread block keeps",
                         m.destinations + m.sources, kMostOperands));
    }
    const std::size_t bytes = m.elements * size_of(call_.type);
    if (bytes > kMostMove) refuse(fmt::format("a step moves {} bytes at once", bytes));
    parts_.moves.push_back({u32(bytes), u32(parts_.operands.size()), m.destinations, m.sources});
    for (std::uint32_t i = 0; i < std::uint32_t{m.destinations} + m.sources; ++i) {
      const CompiledOperand& p = m.operands[i];
      const bool linked = p.where == CompiledOperand::send || p.where == CompiledOperand::receive;
      parts_.operands.push_back({linked ? wire_offset(p.offset) : p.offset, p.rank, p.where,
                                 static_cast<std::uint8_t>(p.scaled), 0});
    }
  }

  /// Where the data at a message's byte `offset`, which begins a unit, lies in the slot.
  std::size_t wire_offset(std::size_t offset) const {
    const Protocol p = call_.choice.protocol;
    return offset / message_unit(p) * wire_unit(p);
  }

  Use use(std::int32_t rank, std::uint8_t channel, bool sends, std::uint32_t first_end) {
    if (channel >= call_.plan_channels) {
      refuse(fmt::format("it uses channel {}, but was bound for {}", channel, call_.plan_channels));
    }
    const auto peer = static_cast<std::uint32_t>(rank);
    std::size_t e = first_end;
    while (e < parts_.ends.size() &&
           (parts_.ends[e].peer != peer || parts_.ends[e].channel != channel ||
            parts_.ends[e].sends != (sends ? 1U : 0U))) {
      ++e;
    }
    if (e == parts_.ends.size()) parts_.ends.push_back({peer, channel, 0, sends ? 1U : 0U, 0});
    return {u32(e) - first_end, parts_.ends[e].per_tile++};
  }

  std::uint32_t u32(std::size_t n) const {
    if (n > std::numeric_limits<std::uint32_t>::max()) refuse("it is too large for one kernel");
    return static_cast<std::uint32_t>(n);
  }

  const DeviceCall& call_;
  const RankPlan& plan_;
  BlockParts parts_;
};

}  // namespace

std::vector<std::byte> build_plan_block(const DeviceCall& call) { return Builder(call).run(); }

}  // namespace tutti::device
