#include "execute/program.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/compressed.h"
#include "core/error.h"
#include "core/wide.h"

namespace tutti {
namespace {

/// Room that an element has in tmp.
std::size_t tmp_element(const RankPlan& plan, DataType type) {
  return size_of(plan.header.format == Format::wide ? accumulation_type(type) : type);
}

class Compiler {
 public:
  Compiler(const ProgramShape& shape, RankGroup* group)
      : shape_(shape), tiling_(shape.tiling), group_(group), element_(size_of(shape.type)) {}

  /// Tile `tile` of lane `only`, or of all lanes.
  TileProgram run(const RankPlan& plan, std::size_t tile, std::optional<std::size_t> only) {
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      if (!only || *only == l) count(plan, l);
    }
    reserve(plan.lanes.size());
    plan_ = &plan;
    tile_ = tile;
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      if (!only || *only == l) lane(l);
    }
    return std::move(program_);
  }

  /// The first tile of each lane, or the last one.
  TileProgram run(std::span<const LaneProgram> by_lane, bool last) {
    for (std::size_t l = 0; l < by_lane.size(); ++l) count(*by_lane[l].plan, l);
    reserve(by_lane.size());
    for (std::size_t l = 0; l < by_lane.size(); ++l) {
      plan_ = by_lane[l].plan;
      tiling_ = by_lane[l].tiling;
      tile_ = last ? tiling_.tiles - 1 : 0;
      if (last || tiling_.tiles > 1) lane(l);
    }
    return std::move(program_);
  }

 private:
  /// What a lane needs, at most.
  void count(const RankPlan& plan, std::size_t lane) {
    actions_ += plan.lanes[lane].size();
    for (const Step& step : plan.lanes[lane]) {
      const std::size_t n = std::size_t{step.destinations} + step.sources;
      links_ += n;
      moves_ += step.count;
      operands_ += n * step.count;
    }
  }

  /// Room for what was counted, so that spans into the vectors stay right while they grow.
  void reserve(std::size_t lanes) {
    program_.lanes.resize(lanes);
    program_.actions.reserve(actions_);
    program_.receives.reserve(links_);
    program_.sends.reserve(links_);
    program_.moves.reserve(moves_);
    program_.operands.reserve(operands_);
  }

  void lane(std::size_t index) {
    const std::size_t first = program_.actions.size();
    for (const Step& step : plan_->lanes[index]) program_.actions.push_back(action(step));
    program_.lanes[index] = std::span(program_.actions).subspan(first);
  }

  Action action(const Step& step) {
    Action a;
    a.completes = step.completes;
    a.signals = step.count == 0;
    const std::size_t first_receive = program_.receives.size();
    for (const Operand& o : plan_->sources(step)) {
      if (!o.is_link()) continue;
      program_.receives.push_back({nullptr, nullptr, o.rank, o.channel});
      if (group_ == nullptr) continue;
      const ReceiveEnd end = group_->links().receiving(o.rank, o.channel);
      program_.receives.back().link = end.link;
      program_.receives.back().doorbell = end.doorbell;
    }
    const std::size_t first_send = program_.sends.size();
    for (const Operand& o : plan_->destinations(step)) {
      if (!o.is_link()) continue;
      program_.sends.push_back({nullptr, nullptr, o.rank, o.channel});
      if (group_ == nullptr) continue;
      const SendEnd end = group_->links().sending(o.rank, o.channel);
      program_.sends.back().link = end.link;
      program_.sends.back().doorbell = end.doorbell;
    }
    const std::size_t first_move = program_.moves.size();
    out_ = formats(sends_wide(*plan_, step));
    in_ = formats(takes_wide(step));
    message_out_ = message_in_ = 0;
    for (std::uint32_t i = 0; i < step.count; ++i) chunk(step, i, first_move);
    a.receives = std::span(program_.receives).subspan(first_receive);
    a.sends = std::span(program_.sends).subspan(first_send);
    a.moves = std::span(program_.moves).subspan(first_move);
    // What moves within memory alone may be of any size.
    if (a.receives.empty() && a.sends.empty()) return a;
    if (std::max(message_out_, message_in_) > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorCode::internal, "a message of a plan has more than 4 GiB");
    }
    a.bytes_out = static_cast<std::uint32_t>(message_out_);
    a.bytes_in = static_cast<std::uint32_t>(message_in_);
    return a;
  }

  /// Adds chunk `i` of `step`: to the last of its moves (they begin at `first_move`), where it
  /// continues that one in every operand.
  void chunk(const Step& step, std::uint32_t i, std::size_t first_move) {
    const Extent e = extent(step, i);
    if (e.count == 0) return;
    const std::size_t unit = shape_.message_unit;
    for (std::size_t* const message : {&message_out_, &message_in_}) {
      if (unit > 1) *message = (*message + unit - 1) / unit * unit;
    }
    const std::size_t first = program_.operands.size();
    std::int32_t link = 0;
    Move m{nullptr, step.destinations, step.sources, e.count};
    for (const int turn : {0, 1, 2}) {  // those that are not plain, plain links, plain memory
      for (const Operand& o : plan_->destinations(step)) {
        const bool is_plain = format_of(o, out_) == Format::plain;
        if ((is_plain ? o.is_link() ? 1 : 2 : 0) != turn) continue;
        add_operand(o, i, e, out_, message_out_, CompiledOperand::send, link);
        m.not_plain += is_plain ? 0 : 1;
      }
    }
    link = 0;
    for (const Operand& o : plan_->sources(step)) {
      add_operand(o, i, e, in_, message_in_, CompiledOperand::receive, link);
    }
    message_out_ += bytes_of(e.count, out_.link);
    message_in_ += bytes_of(e.count, in_.link);
    const std::span added = std::span(program_.operands).subspan(first);
    if (program_.moves.size() > first_move) {
      Move& last = program_.moves.back();
      const auto follows = [&](const CompiledOperand& p, const CompiledOperand& q) {
        return p.offset == q.offset + bytes_of(last.elements, q.format);
      };
      // Nothing follows in a block that is compressed.
      const bool whole = plan_->header.format != Format::compressed ||
                         last.elements % compressed_block(shape_.type) == 0;
      if (whole && std::equal(added.begin(), added.end(), last.operands, follows)) {
        last.elements += e.count;
        program_.operands.resize(first);
        return;
      }
    }
    m.operands = added.data();
    for (const CompiledOperand& p : added) {
      m.remote = m.remote || p.where >= CompiledOperand::peer_in;
      m.scaled = m.scaled || p.scaled;
      if (p.format != Format::plain) m.format = p.format;
    }
    program_.moves.push_back(m);
  }

  Extent extent(const Step& step, std::uint32_t i) const {
    const BlockTable& table = step.shape_space == Space::in ? shape_.in : shape_.out;
    const std::uint32_t chunk = step.shape_chunk + i;
    Extent e = chunk_extent(tiling_, tile_, table.elements(chunk / pieces()), element_, pieces(),
                            chunk % pieces());
    // As if in tile 0; an empty extent may lie before the tile.
    e.begin -= std::min(e.begin, tile_ * tiling_.tile);
    return e;
  }

  /// How the links of one side of a step, and this rank's tmp, hold elements of the type.
  struct Formats {
    Format link = Format::plain, tmp = Format::plain;
  };
  Formats formats(bool holds_sums) const {
    const Format f = plan_->header.format;
    if (f != Format::wide) return {f, f};
    if (!is_widened(shape_.type)) return {};
    return {holds_sums ? f : Format::plain, f};
  }
  static Format format_of(const Operand& o, const Formats& formats) {
    if (o.is_link()) return formats.link;
    return o.space == Space::tmp && !o.is_remote() ? formats.tmp : Format::plain;
  }

  void add_operand(const Operand& o, std::uint32_t i, const Extent& e, const Formats& formats,
                   std::size_t message, CompiledOperand::Where link_kind, std::int32_t& link) {
    using enum CompiledOperand::Where;
    CompiledOperand p;
    p.format = format_of(o, formats);
    if (o.is_link()) {
      p.where = link_kind;
      p.rank = link++;
      p.offset = message;
    } else {
      const std::uint32_t chunk = o.chunk + i;
      const std::uint32_t block = chunk / pieces();
      p.rank = o.rank;
      if (o.space == Space::tmp) {
        p.where = o.is_remote() ? peer_tmp : tmp;
        p.offset = chunk * (tiling_.tile / pieces()) * tmp_element(*plan_, shape_.type);
      } else {
        const bool input = o.space == Space::in;
        const BlockTable& table = input ? shape_.in : shape_.out;
        p.where = o.is_remote() ? (input ? peer_in : peer_out)
                                : (input ? CompiledOperand::in : CompiledOperand::out);
        // Another rank's blocks lie as ours of the same collective do; a single block lies at 0.
        // Of all_to_all_v a rank tells each other one where that one's block lies.
        const bool told = plan_->header.collective == Collective::all_to_all_v;
        p.offset = ((told || block == 0 ? 0 : table.offset(block)) + e.begin) * element_;
        p.scaled = input && is_reduction(plan_->header.collective);
        if (!o.is_remote()) p.offset = (table.offset(block) + e.begin) * element_;
      }
    }
    program_.operands.push_back(p);
  }

  std::uint32_t pieces() const { return plan_->header.pieces; }
  std::size_t bytes_of(std::size_t elements, Format format) const {
    if (format == Format::compressed) return compressed_bytes(shape_.type, elements);
    if (format == Format::wide) return elements * size_of(accumulation_type(shape_.type));
    return elements * element_;
  }

  const ProgramShape& shape_;
  const RankPlan* plan_ = nullptr;  // of the lane at hand
  Tiling tiling_;
  std::size_t tile_ = 0;
  RankGroup* group_;
  std::size_t element_;
  Formats out_, in_;                              // of the step at hand: destinations, sources
  std::size_t message_out_ = 0, message_in_ = 0;  // bytes of the messages so far
  std::size_t actions_ = 0, links_ = 0, moves_ = 0, operands_ = 0;
  TileProgram program_;
};

}  // namespace

std::size_t tmp_bytes(const RankPlan& plan, const Tiling& tiling, DataType type) {
  return tiling.tile / plan.header.pieces * tmp_element(plan, type) * plan.tmp_chunks;
}

std::vector<std::size_t> packed_offsets(std::span<const std::size_t> counts) {
  std::vector<std::size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  return offsets;
}

TileProgram compile(const RankPlan& plan, const ProgramShape& shape, std::size_t tile,
                    RankGroup* group, std::optional<std::size_t> only) {
  return Compiler(shape, group).run(plan, tile, only);
}

Programs compile(const RankPlan& plan, const ProgramShape& shape, RankGroup& group) {
  Programs p;
  const std::size_t tiles = shape.tiling.tiles;
  p.last = compile(plan, shape, tiles - 1, &group);
  if (tiles > 1) p.whole = compile(plan, shape, 0, &group);
  return p;
}

Programs compile(const ProgramShape& shape, std::vector<LaneProgram> by_lane, RankGroup& group) {
  Programs p;
  p.last = Compiler(shape, &group).run(by_lane, true);
  if (std::ranges::any_of(by_lane, [](const LaneProgram& l) { return l.tiling.tiles > 1; })) {
    p.whole = Compiler(shape, &group).run(by_lane, false);
  }
  p.by_lane = std::move(by_lane);
  return p;
}

std::size_t block_of(const RankPlan& plan, const ProgramShape& shape, std::size_t lane) {
  std::size_t most = 0;
  for (const Step& step : plan.lanes[lane]) {
    const BlockTable& table = step.shape_space == Space::in ? shape.in : shape.out;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      most = std::max(most, table.elements((step.shape_chunk + i) / plan.header.pieces));
    }
  }
  return most;
}

std::size_t tiles_of(const RankPlan& plan, const ProgramShape& shape, std::size_t lane) {
  const std::size_t most = block_of(plan, shape, lane);
  // An empty block still takes part once, so that both ends see it.
  return std::max<std::size_t>(1, (most + shape.tiling.tile - 1) / shape.tiling.tile);
}

}  // namespace tutti
