#include "comm/device_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "device/board.h"
#include "device/team.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(ErrorCode code, const Call& call, const std::string& why) {
  std::string_view what = name(call.collective);
  if (call.collective == Collective::send_recv) what = call.sends ? "send" : "recv";
  throw Error(code, fmt::format("{} on GPU memory: {}", what, why));
}

/// The GPU of a call's buffers; -1 where it has none.
int gpu_of_call(const Communicator::Impl& impl, const Call& call, const BufferSizes& sizes) {
  int gpu = -1;
  const auto look = [&](const void* pointer, std::size_t bytes, const char* which) {
    if (bytes == 0) return;
    const int owner = impl.gpus.owner(pointer);
    if (owner < 0) {
      refuse(ErrorCode::invalid_argument, call,
             fmt::format("the {} is host memory; call without a stream", which));
    }
    if (gpu >= 0 && owner != gpu) {
      refuse(ErrorCode::invalid_argument, call,
             fmt::format("the input is on GPU {}, the output on GPU {}", gpu, owner));
    }
    gpu = owner;
  };
  look(call.in, sizes.in, "input");
  look(call.out, sizes.out, "output");
  return gpu;
}

device::DeviceMessage message_of(const Communicator::Impl& impl, const Call& call) {
  device::DeviceMessage m;
  m.peer = static_cast<std::uint32_t>(call.peer);
  m.sends = call.sends;
  m.tag = point_to_point_tag(call.type, call.count, call.label);
  m.buffer = static_cast<std::byte*>(call.sends ? const_cast<void*>(call.in) : call.out);
  const BufferSizes sizes = buffer_sizes(call, impl.group->rank(), impl.group->size());
  m.bytes = call.sends ? sizes.in : sizes.out;
  return m;
}

/// The GPUs of this process's ranks, by rank, as the first of them that calls knows: its own is
/// `gpu` (-1: its buffers have no bytes), the others' what they said when they joined.
std::vector<int> gpus_of_ranks(const Communicator::Impl& impl, int gpu) {
  RankGroup& group = *impl.group;
  if (gpu < 0) gpu = device_card(group.control()).ordinal;
  if (gpu < 0) gpu = impl.gpus.current();
  std::vector<int> ordinals;
  for (int r = 0; r < group.size(); ++r) {
    const int said = r == group.rank() ? gpu : device_card(group.control(r)).ordinal;
    ordinals.push_back(!group.same_process(r) ? -1 : said >= 0 ? said : gpu);
  }
  return ordinals;
}

void join_team(Communicator::Impl& impl, int gpu) {
  if (impl.team) return;
  RankGroup& group = *impl.group;
  try {
    impl.team = join_device_team(group, impl.policy, [&] {
      return std::make_shared<DeviceTeam>(group, gpus_of_ranks(impl, gpu), impl.gpus.open);
    });
  } catch (const Error& e) {
    // Other processes would wait for this one's memory.
    if (!group.one_process()) group.liveness().fail({e.code(), group.rank(), e.what()});
    throw;
  }
}

using Calls = std::vector<DeviceCallOn>;

/// What one communicator's ranks of this process have in a group.
struct TeamCalls {
  DeviceTeam* team = nullptr;
  std::vector<Calls> rounds;  // the n-th collectives of these ranks
  Calls messages;
  std::map<const Communicator::Impl*, std::size_t> collectives;  // so far

  void add(const DeviceCallOn& c) {
    if (c.call->collective == Collective::send_recv) return messages.push_back(c);
    const std::size_t round = collectives[c.impl]++;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(c);
  }
};

std::vector<int> ranks_of(const Calls& calls) {
  std::vector<int> ranks;
  for (const DeviceCallOn& c : calls) ranks.push_back(c.impl->group->rank());
  return ranks;
}

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
    const device::Protocols p = device::protocols_from(impl->options.cuda_protocols);
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

/// The parts of some ranks of this process in one operation. Their calls are checked, and their
/// peers are reached. `tables`, one for each call, own the numbers that the parts point to. Waits
/// for the other ranks if an agreement or a window is new. Throws Error.
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
    bind_to_plan(b, *d.call, d.rank(), d.impl->geometry, *d.plan, tables[i]);
    b.largest = d.sizes.largest;
    b.block = largest_block(b);
    b.protocols = device::protocols_from(d.impl->options.cuda_protocols);
    b.most_blocks = static_cast<std::uint32_t>(
        std::min<std::size_t>(d.impl->options.cuda_blocks, device::kMostBlocks));
    if (const std::uint32_t most = team.peers().collective_blocks(); most > 0) {
      b.most_blocks = b.most_blocks == 0 ? most : std::min(b.most_blocks, most);
    }
    b.link_data = d.plan->path.link_data;
    b.plan_channels = d.plan->channels;
    b.tmp_chunks = d.plan->path.tmp_chunks;
    b.from_inputs = d.plan->path.from_inputs;
    b.signature = d.hash();
    if (b.windows && team.windows() != nullptr) name_buffers(*team.windows(), d, part);
  }
  return parts;
}

/// The ranks' calls of one operation.
void launch_collective(DeviceTeam& team, const Calls& calls) {
  const Communicator::Impl& first = *calls.front().impl;
  std::vector<int> all(static_cast<std::size_t>(first.group->size()));
  std::iota(all.begin(), all.end(), 0);
  team.peers().reach(*first.group, ranks_of(calls), all, first.policy);
  team.peers().agree(*first.group, ranks_of(calls), first.policy);
  std::vector<Tables> tables(calls.size());
  team.launch(bind_on_device(team, calls, tables));
}

/// All messages of these ranks.
void launch_messages(DeviceTeam& team, const Calls& calls) {
  std::vector<DeviceTeam::Part> parts;
  std::vector<int> peers;
  for (const DeviceCallOn& c : calls) {
    const int rank = c.impl->group->rank();
    auto part = std::ranges::find(parts, rank, &DeviceTeam::Part::rank);
    if (part == parts.end()) {
      parts.emplace_back().rank = rank;
      part = parts.end() - 1;
    }
    part->messages.push_back(message_of(*c.impl, *c.call));
    if (std::ranges::find(part->streams, c.stream) == part->streams.end()) {
      part->streams.push_back(c.stream);
    }
    peers.push_back(c.call->peer);
  }
  const Communicator::Impl& first = *calls.front().impl;
  team.peers().reach(*first.group, ranks_of(calls), peers, first.policy);
  team.launch_messages(std::move(parts));
}

/// Runs `launch` for `calls`; if it fails, so do the communicators.
void launch_together(DeviceTeam& team, const Calls& calls,
                     void (*launch)(DeviceTeam&, const Calls&)) {
  if (calls.empty()) return;
  try {
    launch(team, calls);
    // A rank that failed before the team was known could not stop the team.
    if (calls.front().impl->group->liveness().failed()) team.abort();
  } catch (const Error& e) {
    // The other ranks' kernels would wait for one that was not launched.
    for (const DeviceCallOn& c : calls) {
      c.impl->group->liveness().fail({e.code(), e.rank(), e.what()});
      abort_on_device(*c.impl->group);
    }
    throw;
  }
}

/// Lets the other ranks read what this one has called. (Not what is recorded into a graph: that
/// runs later, any number of times.)
void number(const DeviceCallOn& c) {
  Communicator::Impl& impl = *c.impl;
  if (c.call->collective == Collective::send_recv) return;
  if (impl.team && impl.team->is_capturing(impl.group->rank(), c.stream)) return;
  Signature s = signature_of(*c.call);
  s.sequence = ++impl.device_sequence;
  publish_signature(impl.group->control(), s, CallsOn::gpu);
}

}  // namespace

void check_on_device(Communicator::Impl& impl, const Call& call) {
  note_device_failure(*impl.group);
  impl.check(call);
  if (call.compressed) {
    refuse(ErrorCode::invalid_argument, call,
           "compressed calls (Call::compressed) are for host memory; these buffers are a GPU's");
  }
  const BufferSizes sizes = buffer_sizes(call, impl.group->rank(), impl.group->size());
  if (moves_nothing(call, sizes)) return;
  const ReadyPlan* const plan = impl.plans.users(call.collective, signature_of(call).root, false);
  if (plan != nullptr && plan->path.windows && !impl.group->one_host()) {
    refuse(ErrorCode::invalid_usage, call,
           fmt::format("the user's plan \"{}\" addresses other ranks' memory, which on GPUs only a "
                       "communicator of one host can: use a plan with links alone",
                       plan->plan.header.algorithm));
  }
  if (plan != nullptr && !plan->unfit_for_gpu.empty()) {
    refuse(ErrorCode::invalid_argument, call,
           fmt::format("the user's plan \"{}\" runs on no GPU: {}", plan->plan.header.algorithm,
                       plan->unfit_for_gpu));
  }
  const int gpu = gpu_of_call(impl, call, sizes);
  join_team(impl, gpu);
  const int rank = impl.group->rank();
  if (gpu >= 0 && gpu != impl.team->ordinal(rank)) {
    refuse(ErrorCode::invalid_argument, call,
           fmt::format("rank {} has its buffers on GPU {}, but was to have them on GPU {}: make "
                       "its communicator on a thread whose GPU that is, or say so "
                       "(Options::gpu, ncclCommInitAll's devlist)",
                       rank, gpu, impl.team->ordinal(rank)));
  }
}

void run_on_device(std::span<const DeviceCallOn> calls) {
  std::vector<TeamCalls> teams;  // as the user named them, which other processes do alike
  std::size_t rounds = 0;
  // In the order of their addresses, as two threads may take some of the same.
  std::set<Communicator::Impl*> impls;
  for (const DeviceCallOn& c : calls) impls.insert(c.impl);
  std::list<Communicator::Impl::Turn> turns;
  for (Communicator::Impl* const impl : impls) turns.push_back(impl->turn_alone());
  for (const DeviceCallOn& c : calls) {
    number(c);
    const RankGroup& group = *c.impl->group;
    if (moves_nothing(*c.call, buffer_sizes(*c.call, group.rank(), group.size()))) continue;
    auto team = std::ranges::find(teams, c.impl->team.get(), &TeamCalls::team);
    if (team == teams.end()) {
      teams.emplace_back().team = c.impl->team.get();
      team = teams.end() - 1;
    }
    team->add(c);
    rounds = std::max(rounds, team->rounds.size());
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    for (const TeamCalls& t : teams) {
      if (round < t.rounds.size()) launch_together(*t.team, t.rounds[round], launch_collective);
    }
  }
  for (const TeamCalls& t : teams) launch_together(*t.team, t.messages, launch_messages);
}

void note_device_failure(RankGroup& group) {
  if (const auto team = find_device_team(group)) team->note_failure(group);
}

void abort_on_device(RankGroup& group) {
  if (const auto team = find_device_team(group)) team->abort();
}

bool is_running_on_device(const RankGroup& group) {
  const auto team = find_device_team(group);
  return team != nullptr && team->is_running(group.rank());
}

void wait_on_device(const RankGroup& group) {
  if (const auto team = find_device_team(group)) team->wait(group.rank());
}

void leave_devices(Communicator::Impl& impl) { leave_device_team(impl.team, *impl.group); }

}  // namespace tutti
