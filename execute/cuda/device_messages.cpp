#include "execute/cuda/device_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "execute/cuda/block_writer.h"
#include "execute/cuda/protocol.h"

namespace tutti::device {
namespace {

/// What goes one way between two ranks, in order.
struct Series {
  std::uint32_t peer = 0;
  bool sends = false;
  std::vector<const PlacedMessage*> messages;
  std::uint32_t channels = 0;  // that its messages use
};

class Builder {
 public:
  Builder(std::span<const PlacedMessage> messages, const SegmentShape& shape) : shape_(shape) {
    std::map<std::pair<std::uint32_t, bool>, std::size_t> index;
    for (const PlacedMessage& m : messages) {
      const auto [at, is_new] = index.try_emplace({m.peer, m.sends}, series_.size());
      if (is_new) series_.push_back({m.peer, m.sends, {}, 0});
      Series& s = series_[at->second];
      s.messages.push_back(&m);
      s.channels = std::max(s.channels, std::min(shape.message_channels, cut(m).tiles));
    }
  }

  std::vector<std::byte> run(std::uint32_t most_blocks) {
    if (shape_.message_channels == 0 || series_.size() > most_blocks) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("a group sends to and receives from {} ranks in all, each by thread "
                              "blocks that must run side by side, but this rank has {} of them: "
                              "use smaller groups, or fewer ranks on a GPU",
                              series_.size(), shape_.message_channels == 0 ? 0 : most_blocks));
    }
    const auto each = static_cast<std::uint32_t>(most_blocks / series_.size());
    for (const Series& s : series_) {
      const std::uint32_t lanes = std::min(each, s.channels);
      for (std::uint32_t first = 0; first < lanes; ++first) add_lane(s, first, lanes);
    }
    PlanBlock h{};
    h.lanes = static_cast<std::uint32_t>(parts_.lanes.size());
    h.copies = 1;
    h.messages = 1;
    h.divisor = 1;
    h.plan_channels = 1;
    return write_block(h, parts_);
  }

 private:
  MessageCut cut(const PlacedMessage& m) const {
    return cut_message(m.bytes, m.whole_lines, shape_);
  }

  /// The channels first, first + step, ... of a series. Both ends take what they serve in one
  /// order, by message, then whole tiles before the last one, then by channel: so whichever share a
  /// lane, the first that is not done can go on.
  void add_lane(const Series& s, std::uint32_t first, std::uint32_t step) {
    DeviceLane lane{};
    lane.actions = 1;
    lane.first_range = size(parts_.ranges);
    lane.first_end = size(parts_.ends);
    for (std::uint32_t c = first; c < s.channels; c += step) {
      parts_.ends.push_back({s.peer, shape_.channels + c, 1, s.sends ? 1U : 0U, 0});
    }
    for (const PlacedMessage* m : s.messages) add_message(*m, lane, first, step);
    lane.ranges = size(parts_.ranges) - lane.first_range;
    lane.ends = size(parts_.ends) - lane.first_end;
    parts_.lanes.push_back(lane);
  }

  void add_message(const PlacedMessage& m, const DeviceLane& lane, std::uint32_t first,
                   std::uint32_t step) {
    const MessageCut c = cut(m);
    const std::uint32_t channels = shape_.message_channels;
    const auto whole = static_cast<std::uint32_t>(m.bytes / c.tile);
    const std::uint32_t ends = size(parts_.ends) - lane.first_end;
    for (std::uint32_t e = 0; e < ends; ++e) {
      const std::uint32_t channel = first + e * step;
      if (channel >= whole) break;
      const std::uint32_t tiles = (whole - channel + channels - 1) / channels;
      add_range(m, c, lane.first_end, e, channel * c.tile, c.tile, tiles);
    }
    if (whole == c.tiles) return;
    const std::uint32_t channel = whole % channels;
    if (channel < first || (channel - first) % step != 0) return;
    const std::uint64_t at = whole * c.tile;
    add_range(m, c, lane.first_end, (channel - first) / step, at, m.bytes - at, 1);
  }

  /// `tiles` tiles of `bytes` each, the first of them at byte `at` of the message.
  void add_range(const PlacedMessage& m, const MessageCut& c, std::uint32_t first_end,
                 std::uint32_t end, std::uint64_t at, std::size_t bytes, std::uint32_t tiles) {
    // Tiles fit slots, so this is far below 4 GiB.
    const auto stride = static_cast<std::uint32_t>(shape_.message_channels * c.tile);
    parts_.ranges.push_back({0, tiles, size(parts_.actions), stride});
    DeviceAction a{};
    a.check = m.tag;
    a.protocol = c.protocol;
    a.first_use = size(parts_.uses);
    (m.sends ? a.sends : a.receives) = 1;
    if (m.sends) a.bytes_out = static_cast<std::uint32_t>(bytes);
    a.first_move = size(parts_.moves);
    a.moves = 1;
    a.steps = 1;
    parts_.actions.push_back(a);
    std::uint32_t& counted = parts_.ends[first_end + end].counted;
    parts_.uses.push_back({static_cast<std::uint16_t>(end), 0, counted});
    counted += tiles;
    const bool plain = bytes % 8 == 0 && (m.offset + at) % 8 == 0 && stride % 8 == 0;
    parts_.moves.push_back(
        {static_cast<std::uint32_t>(bytes), size(parts_.operands), 1, 1, 2, 0, plain ? 1U : 0U});
    using enum CompiledOperand::Where;
    const std::uint64_t offset = m.offset + at;
    if (m.sends) {
      parts_.operands.push_back({0, 0, send, 0, 0});
      parts_.operands.push_back({offset, 0, in, 0, 0});
    } else {
      parts_.operands.push_back({offset, 0, out, 0, 0});
      parts_.operands.push_back({0, 0, receive, 0, 0});
    }
  }

  template <class T>
  static std::uint32_t size(const std::vector<T>& list) {
    return static_cast<std::uint32_t>(list.size());
  }

  const SegmentShape& shape_;
  std::vector<Series> series_;
  BlockParts parts_;
};

}  // namespace

std::vector<std::byte> build_message_block(std::span<const PlacedMessage> messages,
                                           const SegmentShape& shape, std::uint32_t most_blocks) {
  return Builder(messages, shape).run(most_blocks);
}

}  // namespace tutti::device
