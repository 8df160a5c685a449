#include "comm/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "collectives/cut.h"
#include "core/compressed.h"
#include "core/host.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const Call& call, const std::string& why) {
  std::string what(name(call.collective));
  if (call.collective == Collective::send_recv) what = call.sends ? "send" : "recv";
  throw Error(ErrorCode::invalid_argument, what + ": " + why);
}

/// Bytes from `base` that a buffer occupies; throws when they cannot exist.
std::size_t extent_of(const Call& call, const char* which, std::uint32_t blocks,
                      std::span<const std::size_t> counts, std::span<const std::size_t> offsets) {
  const std::size_t most = static_cast<std::size_t>(PTRDIFF_MAX) / size_of(call.type);
  std::size_t end = 0;
  std::size_t packed = 0;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::size_t count = counts.empty() ? call.count : counts[b];
    const std::size_t begin = offsets.empty() ? packed : offsets[b];
    if (count > most || begin > most - count) {
      refuse(call,
             fmt::format("the {} buffer would be larger than the address space (block {} has {} "
                         "elements of {} bytes at element {})",
                         which, b, count, size_of(call.type), begin));
    }
    packed = begin + count;
    if (count > 0) end = std::max(end, begin + count);
  }
  return end * size_of(call.type);
}

void check_counts(const Call& call, const char* which, std::span<const std::size_t> counts,
                  std::span<const std::size_t> offsets, std::size_t expected) {
  if (counts.size() != expected) {
    refuse(call, fmt::format("{} counts has {} entries, but must have one for each of the {} ranks",
                             which, counts.size(), expected));
  }
  if (!offsets.empty() && offsets.size() != expected) {
    refuse(
        call,
        fmt::format("{} offsets has {} entries, but must have none or one for each of the {} ranks",
                    which, offsets.size(), expected));
  }
}

void check_compressed(const Call& call) {
  if (!is_compressible(call.collective)) {
    refuse(call, "Call::compressed is for all_reduce and reduce_scatter alone");
  }
  if (!is_compressible(call.type)) {
    refuse(call, fmt::format("{} has no compressed form (Call::compressed): float16, bfloat16 and "
                             "float32 have one",
                             name(call.type)));
  }
  if (!is_compressible(call.op.kind)) {
    refuse(call, fmt::format("{} is no operator for Call::compressed: sum, avg and "
                             "pre_multiplied_sum are",
                             name(call.op.kind)));
  }
}

/// Blocks that are written must not overlap each other.
void check_disjoint(const Call& call) {
  if (call.out_offsets.empty()) return;
  std::vector<std::pair<std::size_t, std::size_t>> blocks;
  for (std::size_t b = 0; b < call.out_counts.size(); ++b) {
    if (call.out_counts[b] > 0) blocks.emplace_back(call.out_offsets[b], call.out_counts[b]);
  }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i - 1].first + blocks[i - 1].second > blocks[i].first) {
      refuse(call, fmt::format("blocks of the output overlap at element {}", blocks[i].first));
    }
  }
}

/// The buffers of a call as tables of blocks; `tables` owns the numbers that they point to.
void bind_buffers(const Call& call, int rank, BlockTable& in, BlockTable& out, Tables& tables) {
  in.base = static_cast<std::byte*>(const_cast<void*>(call.in));
  out.base = static_cast<std::byte*>(call.out);
  in.count = out.count = call.count;
  if (!is_v(call.collective)) return;
  const auto self = static_cast<std::size_t>(rank);
  const auto assign = [](std::vector<std::size_t>& to, std::span<const std::size_t> from) {
    to.assign(from.begin(), from.end());  // keeps the memory that is there
  };
  assign(tables.in_counts, call.in_counts);
  assign(tables.out_counts, call.out_counts);
  if (call.collective == Collective::all_gather_v) tables.in_counts = {call.out_counts[self]};
  if (call.collective == Collective::reduce_scatter_v) tables.out_counts = {call.in_counts[self]};
  assign(tables.in_offsets, call.in_offsets);
  assign(tables.out_offsets, call.out_offsets);
  if (call.in_offsets.empty()) tables.in_offsets = packed_offsets(tables.in_counts);
  if (call.out_offsets.empty()) tables.out_offsets = packed_offsets(tables.out_counts);
  in.counts = tables.in_counts;
  in.offsets = tables.in_offsets;
  out.counts = tables.out_counts;
  out.offsets = tables.out_offsets;
}

}  // namespace

void bind_to_plan(BoundCall& b, const Call& call, int rank, const Geometry& geometry,
                  const ReadyPlan& ready, Tables& tables) {
  b.plan = &ready.plan;
  b.type = call.type;
  b.op = call.op;
  b.windows = ready.path.windows;
  b.tiles_by_lane = call.collective == Collective::all_to_all_v;
  b.canonical = geometry.invariant && is_reduction(call.collective);
  bind_buffers(call, rank, b.in, b.out, tables);
}

std::size_t largest_block(const BoundCall& b) {
  std::size_t block = b.in.count;
  for (const std::size_t c : b.in.counts) block = std::max(block, c);
  for (const std::size_t c : b.out.counts) block = std::max(block, c);
  return block;
}

BufferSizes buffer_sizes(const Call& call, int rank, int ranks) {
  std::uint32_t ins = in_blocks(call.collective, ranks, rank, call.root);
  std::uint32_t outs = out_blocks(call.collective, ranks, rank, call.root);
  if (call.collective == Collective::send_recv) (call.sends ? outs : ins) = 0;
  const std::size_t element = size_of(call.type);
  BufferSizes sizes;
  if (!is_v(call.collective)) {
    sizes.in = extent_of(call, "input", ins, {}, {});
    sizes.out = extent_of(call, "output", outs, {}, {});
    // On some rank a buffer has a block for everyone, unless no rank's has.
    const bool blocks = in_blocks(call.collective, 2, call.root, call.root) > 1 ||
                        out_blocks(call.collective, 2, call.root, call.root) > 1;
    if (blocks) extent_of(call, "largest", static_cast<std::uint32_t>(ranks), {}, {});
    sizes.largest = call.count * element * (blocks ? static_cast<std::size_t>(ranks) : 1);
    return sizes;
  }
  const auto self = static_cast<std::size_t>(rank);
  const bool gathers = call.collective == Collective::all_gather_v;
  const bool scatters = call.collective == Collective::reduce_scatter_v;
  sizes.in =
      extent_of(call, "input", ins, gathers ? call.out_counts.subspan(self, 1) : call.in_counts,
                call.in_offsets);
  sizes.out =
      extent_of(call, "output", outs, scatters ? call.in_counts.subspan(self, 1) : call.out_counts,
                call.out_offsets);
  if (gathers || scatters) {
    for (const std::size_t c : gathers ? call.out_counts : call.in_counts)
      sizes.largest += c * element;
  }
  return sizes;
}

bool moves_nothing(const Call& call, const BufferSizes& sizes) {
  return sizes.largest == 0 && call.collective != Collective::barrier &&
         call.collective != Collective::all_to_all_v;
}

void check_call(const Call& call, int rank, int ranks) {
  if (!is_valid(call.collective)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is no collective", static_cast<int>(call.collective)));
  }
  if (call.timeout.count() < 0) {
    refuse(call, fmt::format("a timeout of {} ns is negative; 0 means Options::timeout",
                             call.timeout.count()));
  }
  if (!is_valid(call.type)) {
    refuse(call, fmt::format("{} is no data type", static_cast<int>(call.type)));
  }
  if (call.collective == Collective::barrier && call.count != 0) {
    refuse(call, fmt::format("it has a count of {}, but moves nothing", call.count));
  }
  if (call.compressed) check_compressed(call);
  if (call.label > Signature::kReleaseMemory) {
    refuse(call, fmt::format("label {} is too large: the largest is {}", call.label,
                             Signature::kSplit - 1));
  }
  if (!is_valid(call.op.kind)) {
    refuse(call, fmt::format("{} is no reduction operator", static_cast<int>(call.op.kind)));
  }
  const bool scales =
      is_reduction(call.collective) && call.op.kind == ReduceKind::pre_multiplied_sum;
  if (scales && call.op.scalar_type != call.type) {
    const bool has_scalar = is_valid(call.op.scalar_type);
    refuse(call,
           fmt::format("pre_multiplied_sum {}; make the operator with "
                       "ReduceOp::pre_multiplied_sum(DataType::{}, factor)",
                       has_scalar ? fmt::format("has a factor of type {}, and the data are {}",
                                                name(call.op.scalar_type), name(call.type))
                                  : "has no factor",
                       name(call.type)));
  }
  if (is_rooted(call.collective) && (call.root < 0 || call.root >= ranks)) {
    refuse(call, fmt::format("root {} is out of range: the communicator has ranks 0 to {}",
                             call.root, ranks - 1));
  }
  const bool point_to_point = call.collective == Collective::send_recv;
  if (point_to_point && (call.peer < 0 || call.peer >= ranks)) {
    refuse(call, fmt::format("peer {} is out of range: the communicator has ranks 0 to {}",
                             call.peer, ranks - 1));
  }
  if (point_to_point && !call.sends && call.in != nullptr) {
    refuse(call, "a recv has no input; for a send, set Call::sends");
  }
  const auto n = static_cast<std::size_t>(ranks);
  if (call.collective == Collective::all_gather_v) {
    check_counts(call, "out", call.out_counts, call.out_offsets, n);
  } else if (call.collective == Collective::reduce_scatter_v) {
    check_counts(call, "in", call.in_counts, call.in_offsets, n);
  } else if (call.collective == Collective::all_to_all_v) {
    check_counts(call, "in", call.in_counts, call.in_offsets, n);
    check_counts(call, "out", call.out_counts, call.out_offsets, n);
  }
  check_addresses(call, buffer_sizes(call, rank, ranks), rank, ranks);
  check_disjoint(call);
}

void check_addresses(const Call& call, const BufferSizes& sizes, int rank, int ranks) {
  const std::size_t in_bytes = sizes.in;
  const std::size_t out_bytes = sizes.out;
  if (call.left_out != nullptr && !(call.compressed && call.collective == Collective::all_reduce)) {
    refuse(call, "Call::left_out is for compressed all_reduces alone: only they compress sums");
  }
  if (in_bytes > 0 && call.in == nullptr) {
    refuse(call,
           fmt::format("the input is null, but rank {} has {} bytes to read", rank, in_bytes));
  }
  if (out_bytes > 0 && call.out == nullptr) {
    refuse(call,
           fmt::format("the output is null, but rank {} has {} bytes to write", rank, out_bytes));
  }
  const auto in = reinterpret_cast<std::uintptr_t>(call.in);
  const auto out = reinterpret_cast<std::uintptr_t>(call.out);
  if (in_bytes == 0 || out_bytes == 0 || in >= out + out_bytes || out >= in + in_bytes) return;
  // They overlap: only the in-place form is allowed.
  Tables tables;
  BlockTable in_table, out_table;
  bind_buffers(call, rank, in_table, out_table, tables);
  const std::size_t element = size_of(call.type);
  for (std::uint32_t block = 0; block < in_blocks(call.collective, ranks, rank, call.root);
       ++block) {
    const auto to = in_place_block(call.collective, ranks, rank, call.root, block);
    if (to && in + in_table.offset(block) * element == out + out_table.offset(*to) * element)
      return;
  }
  refuse(call, has_in_place(call.collective)
                   ? "input and output overlap, but not as the in-place form does (the same "
                     "elements at the same "
                     "addresses)"
                   : "input and output overlap; this operation has no in-place form");
}

Signature signature_of(const Call& call) {
  Signature s;
  s.collective = call.collective;
  s.type = call.type;
  s.count = call.count;
  if (is_reduction(call.collective)) s.kind = call.op.kind;
  if (is_rooted(call.collective)) s.root = call.root;
  s.label = call.label;
  s.compressed = call.compressed;
  if (call.collective == Collective::all_gather_v ||
      call.collective == Collective::reduce_scatter_v) {
    // Everybody knows all counts, so they can be compared.
    const bool gathers = call.collective == Collective::all_gather_v;
    for (const std::size_t c : gathers ? call.out_counts : call.in_counts) {
      s.count += c;
      s.detail = mix(s.detail, c);
    }
  }
  return s;
}

namespace {

/// Blocks of all_to_all_v that are shorter go through links, in one hop instead of two.
constexpr std::size_t kLeastWindowBlock = std::size_t{8} << 10;

/// What each lane of all_to_all_v runs. In our plans a lane has one block. Both of its ends know
/// its size, and so choose alike.
template <class Cut>
std::vector<LaneProgram> lanes_of_uneven(const ReadyPlan& ready, const ProgramShape& shape,
                                         const Cut& cut_for) {
  const RankPlan& links = ready.path.windows ? ready.of_short_blocks->plan : ready.plan;
  const std::size_t element = size_of(shape.type);
  std::vector<LaneProgram> lanes(links.lanes.size());
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    const std::size_t block = block_of(links, shape, l);
    // The last lane has the rank's own block. What moves within memory alone needs no cut.
    const bool own = l + 1 == lanes.size();
    const bool window = ready.path.windows && !own && block * element >= kLeastWindowBlock;
    lanes[l].plan = window ? &ready.plan : &links;
    lanes[l].tiling =
        window || own ? Tiling::of(block, element, 1, PTRDIFF_MAX) : cut_for(block, DataPath{});
  }
  return lanes;
}

}  // namespace

Binding bind_call(const Call& call, RankGroup& group, const Geometry& geometry,
                  const ReadyPlan& ready, Tables& tables) {
  const int rank = group.rank();
  const int ranks = group.size();
  const PlanHeader& header = ready.plan.header;
  if (!links_suffice(header, geometry.shape)) {
    refuse(call, fmt::format(
                     "algorithm {} needs links of {} slots with {} bytes, but they have {} with {} "
                     "(TUTTI_SLOTS, TUTTI_SLOT_BYTES)",
                     header.algorithm, header.slots, least_slot(header),
                     geometry.shape.full_slots(), geometry.shape.slot_bytes));
  }
  Binding b;
  bind_to_plan(b, call, rank, geometry, ready, tables);
  b.buffers = ready.path.buffers;
  const std::size_t block = largest_block(b);
  const std::size_t element = size_of(call.type);
  const BufferSizes sizes = buffer_sizes(call, rank, ranks);
  const auto cut_for = [&](std::size_t largest_block, const DataPath& path) {
    return cut(header, path, largest_block, sizes.largest, call.type, geometry.shape,
               geometry.tile_bytes, least_piece(geometry, ranks));
  };
  // Where only the two ends know a block's size, tiles are as large as can be.
  b.tiling = cut_for(b.tiles_by_lane ? 0 : block, ready.path);
  b.pulled = ready.pulled;
  if (b.pulled) b.tiling = Tiling::of(block, element, 1, PTRDIFF_MAX);
  // How this rank writes is its own affair: where it does not know the others' sizes, they are
  // taken to be like its own.
  const std::size_t bytes = b.tiles_by_lane ? std::max(sizes.in, sizes.out) : sizes.largest;
  const int caches = std::max(geometry.domains.count() / geometry.hosts.count(), 1);
  const int most = geometry.hosts.most(ranks);
  // Slots are counted only where they matter: they count for no more than the buffers. Nor is the
  // cache asked for where half of any would do.
  constexpr std::size_t kHalfOfAny = std::size_t{256} << 10;
  const std::size_t in_buffers = bytes_in_caches(bytes, 2 * bytes, most);
  const std::size_t l3 =
      in_buffers > kHalfOfAny ? l3_bytes() * static_cast<std::size_t>(caches) : 0;
  if (in_buffers > std::max(kHalfOfAny, l3 / 2)) {
    const std::size_t in_caches =
        bytes_in_caches(bytes, slots_in_use(*b.plan, geometry.shape), most);
    b.stream = writes_past_caches(in_caches, l3);
    if (may_fit_caches(in_caches, l3)) b.trial = std::make_shared<WriteTrial>(b.stream);
  }
  const ProgramShape shape{b.type, b.in, b.out, b.tiling};
  if (!is_v(call.collective)) {
    b.programs = std::make_shared<const Programs>(compile(*b.plan, shape, group));
  } else if (b.tiles_by_lane && ready.channels == 0) {
    std::vector<LaneProgram> lanes = lanes_of_uneven(ready, shape, cut_for);
    b.windows = std::ranges::any_of(
        lanes, [&](const LaneProgram& l) { return ready.path.windows && l.plan == b.plan; });
    b.programs = std::make_shared<const Programs>(compile(shape, std::move(lanes), group));
  }
  return b;
}

}  // namespace tutti
