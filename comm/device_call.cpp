#include "comm/device_call.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

namespace tutti {
namespace {

[[noreturn]] void refuse(ErrorCode code, const Call& call, const std::string& why) {
  throw Error(code, fmt::format("{} on GPU memory: {}", name(call.collective), why));
}

/// The GPU of a call's buffers; -1 where it has none.
int gpu_of_call(const Communicator::Impl& impl, const Call& call, const BufferSizes& sizes) {
  int gpu = -1;
  const auto look = [&](const void* pointer, std::size_t bytes, const char* which) {
    if (bytes == 0) return;
    const int owner = impl.gpus.owner(pointer);
    if (owner < 0) {
      refuse(ErrorCode::invalid_argument, call, fmt::format("the {} is host memory", which));
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

/// What is bound; `tables` keeps what it points to.
device::DeviceBinding bind_on_device(Communicator::Impl& impl, const Call& call, Tables& tables) {
  const BufferSizes sizes = buffer_sizes(call, impl.group->rank(), impl.group->size());
  Signature signature = signature_of(call);
  // The choice is that of the CPUs' cost model; nothing is calibrated for GPUs.
  const ReadyPlan& plan = impl.plans.get(signature, sizes.largest, true);
  signature.detail = mix(signature.detail, plan.identity);
  device::DeviceBinding b;
  b.plan = &plan.plan;
  b.type = call.type;
  b.op = call.op;
  bind_buffers(call, impl.group->rank(), b.in, b.out, tables);
  b.largest = sizes.largest;
  b.block = largest_block(call, b.in, b.out);
  b.windows = plan.windows;  // all ranks' memory is addressed alike within a process
  b.link_data = plan.link_data;
  b.tiles_by_lane = call.collective == Collective::all_to_all_v;
  b.signature = signature.hash();  // not the sequence: a captured graph runs it many times
  return b;
}

void join_team(Communicator::Impl& impl, int gpu) {
  if (impl.team) return;
  impl.team = join_device_team(impl.group->key(0), [&] {
    const int ordinal = gpu >= 0 ? gpu : impl.gpus.current();
    return std::make_shared<DeviceTeam>(impl.gpus.open(ordinal), ordinal, impl.group->size());
  });
  impl.team->set_timeout(impl.group->rank(), impl.options.timeout);
}

/// Some ranks' calls of one operation.
void launch_together(std::span<const DeviceCallOn> calls) {
  std::vector<DeviceTeam::Part> parts;
  std::vector<Tables> tables(calls.size());
  try {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Communicator::Impl& impl = *calls[i].impl;
      parts.push_back(
          {impl.group->rank(), bind_on_device(impl, *calls[i].call, tables[i]), calls[i].stream});
    }
    calls.front().impl->team->launch(parts);
    // Who failed before the team was known could not stop it.
    if (calls.front().impl->group->failed()) calls.front().impl->team->abort();
  } catch (const Error& e) {
    // The other ranks' kernels would wait for one that was not launched.
    for (const DeviceCallOn& c : calls) {
      c.impl->group->fail({e.code(), e.rank(), e.what()});
      abort_on_device(*c.impl->group);
    }
    throw;
  }
}

}  // namespace

void check_on_device(Communicator::Impl& impl, const Call& call) {
  if (call.collective == Collective::send_recv) {
    refuse(ErrorCode::invalid_usage, call, "send and recv are not in this version");
  }
  if (!impl.group->one_process()) {
    refuse(ErrorCode::invalid_usage, call,
           "ranks in several processes are not in this version; use threads of one");
  }
  note_device_failure(*impl.group);
  impl.check(call);
  const BufferSizes sizes = buffer_sizes(call, impl.group->rank(), impl.group->size());
  if (moves_nothing(call, sizes)) return;
  const int gpu = gpu_of_call(impl, call, sizes);
  join_team(impl, gpu);
  if (gpu >= 0 && gpu != impl.team->ordinal()) {
    refuse(ErrorCode::invalid_argument, call,
           fmt::format("rank {} has its buffers on GPU {}, but this communicator runs on GPU {}; "
                       "several GPUs are not in this version",
                       impl.group->rank(), gpu, impl.team->ordinal()));
  }
}

void run_on_device(std::span<const DeviceCallOn> calls) {
  // By number within its communicator's rank, then by communicator.
  std::map<const Communicator::Impl*, std::size_t> counts;
  std::map<std::pair<std::size_t, const DeviceTeam*>, std::vector<DeviceCallOn>> rounds;
  for (const DeviceCallOn& c : calls) {
    c.impl->wait_for_started();
    const LocalGroup& group = *c.impl->group;
    if (moves_nothing(*c.call, buffer_sizes(*c.call, group.rank(), group.size()))) continue;
    rounds[{counts[c.impl]++, c.impl->team.get()}].push_back(c);
  }
  for (const auto& [round, together] : rounds) launch_together(together);
}

void note_device_failure(LocalGroup& group) {
  const auto team = find_device_team(group.key(0));
  if (!team) return;
  const auto failure = team->failure();
  if (!failure) return;
  group.fail({failure->code(), failure->rank(), failure->what()});
  team->abort();
}

void abort_on_device(LocalGroup& group) {
  if (const auto team = find_device_team(group.key(0))) team->abort();
}

}  // namespace tutti
