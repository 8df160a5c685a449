#include "comm/device_bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace tutti {
namespace {

/// A call, and what is decided of it.
struct Draft {
  Communicator::Impl* impl = nullptr;
  const Call* call = nullptr;
  BufferSizes sizes;
  Signature signature;
  const ReadyPlan* plan = nullptr;
  // If the plan goes through windows of other processes:
  std::optional<WindowOffset> in, out;  // none: the buffer lies in none

  int rank() const { return impl->group->rank(); }
  const ReadyPlan& plan_for(bool windows) const {
    return impl->plans.get(signature, sizes.largest, windows ? Access::windows : Access::none,
                           Plans::Where::gpu);
  }
  std::uint64_t hash() const {
    const device::Protocols& p = impl->cuda_protocols;
    const std::uint64_t limits = (p.simple ? 1 : 0) + (p.ll ? 2 : 0) + (p.ll128 ? 4 : 0) +
                                 8 * std::uint64_t{impl->options.cuda_blocks};
    Signature s = signature;
    s.detail = mix(mix(s.detail, plan->identity), limits);
    return s.hash();  // not the sequence: a captured graph runs it many times
  }
  /// Calls of one kind share an agreement. The memory that their buffers lie in does not depend on
  /// their exact shape.
  std::uint32_t kind() const {
    return static_cast<std::uint32_t>(call->collective) << 8 |
           static_cast<std::uint32_t>(std::bit_width(sizes.largest));
  }
};

Draft draft(DeviceTeam& team, const DeviceCallOn& c) {
  Draft d;
  d.impl = c.impl;
  d.call = c.call;
  d.sizes = buffer_sizes(*c.call, d.rank(), c.impl->group->size());
  d.signature = signature_of(*c.call);
  d.plan = &d.plan_for(!team.peers().collectives_through_host());
  return d;
}

/// Between processes: whether the plan that was chosen may address other ranks' memory, as all
/// ranks find alike, and where that is.
void agree(DeviceWindows& windows, std::span<Draft> drafts) {
  for (Draft& d : drafts) {
    const bool may_be = windows.board()->agreed(d.kind()).value_or(windows.are_wanted());
    if (!d.plan->path.windows || !may_be) continue;
    RankGroup& group = *d.impl->group;
    const WaitPolicy& policy = d.impl->policy;
    d.in = windows.find(group, d.call->in, d.sizes.in, policy);
    d.out = windows.find(group, d.call->out, d.sizes.out, policy);
  }
  for (Draft& d : drafts) {
    if (!d.plan->path.windows) continue;
    const bool reachable = std::ranges::all_of(
        drafts, [&](const Draft& o) { return o.kind() != d.kind() || (o.in && o.out); });
    const bool through_windows =
        windows.board()->agree(*d.impl->group, d.kind(), d.hash(), reachable,
                               "make the same call on GPU memory", d.impl->policy);
    if (!through_windows) d.plan = &d.plan_for(false);
  }
}

/// Names the buffers as the other processes know them. A buffer that they do not know is copied to
/// a window, and a result is copied back from there: the other ranks count on windows.
void name_buffers(DeviceWindows& windows, const Draft& d, DeviceTeam::Part& part) {
  RankGroup& group = *d.impl->group;
  const WaitPolicy& policy = d.impl->policy;
  device::DeviceBinding& b = part.binding;
  const auto stage = [&](std::size_t which, BlockTable& table, std::size_t bytes) {
    table.base = windows.stage(group, which, bytes, policy);
    return windows.find(group, table.base, bytes, policy).value();
  };
  std::byte* const in = b.in.base;
  std::byte* const out = b.out.base;
  b.in_window = d.in ? *d.in : stage(0, b.in, d.sizes.in);
  b.out_window = d.out ? *d.out : stage(1, b.out, d.sizes.out);
  if (!d.in) part.before.push_back({b.in.base, in, d.sizes.in});
  if (!d.out && b.out.counts.empty()) part.after.push_back({out, b.out.base, d.sizes.out});
  for (std::size_t i = 0; !d.out && i < b.out.counts.size(); ++i) {  // not what lies between them
    const auto block = static_cast<std::uint32_t>(i);
    const std::size_t at = b.out.offset(block) * size_of(b.type);
    part.after.push_back({out + at, b.out.base + at, b.out.elements(block) * size_of(b.type)});
  }
  b.tmp_window = [&windows, &group, &policy](const std::byte* tmp, std::size_t bytes) {
    const auto found = windows.find(group, tmp, bytes, policy);
    if (found) return *found;
    throw Error(ErrorCode::system,
                fmt::format("rank {} cannot share its GPU memory with the other processes any more",
                            group.rank()),
                group.rank());
  };
  ++windows.counts().calls;
}

}  // namespace

std::vector<DeviceTeam::Part> bind_on_device(DeviceTeam& team, std::span<const DeviceCallOn> calls,
                                             std::vector<Tables>& tables) {
  std::vector<Draft> drafts;
  for (const DeviceCallOn& c : calls) drafts.push_back(draft(team, c));
  if (team.windows() != nullptr) agree(*team.windows(), drafts);
  std::vector<DeviceTeam::Part> parts(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Draft& d = drafts[i];
    DeviceTeam::Part& part = parts[i];
    part.rank = d.rank();
    part.streams = {calls[i].stream};
    device::DeviceBinding& b = part.binding;
    b.plan = &d.plan->plan;
    b.type = d.call->type;
    b.op = d.call->op;
    bind_buffers(*d.call, d.rank(), b.in, b.out, tables[i]);
    b.largest = d.sizes.largest;
    b.block = largest_block(*d.call, b.in, b.out);
    b.protocols = d.impl->cuda_protocols;
    b.most_blocks = static_cast<std::uint32_t>(
        std::min<std::size_t>(d.impl->options.cuda_blocks, device::kMostBlocks));
    if (const std::uint32_t most = team.peers().collective_blocks(); most > 0) {
      b.most_blocks = b.most_blocks == 0 ? most : std::min(b.most_blocks, most);
    }
    b.windows = d.plan->path.windows;
    b.link_data = d.plan->path.link_data;
    b.plan_channels = d.plan->channels;
    b.tmp_chunks = d.plan->path.tmp_chunks;
    b.from_inputs = d.plan->path.from_inputs;
    b.tiles_by_lane = d.call->collective == Collective::all_to_all_v;
    b.canonical = d.impl->geometry.invariant;
    b.signature = d.hash();
    if (b.windows && team.windows() != nullptr) name_buffers(*team.windows(), d, part);
  }
  return parts;
}

}  // namespace tutti
