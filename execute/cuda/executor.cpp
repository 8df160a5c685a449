#include "execute/cuda/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "execute/cuda/element.h"
#include "execute/cuda/memory.h"

namespace tutti::device {
namespace {

// A copy of so much takes 2 us, as long as the message is under way otherwise. Not measured.
constexpr std::uint32_t kHostSlotBytes = 32U << 10;

/// The links that a thread of the host carries on: messages with the header last, on channels for
/// data.
SegmentShape carried_by_host(SegmentShape shape) {
  shape.ll_bytes = shape.ll128_bytes = 0;
  shape.signal_channels = 0;
  shape.simple_bytes = std::min(shape.simple_bytes, kHostSlotBytes);
  return shape;
}

bool scales(ReduceKind kind) {
  return kind == ReduceKind::avg || kind == ReduceKind::pre_multiplied_sum;
}
bool is_aligned(const std::byte* buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer) % sizeof(std::uint64_t) == 0;
}

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

std::string unfit(const PlanHeader& plan, const PlanNeeds& needs, const SegmentShape& shape) {
  const std::size_t chunks = std::min(host_slot_bytes(shape), std::size_t{shape.simple_bytes}) / 64;
  if (plan.collective == Collective::all_to_all_v && needs.path.windows) {
    return "it addresses blocks of other ranks whose sizes these alone know";
  }
  if (plan.format == Format::wide) {
    return "its partial sums travel as float32 where they are of 16- or 8-bit floats (a wide plan)";
  }
  if (plan.lanes > kMostBlocks) {
    return fmt::format("its {} lanes are more than the {} thread blocks that a rank has",
                       plan.lanes, kMostBlocks);
  }
  if (plan.slots > shape.slots) {
    return fmt::format("it needs links of {} slots, but they have {}", plan.slots, shape.slots);
  }
  if (needs.channels > shape.channels) {
    return fmt::format("it has {} links from a rank to another, more than the {} there are",
                       needs.channels, shape.channels);
  }
  if (needs.path.link_data && plan.widest > chunks) {
    return fmt::format("its messages of {} chunks are more than the {} that a slot surely holds",
                       plan.widest, chunks);
  }
  if (needs.lane_links > kMostEnds) {
    return fmt::format("it has a lane with {} links, more than the {} that a thread block keeps",
                       needs.lane_links, kMostEnds);
  }
  if (needs.operands > kMostOperands) {
    return fmt::format("it has a step with {} operands, more than the {} that a thread block keeps",
                       needs.operands, kMostOperands);
  }
  return {};
}

std::size_t host_slot_bytes(const SegmentShape& shape) {
  return carried_by_host(shape).simple_bytes;
}

Executor::Executor(Device& device, int rank, const SegmentShape& shape, int ranks_on_device,
                   std::byte* host_segment)
    : device_(device),
      rank_(static_cast<std::uint32_t>(rank)),
      shape_(shape),
      on_host_(host_segment != nullptr),
      cut_(on_host_ ? carried_by_host(shape) : shape),
      most_blocks_(std::min(kMostBlocks,
                            device.most_blocks() / static_cast<std::uint32_t>(ranks_on_device))),
      whole_lines_(shape.ranks, true),
      plans_(device) {
  if (shape.slots > kMostSlots || !std::has_single_bit(shape.slots)) {
    throw Error(
        ErrorCode::internal,
        fmt::format("{} slots; kernels want a power of two, {} at most", shape.slots, kMostSlots),
        rank);
  }
  if (most_blocks_ == 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} ranks share a device that runs {} thread blocks side by side: too "
                            "many ranks",
                            ranks_on_device, device.most_blocks()),
                rank);
  }
  segment_ = on_host_ ? host_segment : device_.allocate(shape.bytes());
  control_ = device_.allocate_control();
  segments_ = device_.allocate(shape.ranks * sizeof(std::byte*));
  if (!on_host_) return;
  peers_.resize(shape.ranks);
  data_ = device_.allocate(shape.data_row(shape.ranks, true) * sizeof(std::byte*));
}

Executor::~Executor() {
  for (std::byte* memory : tmps_) device_.deallocate(memory);
  if (data_ != nullptr) device_.deallocate(data_);
  if (segments_ != nullptr) device_.deallocate(segments_);
  if (control_ != nullptr) device_.deallocate_control(control_);
  if (!on_host_) device_.deallocate(segment_);
}

void Executor::connect(int peer, std::byte* segment, bool whole_lines) {
  const auto p = static_cast<std::size_t>(peer);
  whole_lines_[p] = whole_lines;
  device_.upload(segments_ + p * sizeof segment, bytes_of(segment));
  if (!on_host_) return;
  peers_[p] = segment;
  put_data(peer, {}, {});
}

void Executor::put_data(int peer, std::span<std::byte* const> out, std::span<std::byte* const> in) {
  const auto p = static_cast<std::uint32_t>(peer);
  const std::uint32_t channels = shape_.data_channels();
  std::vector<std::byte*> row(std::size_t{2} * channels);
  for (std::uint32_t c = 0; c < channels; ++c) {
    // As if connections were there.
    row[c] = out.empty() ? peers_[p] + shape_.connection(rank_, c) : out[c] - shape_.simple(0);
    row[channels + c] = in.empty() ? segment_ + shape_.connection(p, c) : in[c] - shape_.simple(0);
  }
  device_.upload(data_ + shape_.data_row(p, true) * sizeof row[0], std::as_bytes(std::span(row)));
}

void Executor::limit_blocks(std::uint32_t most) { most_blocks_ = std::min(most_blocks_, most); }

void Executor::add_window(int peer, std::uint32_t id, std::byte* base, std::size_t bytes) {
  if (id == 0 || id >= kMostWindows) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("window {} of rank {}: a rank can have {} windows", id, peer, kMostWindows - 1),
        peer);
  }
  const MappedWindow w{reinterpret_cast<std::uint64_t>(base), bytes};
  const std::size_t index = static_cast<std::size_t>(peer) * kMostWindows + id;
  device_.upload(segment_ + shape_.windows() + index * sizeof w, bytes_of(w));
}

Choice Executor::choose_for(const DeviceBinding& b, std::uint32_t plan_channels) const {
  Traits t;
  t.bytes = b.largest;
  t.block = b.block;
  t.element_bytes = size_of(b.type);
  t.windows = b.windows;
  t.link_data = b.link_data;
  t.tmp_chunks = b.tmp_chunks;
  t.from_inputs = b.from_inputs;
  t.tiles_by_lane = b.tiles_by_lane;
  t.whole_lines = std::ranges::find(whole_lines_, false) == whole_lines_.end();
  // As what kernels do (element.h): the divisor is the number of ranks. In the canonical order the
  // sum is divided, and a product is rounded.
  const bool reduces = is_reduction(b.plan->header.collective);
  const bool canonical = reduces && b.canonical && is_float(b.type);
  const bool divides = reduces && b.op.kind == ReduceKind::avg;
  const bool by_factor = is_float(b.type) && std::has_single_bit(shape_.ranks);
  t.sums = is_sum(b.op.kind) &&
           (canonical ? shape_.ranks <= 3 && b.op.kind == ReduceKind::sum : !divides || by_factor);
  t.plan_channels = plan_channels;
  t.allowed = b.protocols;
  const PlanHeader& header = b.plan->header;
  t.most_blocks = b.most_blocks == 0
                      ? most_blocks_
                      : std::min(most_blocks_, std::max(b.most_blocks, header.lanes));
  if (on_host_) {
    const std::size_t blocks = b.largest / cut_.simple_bytes / header.lanes + 1;
    const auto copies = static_cast<std::uint32_t>(std::min<std::size_t>(blocks, kMostBlocks));
    return choose(header, t, cut_, Protocol::simple, b.copies != 0 ? b.copies : copies);
  }
  if (!b.protocol && b.copies == 0) return choose(header, t, shape_);
  const Choice own = choose(header, t, shape_);
  return choose(header, t, shape_, b.protocol.value_or(own.protocol),
                b.copies != 0 ? b.copies : own.copies);
}

RankLaunch Executor::prepare(const DeviceBinding& b, Stream stream) {
  // Of our plans, lanes have a channel each, and some links between a rank's own lanes have others.
  const std::uint32_t plan_channels = b.plan_channels != 0        ? b.plan_channels
                                      : b.plan->header.lanes == 1 ? 1U
                                                                  : kOwnChannels;
  const Choice choice = choose_for(b, plan_channels);
  PlanCache::Key key{reinterpret_cast<std::uint64_t>(b.plan),
                     static_cast<std::uint64_t>(b.type),
                     static_cast<std::uint64_t>(choice.protocol),
                     choice.copies,
                     choice.tiling.tile,
                     choice.tiling.tiles,
                     b.in.count,
                     b.out.count,
                     scales(b.op.kind) ? 1U : 0U};
  for (const auto& list : {b.in.counts, b.in.offsets, b.out.counts, b.out.offsets}) {
    key.push_back(list.size());
    key.insert(key.end(), list.begin(), list.end());
  }
  const PlanCache::Plan& plan = plans_.get(
      std::move(key),
      [&] {
        return build_plan_block({b, choice, scales(b.op.kind), plan_channels});
      },
      stream);
  RankLaunch r = launch_of(plan);
  r.in = b.in.base;
  r.out = b.out.base;
  r.tmp = plan.header.tmp_stride > 0 ? tmp(plan.header.tmp_stride * plan.header.copies) : nullptr;
  const auto tell = [&](int which, const std::byte* buffer, const WindowOffset& in_window) {
    r.addresses.window[which] = in_window.window;
    r.addresses.at[which] =
        in_window.window != 0 ? in_window.offset : reinterpret_cast<std::uint64_t>(buffer);
  };
  tell(0, b.in.base, b.in_window);
  tell(1, b.out.base, b.out_window);
  tell(2, r.tmp,
       b.tmp_window && r.tmp != nullptr
           ? b.tmp_window(r.tmp, plan.header.tmp_stride * plan.header.copies)
           : WindowOffset{});
  r.addresses.scalar = r.scalar = b.op.scalar;
  r.signature = b.signature;
  r.kind = b.op.kind;
  r.is_signed = is_signed_integer(b.type);
  r.is_plain = b.op.kind == ReduceKind::sum && is_aligned(r.in) && is_aligned(r.out);
  const bool is_short = plan.header.bytes <= kPlanInShared;
  r.kernel = b.canonical                                   ? KernelKind::canonical
             : is_short && choice.protocol == Protocol::ll ? KernelKind::words
             : is_short && b.windows && !b.link_data       ? KernelKind::windows
                                                           : KernelKind::any;
  return r;
}

RankLaunch Executor::prepare(std::span<const DeviceMessage> messages, Stream stream,
                             std::uint32_t shares) {
  // Offsets from the lowest address, so that the parts of one buffer give the same block wherever
  // it lies.
  std::byte* base[2] = {nullptr, nullptr};
  for (const DeviceMessage& m : messages) {
    std::byte*& lowest = base[m.sends ? 1 : 0];
    if (lowest == nullptr || std::less<>{}(m.buffer, lowest)) lowest = m.buffer;
  }
  std::vector<PlacedMessage> placed;
  PlanCache::Key key{0, shares};  // 0: where collectives have the address of their plan
  for (const DeviceMessage& m : messages) {
    const auto offset = reinterpret_cast<std::uint64_t>(m.buffer) -
                        reinterpret_cast<std::uint64_t>(base[m.sends ? 1 : 0]);
    placed.push_back({m.peer, m.sends, whole_lines_[m.peer], m.tag, offset, m.bytes});
    key.insert(key.end(), {m.peer, m.sends ? 1U : 0U, m.tag, offset, m.bytes});
  }
  const PlanCache::Plan& block = plans_.get(
      std::move(key), [&] { return build_message_block(placed, cut_, most_blocks_ / shares); },
      stream);
  RankLaunch r = launch_of(block);
  r.in = base[1];
  r.out = base[0];
  r.is_plain = is_aligned(r.in) && is_aligned(r.out);
  return r;
}

RankLaunch Executor::launch_of(const PlanCache::Plan& plan) const {
  RankLaunch r{};
  r.plan = plan.memory;
  r.plan_bytes = plan.header.bytes;
  r.segment = segment_;
  r.segments = reinterpret_cast<std::byte* const*>(segments_);
  r.data = reinterpret_cast<std::byte* const*>(data_);
  r.control = control_;
  r.rank = rank_;
  r.blocks = plan.header.lanes * plan.header.copies;
  return r;
}

std::byte* Executor::tmp(std::size_t bytes) {
  if (bytes > tmp_bytes_) {
    const std::size_t more = std::bit_ceil(bytes);
    tmps_.push_back(device_.allocate(more));
    tmp_bytes_ = more;
  }
  return tmps_.back();
}

void Executor::set_limits(const Limits& limits) {
  store_relaxed(&control_->timeout_ns, static_cast<std::uint64_t>(limits.timeout.count()));
  store_relaxed(&control_->late_ns, static_cast<std::uint64_t>(limits.late.count()));
}

Executor::Limits Executor::limits() const {
  return {std::chrono::nanoseconds(load_relaxed(&control_->timeout_ns)),
          std::chrono::nanoseconds(load_relaxed(&control_->late_ns))};
}

void Executor::abort() { store_relaxed(&control_->abort, 1); }

void enqueue(Device& device, std::span<const RankLaunch> ranks, const SegmentShape& shape,
             DataType type, Stream stream) {
  if (ranks.empty() || ranks.size() > kMostRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} ranks in one launch; 1 to {} fit", ranks.size(), kMostRanks));
  }
  Launch launch{};
  launch.shape = SegmentLayout(shape);
  launch.ranks = static_cast<std::uint32_t>(ranks.size());
  std::uint32_t blocks = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    launch.rank[r] = ranks[r];
    launch.rank[r].first_block = blocks;
    blocks += ranks[r].blocks;
  }
  const bool even = std::ranges::all_of(
      ranks, [&](const RankLaunch& r) { return r.blocks == ranks.front().blocks; });
  const std::uint32_t each = ranks.front().blocks;
  if (even && each > 0) launch.ranks_per_block = ((1U << 24) + each - 1) / each;
  device.launch(launch, type, blocks, stream);
}

}  // namespace tutti::device
