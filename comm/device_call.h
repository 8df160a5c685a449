// Calls on GPU memory: checks, binds and launches them; calls of a group together. In one process
// plans use the addresses of buffers directly. Between processes a plan may address buffers if
// those of all ranks lie in windows (device/windows.h); otherwise their data go through slots.
#pragma once

#include <span>

#include "comm/impl.h"

namespace tutti {

/// A call of one rank, which runs after the work on `stream`.
struct DeviceCallOn {
  Communicator::Impl* impl = nullptr;
  const Call* call = nullptr;
  device::Stream stream = nullptr;
};

/// Throws Error, before anything has begun, for a call that cannot run on the GPU.
void check_on_device(Communicator::Impl& impl, const Call& call);

/// Enqueues checked calls. The n-th collectives of the ranks of one communicator are one kernel;
/// then all their sends and receives are one. In a communicator of several processes, a rank's
/// first calls wait for the first calls of the ranks of its host that they need.
void run_on_device(std::span<const DeviceCallOn> calls);

/// Makes a failure of a kernel a failure of the communicator. From any thread.
void note_device_failure(RankGroup& group);
/// Makes kernels of this communicator leave their waits. From any thread.
void abort_on_device(RankGroup& group);
/// Whether kernels run that the end of the communicator waits for. From any thread.
bool is_running_on_device(const RankGroup& group);
/// Waits for them. (Those of a communicator that was aborted end soon.)
void wait_on_device(const RankGroup& group);
/// A rank that has been on GPUs ends.
void leave_devices(Communicator::Impl& impl);

}  // namespace tutti
