#include "execute/cuda/device_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "core/error.h"
#include "execute/cuda/block_writer.h"
#include "execute/windows.h"

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
    const std::span<const Action> actions = program.lanes[lane];
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const bool both = i + 1 < actions.size() && is_exchange(actions[i], actions[i + 1]);
      add_action(actions[i], both ? &actions[i + 1] : nullptr, first_end);
      if (both) parts_.actions.emplace_back();  // which nobody walks
      i += both ? 1 : 0;
    }
  }

  /// `a`, and, of an exchange, the step after it.
  void add_action(const Action& a, const Action* receiving, std::uint32_t first_end) {
    DeviceAction d{};
    d.check = a.bytes_out * 0x9E3779B1U;
    d.protocol = call_.choice.protocol;
    d.bytes_out = !a.signals ? a.bytes_out : call_.windows ? u32(sizeof(BufferAddresses)) : 0;
    d.signals = a.signals ? 1 : 0;
    const Action& last = receiving != nullptr ? *receiving : a;
    d.completes = last.completes ? 1 : 0;
    d.steps = receiving != nullptr ? 2 : 1;
    d.receives = u32(last.receives.size());
    d.first_use = u32(parts_.uses.size());
    for (const ReceiveLink& link : last.receives) {
      parts_.uses.push_back(use(link.rank, link.channel, false, first_end));
      parts_.uses.back().second_step = receiving != nullptr ? 1 : 0;
    }
    d.sends = u32(a.sends.size());
    for (const SendLink& link : a.sends) {
      parts_.uses.push_back(use(link.rank, link.channel, true, first_end));
    }
    std::vector<Moved> moves;
    for (const Move& m : a.moves) moves.emplace_back(m);
    if (receiving != nullptr && !moves.empty()) {
      moves.emplace_back(receiving->moves[0]);
      sum_of_the_source(moves[0], moves[1]);
    }
    d.moves = u32(moves.size());
    d.first_move = u32(parts_.moves.size());
    for (const Moved& m : moves) add_move(m);
    look_up_together(d);
    parts_.actions.push_back(d);
  }

  // --- Exchanges ---------------------------------------------------------------------------------

  /// A Move whose operands can be changed.
  struct Moved {
    std::vector<CompiledOperand> destinations, sources;
    std::size_t elements;

    explicit Moved(const Move& m)
        : destinations(m.operands, m.operands + m.destinations),
          sources(m.operands + m.destinations, m.operands + m.destinations + m.sources),
          elements(m.elements) {}
  };

  /// Whether a step that only sends and the next one, which only receives, can be one, whose blocks
  /// send before they wait. So can signals. So can moves by LL: each thread has sent its words
  /// before it waits for any, and it alone touches those that both moves have. Not where inputs are
  /// scaled: a result may be divided, and no message of it.
  bool is_exchange(const Action& a, const Action& b) const {
    if (!a.receives.empty() || a.sends.empty() || b.receives.empty() || !b.sends.empty()) {
      return false;
    }
    if (a.signals && b.signals) return a.moves.empty() && b.moves.empty();
    if (call_.choice.protocol != Protocol::ll || call_.scales || !begins_together()) return false;
    if (a.moves.size() != 1 || b.moves.size() != 1 || a.bytes_out != b.bytes_out || a.completes) {
      return false;
    }
    const Moved first(a.moves[0]), then(b.moves[0]);
    const std::size_t operands = first.destinations.size() + first.sources.size() +
                                 then.destinations.size() + then.sources.size();
    if (first.elements != then.elements || operands > kMostOperands) return false;
    const auto in_memory = [](const CompiledOperand& p) { return p.where <= CompiledOperand::tmp; };
    const std::size_t bytes = first.elements * size_of(call_.type);
    const auto apart = [&](const auto& some, const auto& others) {
      for (const CompiledOperand& p : some) {
        for (const CompiledOperand& q : others) {
          if (!in_memory(p) || !in_memory(q)) continue;
          const bool one_place =
              (p.where == CompiledOperand::tmp) == (q.where == CompiledOperand::tmp);
          if (one_place && p.offset != q.offset && p.offset < q.offset + bytes &&
              q.offset < p.offset + bytes) {
            return false;
          }
        }
      }
      return true;
    };
    return apart(first.destinations, then.destinations) &&
           apart(first.destinations, then.sources) && apart(first.sources, then.destinations);
  }

  /// Whether `in` and `out` are one buffer in place: then equal offsets are equal places, and
  /// others are others, in place or not.
  bool begins_together() const {
    const Collective c = plan_.header.collective;
    return c == Collective::all_reduce || c == Collective::broadcast || c == Collective::reduce;
  }

  /// The first move copies a source to memory from where the second takes it, and where it stores a
  /// result: the second takes the source itself.
  static void sum_of_the_source(Moved& first, Moved& then) {
    if (first.sources.size() != 1) return;
    const auto is = [](const CompiledOperand& p, const CompiledOperand& q) {
      return p.where == q.where && p.offset == q.offset && p.where <= CompiledOperand::tmp;
    };
    const auto kept = std::ranges::find_if(first.destinations, [&](const CompiledOperand& p) {
      return std::ranges::any_of(then.destinations, [&](const auto& q) { return is(p, q); });
    });
    if (kept == first.destinations.end()) return;
    for (CompiledOperand& q : then.sources) {
      if (is(*kept, q)) q = first.sources[0];
    }
    first.destinations.erase(kept);
  }

  // --- Moves -------------------------------------------------------------------------------------

  void add_move(const Moved& m) {
    const std::size_t operands = m.destinations.size() + m.sources.size();
    if (operands > kMostOperands) {
      refuse(fmt::format("a step has {} operands, more than the {} that a thread block keeps",
                         operands, kMostOperands));
    }
    const std::size_t bytes = m.elements * size_of(call_.type);
    if (bytes > kMostMove) refuse(fmt::format("a step moves {} bytes at once", bytes));
    DeviceMove d{};
    d.bytes = u32(bytes);
    d.first_operand = u32(parts_.operands.size());
    d.destinations = static_cast<std::uint16_t>(m.destinations.size());
    d.sources = static_cast<std::uint16_t>(m.sources.size());
    constexpr std::size_t kWord = 8;
    bool plain = bytes % kWord == 0 && m.sources.size() <= kPlainSources && !m.sources.empty() &&
                 call_.choice.tiling.tile * size_of(call_.type) % kWord == 0;
    const auto add = [&](const CompiledOperand& p, bool scaled) {
      const bool linked = p.where == CompiledOperand::send || p.where == CompiledOperand::receive;
      const std::size_t offset = linked ? wire_offset(p.offset) : p.offset;
      plain = plain && offset % (linked ? 2 * kWord : kWord) == 0;
      parts_.operands.push_back({offset, p.rank, p.where, static_cast<std::uint8_t>(scaled), 0});
    };
    for (const CompiledOperand& p : m.destinations) add(p, false);
    for (const CompiledOperand& p : m.sources) add(p, p.scaled);
    d.plain = plain ? 1 : 0;
    parts_.moves.push_back(d);
  }

  /// The moves of `d` whose operands a block has looked up at once: as many as fit.
  void look_up_together(const DeviceAction& d) {
    const std::span moves = std::span(parts_.moves).subspan(d.first_move);
    DeviceMove* first = nullptr;
    for (DeviceMove& m : moves) {
      const auto operands = static_cast<std::uint16_t>(m.destinations + m.sources);
      if (first == nullptr || first->looked_up + operands > static_cast<int>(kMostOperands)) {
        first = &m;
      }
      m.first_target = first->looked_up;
      for (std::uint32_t i = 0; i < operands; ++i) {
        parts_.operands[m.first_operand + i].move = static_cast<std::uint16_t>(&m - first);
      }
      first->looked_up = static_cast<std::uint16_t>(first->looked_up + operands);
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
    // A lane with more ends than fit is refused later.
    return {static_cast<std::uint16_t>(e - first_end), 0, parts_.ends[e].per_tile++};
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
