// How the kernels of this process's ranks reach other processes through the host. Each rank has a
// second segment, in pinned memory, with an executor of its own. For each rank of another process,
// more pinned memory stands for that rank's segment; a thread takes from it what the kernels write
// there (proxy.h). The kernels see a segment and peers' segments as ever. Whether the links to such
// a rank go through the host's memory or over the network makes no difference here, except for the
// time at which they are made: inside a host when the other process has shown itself, across when a
// call needs them.
//
// Messages are Simple: the counters come after the data. Of LL messages, only the receiver knows
// when they are complete.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/executors.h"
#include "device/inbox.h"
#include "device/network_links.h"
#include "device/proxy.h"
#include "execute/cuda/pinned_memory.h"

namespace tutti {

class DeviceHostSlots {
 public:
  /// What a message may have, wherever it is forwarded: the rest of a slot is not used.
  static ConnectionShape connection_of(const device::SegmentShape& shape);

  /// `executors`: of this process's ranks, on their GPUs alone; they and `inboxes` outlive this.
  /// `here`: the ranks of this host.
  DeviceHostSlots(const device::SegmentShape& shape, const DeviceExecutors& executors,
                  const DeviceInboxes& inboxes, std::span<const int> here)
      : shape_(shape), on_device_(executors), inboxes_(inboxes), here_(here.begin(), here.end()) {}
  ~DeviceHostSlots();
  DeviceHostSlots(const DeviceHostSlots&) = delete;
  DeviceHostSlots& operator=(const DeviceHostSlots&) = delete;

  /// Makes all of it, once; links to the ranks of this host that this process has met. Throws
  /// Error. Not from several threads at once, as met().
  void open();
  /// The inbox of rank `rank`, of another process of this host, is there.
  void met(int rank);

  /// Rank `group.rank()`, of this process, has links to other hosts from now on. Throws Error.
  void join(RankGroup& group);
  /// Links `rank`, of this process, which has joined, to `peer`, on another host, if they are not.
  /// After open(); from the thread that makes its calls. Throws Error.
  void link(int rank, int peer);
  /// Whether the links of `peer`, on another host, with `rank`, which has joined, have ended there.
  bool has_left(int rank, int peer) const;
  /// The communicator has failed: nothing that is under way to other hosts matters.
  void set_failed();
  /// Whether a rank on another host lacks what kernels have sent, which only this process can pass
  /// on to it, and may still take it.
  bool is_needed() const;

  // From any thread:
  /// Of rank `rank` of this process, after open(); connected to all ranks of this host, and to
  /// those of others that it is linked to.
  device::Executor& executor(int rank);
  void set_limits(int rank, const device::Executor::Limits& limits);
  /// Makes kernels leave their waits, also of what is opened later.
  void abort();
  /// A failure of a kernel, or else of a link.
  std::vector<Error> failures() const;
  /// A long wait of a kernel. By one thread at a time.
  std::optional<device::LateRank> late();
  /// Kernels have been launched.
  void wake();

 private:
  using Memory = std::vector<std::unique_ptr<device::PinnedMemory>>;

  /// `data`: the kernels' data lie there, too.
  std::unique_ptr<device::PinnedMemory> make_far(int rank, bool data) const;
  void add_links(int peer);
  std::shared_ptr<ProxyLink> make_link(int rank, int peer, std::byte* far, LinkEnds links,
                                       std::shared_ptr<GpuLinks> gpu) const;
  /// Null: data go through the host.
  std::shared_ptr<GpuLinks> make_gpu_links(DeviceNetworkLinks& network, int rank, int peer,
                                           const LinkEnds& ends) const;

  device::SegmentShape shape_;
  const DeviceExecutors& on_device_;
  const DeviceInboxes& inboxes_;
  const std::vector<int> here_;
  Memory near_;  // by executor
  // By executor, then rank; none for ranks of this process, and for ranks without links.
  std::vector<Memory> far_;
  // By rank of this process, from join() on; before the links that are theirs.
  std::map<int, std::unique_ptr<DeviceNetworkLinks>> networks_;
  mutable std::mutex mutex_;  // of what follows and of networks_, but for what executors do
  std::vector<std::unique_ptr<device::Executor>> executors_;
  std::shared_ptr<DeviceProxy> proxy_;
  bool aborted_ = false;
  bool failed_ = false;
  std::map<std::pair<int, int>, std::shared_ptr<ProxyLink>> across_;  // to other hosts
};

}  // namespace tutti
