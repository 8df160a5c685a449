// Memory that a communicator gives back while it is idle, and how much it has.
#include <fmt/format.h>

#include "bindings/nccl/export.h"
#include "bindings/nccl/group.h"
#include "comm/impl.h"

using namespace tutti::nccl;

// Collective. In a group, before its operations.
NCCL_API(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags)) {
  constexpr std::string_view kName = "ncclCommSuspend";
  return guarded_in_group(kName, [&] {
    ncclComm& c = kept(comm);
    if ((flags & ~NCCL_SUSPEND_MEM) != 0) {
      refuse_argument(fmt::format("flags is {:#x}, but NCCL_SUSPEND_MEM alone is known", flags));
    }
    if (flags == 0 || c.suspended) return ncclSuccess;
    Opening nothing;  // what the ranks do together
    nothing.parent = &c;
    nothing.open = [&c] {
      const Use held(c);
      c.communicator.release_memory();
      c.suspended = true;
      return tutti::Communicator();
    };
    return submit(kName, std::move(nothing), c.config.blocking);
  });
}

// The next operations take the memory.
NCCL_API(ncclResult_t, ncclCommResume, (ncclComm_t comm)) {
  return guarded_in_group("ncclCommResume", [&] {
    kept(comm).suspended = false;
    return ncclSuccess;
  });
}

// NCCL counts memory of GPUs. Here it is memory of the host, which has the place of that.
NCCL_API(ncclResult_t, ncclCommMemStats,
         (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  return guarded("ncclCommMemStats", [&] {
    ncclComm& c = made(comm);
    require(value, "value");
    const Use held(c);
    const tutti::MemoryUse use = c.communicator.memory();
    const uint64_t idle = use.links + use.staging;
    switch (stat) {
      case ncclStatGpuMemSuspend:
        *value = idle;
        return ncclSuccess;
      case ncclStatGpuMemSuspended:
        *value = c.suspended ? 1 : 0;
        return ncclSuccess;
      case ncclStatGpuMemPersist:
      case ncclStatGpuMemTotal:
        if (c.communicator.impl().team) {
          refuse_usage("how much memory a communicator has on GPUs is not counted by Tutti");
        }
        *value = stat == ncclStatGpuMemPersist ? use.control : idle + use.control;
        return ncclSuccess;
    }
    refuse_argument(fmt::format("{} is no statistic (ncclCommMemStat_t)", static_cast<int>(stat)));
  });
}
