#include "collectives/execute/cuda/device_plan.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <set>
#include <type_traits>

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
    h.tile_stride = tiling.tile * element;
    // Copies of tmp begin on lines of their own.
    const std::size_t tmp = tiling.tile / plan_.header.pieces * element * plan_.tmp_chunks;
    h.tmp_stride = (tmp + kLine - 1) / kLine * kLine;
    h.lanes = static_cast<std::uint32_t>(lanes_.size());
    h.copies = call_.choice.copies;
    h.protocol = call_.choice.protocol;
    h.windows = call_.windows ? 1 : 0;
    h.reduction = is_reduction(plan_.header.collective) ? 1 : 0;
    h.divisor = static_cast<std::uint32_t>(plan_.header.ranks);
    h.plan_channels = call_.plan_channels;
    block_.resize(sizeof h);
    h.lane = append(lanes_);
    h.range = append(ranges_);
    h.action = append(actions_);
    h.use = append(uses_);
    h.end = append(ends_);
    h.move = append(moves_);
    h.place = append(places_);
    h.bytes = static_cast<std::uint32_t>(block_.size());
    std::memcpy(block_.data(), &h, sizeof h);
    return std::move(block_);
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
    lane.first_range = u32(ranges_.size());
    lane.first_end = u32(ends_.size());
    if (!plan_.lanes[l].empty()) {
      lane.actions = u32(plan_.lanes[l].size());
      lane.tiles =
          u32(call_.tiles_by_lane ? tiles_of(plan_, shape(), l) : call_.choice.tiling.tiles);
      for (const std::size_t tile : changes(l)) {
        if (tile >= lane.tiles) break;
        add_range(l, tile, lane.first_end);
      }
    }
    lane.ranges = u32(ranges_.size()) - lane.first_range;
    lane.ends = u32(ends_.size()) - lane.first_end;
    if (lane.ends > kMostEnds) {
      refuse(fmt::format("lane {} has {} links, more than the {} that a thread block keeps", l,
                         lane.ends, kMostEnds));
    }
    lanes_.push_back(lane);
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
    ranges_.push_back({u32(tile), u32(actions_.size())});
    // Every tile sends the same messages, so each range counts them anew.
    for (std::size_t e = first_end; e < ends_.size(); ++e) ends_[e].per_tile = 0;
    for (const Action& a : program.lanes[lane]) {
      DeviceAction d{};
      d.bytes = a.bytes;
      d.signals = a.signals ? 1 : 0;
      d.completes = a.completes ? 1 : 0;
      d.receives = u32(a.receives.size());
      d.first_receive = u32(uses_.size());
      for (const ReceiveLink& link : a.receives) {
        uses_.push_back(use(link.rank, link.channel, false, first_end));
      }
      d.sends = u32(a.sends.size());
      d.first_send = u32(uses_.size());
      for (const SendLink& link : a.sends) {
        uses_.push_back(use(link.rank, link.channel, true, first_end));
      }
      d.moves = u32(a.moves.size());
      d.first_move = u32(moves_.size());
      for (const Move& m : a.moves) add_move(m);
      actions_.push_back(d);
    }
  }

  void add_move(const Move& m) {
    if (m.destinations + m.sources > static_cast<int>(kMostOperands)) {
      refuse(fmt::format("a step has {} operands, more than the {} that a thread block keeps",
                         m.destinations + m.sources, kMostOperands));
    }
    moves_.push_back(
        {m.elements * size_of(call_.type), u32(places_.size()), m.destinations, m.sources});
    for (std::uint32_t i = 0; i < std::uint32_t{m.destinations} + m.sources; ++i) {
      const Place& p = m.places[i];
      places_.push_back({p.offset, p.rank, p.where, static_cast<std::uint8_t>(p.scaled), 0});
    }
  }

  Use use(std::int32_t rank, std::uint8_t channel, bool sends, std::uint32_t first_end) {
    if (channel >= call_.plan_channels) {
      refuse(fmt::format("it uses channel {}, but was bound for {}", channel, call_.plan_channels));
    }
    const auto peer = static_cast<std::uint32_t>(rank);
    std::size_t e = first_end;
    while (e < ends_.size() && (ends_[e].peer != peer || ends_[e].channel != channel ||
                                ends_[e].sends != (sends ? 1U : 0U))) {
      ++e;
    }
    if (e == ends_.size()) ends_.push_back({peer, channel, 0, sends ? 1U : 0U});
    return {u32(e) - first_end, ends_[e].per_tile++};
  }

  std::uint32_t u32(std::size_t n) const {
    if (n > std::numeric_limits<std::uint32_t>::max()) refuse("it is too large for one kernel");
    return static_cast<std::uint32_t>(n);
  }

  template <class T>
  std::uint32_t append(const std::vector<T>& array) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    const std::size_t at = (block_.size() + 15) / 16 * 16;
    block_.resize(at + array.size() * sizeof(T));
    if (!array.empty()) std::memcpy(block_.data() + at, array.data(), array.size() * sizeof(T));
    u32(block_.size());
    return u32(at);
  }

  const DeviceCall& call_;
  const RankPlan& plan_;
  std::vector<DeviceLane> lanes_;
  std::vector<Range> ranges_;
  std::vector<DeviceAction> actions_;
  std::vector<Use> uses_;
  std::vector<End> ends_;
  std::vector<DeviceMove> moves_;
  std::vector<DevicePlace> places_;
  std::vector<std::byte> block_;
};

}  // namespace

std::vector<std::byte> build_plan_block(const DeviceCall& call) { return Builder(call).run(); }

}  // namespace tutti::device
