// The kernels of this process's ranks, reaching other processes through the host: for each rank a
// second segment, in pinned memory, with an executor of its own, and for each rank of another
// process memory that stands for that rank's segment, from which a thread takes what the kernels
// write there (proxy.h). To the kernels it is a segment and peers' segments as ever.
//
// Messages are Simple, whose counters come after the data: of LL's, nobody but the receiver knows
// when they are complete.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/execute/cuda/pinned_memory.h"
#include "device/executors.h"
#include "device/inbox.h"
#include "device/proxy.h"

namespace tutti {

class DeviceHostSlots {
 public:
  /// What a message may have, wherever it is forwarded: the rest of a slot is not used.
  static ConnectionShape connection_of(const device::SegmentShape& shape);

  /// `executors`: of this process's ranks, on their GPUs alone. Both outlive this.
  DeviceHostSlots(const device::SegmentShape& shape, const DeviceExecutors& executors,
                  const DeviceInboxes& inboxes)
      : shape_(shape), on_device_(executors), inboxes_(inboxes) {}
  ~DeviceHostSlots();
  DeviceHostSlots(const DeviceHostSlots&) = delete;
  DeviceHostSlots& operator=(const DeviceHostSlots&) = delete;

  /// Makes all of it, once; links to the ranks that this process has met. Throws Error. Not from
  /// several threads at once, as met().
  void open();
  /// The inbox of rank `rank`, of another process, is there.
  void met(int rank);

  // From any thread:
  /// Of rank `rank` of this process, after open(); connected to all ranks.
  device::Executor& executor(int rank);
  void set_limits(int rank, const device::Executor::Limits& limits);
  /// Makes kernels leave their waits, also of what is opened later.
  void abort();
  /// A failure of a kernel, or else of a link.
  std::vector<Error> failures() const;
  /// A long wait of a kernel. By one thread at a time.
  std::optional<device::Executor::LateRank> late();
  /// Kernels have been launched.
  void wake();

 private:
  using Memory = std::vector<std::unique_ptr<device::PinnedMemory>>;

  int size() const { return static_cast<int>(shape_.ranks); }
  std::unique_ptr<device::PinnedMemory> make_far(int rank) const;
  void add_links(int peer);

  device::SegmentShape shape_;
  const DeviceExecutors& on_device_;
  const DeviceInboxes& inboxes_;
  Memory near_;               // by executor
  std::vector<Memory> far_;   // by executor, then rank; none for those of this process
  mutable std::mutex mutex_;  // of what follows, but for what executors do
  std::vector<std::unique_ptr<device::Executor>> executors_;
  std::shared_ptr<DeviceProxy> proxy_;
  bool aborted_ = false;
};

}  // namespace tutti
