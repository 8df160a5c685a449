#include "comm/device_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "comm/device_bind.h"
#include "device/board.h"

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

}  // namespace tutti
