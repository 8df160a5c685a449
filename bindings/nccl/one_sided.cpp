// ncclPutSignal, ncclSignal and ncclWaitSignal. In NCCL, signals belong to a communicator, whatever
// windows it has. In Tutti, they belong to a window, but come after all puts through any window. So
// the first ncclCommWindowRegister makes a window without memory, which has the signals.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/nccl/export.h"
#include "bindings/nccl/group.h"
#include "bindings/nccl/memory.h"
#include "bindings/nccl/operators.h"
#include "bindings/nccl/windows.h"

namespace tutti::nccl {
namespace {

using Calls = std::vector<OneSidedCall>;

/// Each context has as many signals as the communicator's configuration says, or else its share of
/// all.
int signal_index(const ncclComm& comm, int signal, int context) {
  const int contexts = comm.config.rma_contexts.value_or(1);
  const int each =
      comm.config.rma_signals.value_or(std::max(Window::kSignals / std::max(contexts, 1), 1));
  if (context < 0 || context >= contexts) {
    refuse_argument(fmt::format("ctx is {}, but must be 0 to {} (numRmaCtx of the ncclConfig_t)",
                                context, contexts - 1));
  }
  if (signal < 0 || signal >= each) {
    refuse_argument(fmt::format("sigIdx is {}, but must be 0 to {} (numRmaSig of the ncclConfig_t)",
                                signal, each - 1));
  }
  const auto index = static_cast<std::int64_t>(context) * each + signal;
  if (index >= Window::kSignals) {
    refuse_usage(
        fmt::format("signal {} of context {} would be number {}; Tutti has {} for each "
                    "pair of ranks",
                    signal, context, index, Window::kSignals));
  }
  return static_cast<int>(index);
}

/// A call that signals, or waits for `count` signals.
OneSidedCall of_signals(const ncclComm& comm, WindowCall::Kind kind, int peer, int signal,
                        int context, std::uint64_t count) {
  if (peer < 0 || peer >= comm.size) {
    refuse_argument(fmt::format("peer is {}, but ranks are 0 to {}", peer, comm.size - 1));
  }
  const int index = signal_index(comm, signal, context);
  if (!comm.signals) {
    refuse_usage("signals need a window: all ranks call ncclCommWindowRegister first");
  }
  return {comm.signals, {.kind = kind, .peer = peer, .index = index, .count = count}};
}

void refuse_flags(unsigned flags) {
  if (flags != 0) refuse_argument(fmt::format("flags is {:#x}, but must be 0", flags));
}

OneSidedCall put(const ncclComm& comm, const void* from, std::size_t count, std::size_t each,
                 int peer, ncclWindow_t handle, std::size_t offset) {
  const RegisteredWindow target = registered_window(handle);
  if (target.comm != &comm) refuse_argument("the window is of another communicator");
  if (!target.window) {
    refuse_usage(fmt::format("nothing can be put into the window: {}", target.why_not));
  }
  const std::size_t room = target.window->bytes_of(peer);
  if (offset > room || count > (room - offset) / each) {
    refuse_argument(
        fmt::format("{} elements of {} bytes at offset {} do not fit into the window of rank {}, "
                    "which has {} bytes",
                    count, each, offset, peer, room));
  }
  if (count > 0) require(from, "localbuff");
  if (memory_of(from) == MemoryKind::device) {
    refuse_usage("localbuff is memory of a GPU, which cannot be put; copy it to the host first");
  }
  return {target.window,
          {.kind = WindowCall::Kind::put,
           .peer = peer,
           .offset = offset,
           .from = from,
           .bytes = count * each}};
}

/// Runs what `calls` says, as an operation.
template <class Describe>
ncclResult_t perform_one_sided(std::string_view function, ncclComm_t handle, cudaStream_t stream,
                               Describe&& describe) {
  return guarded_in_group(function, [&] {
    Task task{.comm = &usable(handle), .call = {}, .stream = stream};
    task.one_sided = std::make_shared<const Calls>(describe(*task.comm));
    return submit(function, std::move(task));
  });
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;
using tutti::WindowCall;

NCCL_API(ncclResult_t, ncclPutSignal,
         (const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
          ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform_one_sided("ncclPutSignal", comm, stream, [&](const ncclComm& c) {
    refuse_flags(flags);
    const OneSidedCall signal = of_signals(c, WindowCall::Kind::signal, peer, sigIdx, ctx, 1);
    return Calls{
        put(c, localbuff, count, tutti::size_of(data_type(datatype)), peer, peerWin, peerWinOffset),
        signal};
  });
}

NCCL_API(ncclResult_t, ncclSignal,
         (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform_one_sided("ncclSignal", comm, stream, [&](const ncclComm& c) {
    refuse_flags(flags);
    return Calls{of_signals(c, WindowCall::Kind::signal, peer, sigIdx, ctx, 1)};
  });
}

NCCL_API(ncclResult_t, ncclWaitSignal,
         (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream)) {
  return perform_one_sided("ncclWaitSignal", comm, stream, [&](const ncclComm& c) {
    if (nDesc < 0) refuse_argument(fmt::format("nDesc is {}, but must be 0 or more", nDesc));
    if (nDesc > 0) require(signalDescs, "signalDescs");
    Calls calls;
    for (int i = 0; i < nDesc; ++i) {
      const ncclWaitSignalDesc_t& d = signalDescs[i];
      if (d.opCnt < 0) {
        refuse_argument(
            fmt::format("signalDescs[{}].opCnt is {}, but must be 0 or more", i, d.opCnt));
      }
      const OneSidedCall wait = of_signals(c, WindowCall::Kind::wait_signal, d.peer, d.sigIdx,
                                           d.ctx, static_cast<std::uint64_t>(d.opCnt));
      if (d.opCnt > 0) calls.push_back(wait);
    }
    return calls;
  });
}
