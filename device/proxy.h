// A thread that carries the messages of kernels to other processes, and theirs to ours, if GPUs'
// memory cannot be mapped, or is on another host. A kernel sees slots and two counters as usual
// (lane_links.h), but they lie in pinned memory of its own process:
//
//     kernel -> slots of `far` -> | thread -> link -> thread | -> slots of `near` -> kernel
//              <- credit in near  |     <- its credit <-     |  <- credit in far
//
// The link is the usual one between two ranks (links.h): a Connection in the host's memory, or one
// ring at either host with a wire in between. Each hop is a bounded FIFO, so the three together are
// a longer one. The thread waits for nothing: it looks at every link in turn, moves all messages
// that can move, and drives the wires of links to other hosts.
//
// The sending kernel says beside the header how long the message is.
//
// Where the network reaches memory of GPUs, data may lie there, and pass the thread by
// (gpu_links.h).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/error.h"
#include "device/gpu_links.h"
#include "device/link_ends.h"
#include "execute/cuda/segment.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// Both directions between a rank of this process and one of another, on all channels.
class ProxyLink {
 public:
  struct Ends {
    int rank = 0, peer = 0;
    std::byte* near = nullptr;      // this rank's segment, in memory of the host
    std::byte* far = nullptr;       // what its kernels take for the peer's
    LinkEnds links;                 // for each channel
    std::shared_ptr<GpuLinks> gpu;  // the same ones, where the network reaches GPUs' memory
  };
  /// `slot_bytes`: the most bytes of a message of the links.
  ProxyLink(const device::SegmentShape& shape, std::size_t slot_bytes, Ends ends);

  /// Moves all messages that can move; false if there were none. Throws Error(internal) if the peer
  /// has sent something impossible; do not use the link after that. For one thread.
  bool advance();
  /// Whether all messages of our kernels are on their way; messages to other hosts must have left
  /// this process. From any thread.
  bool is_flushed() const;

 private:
  struct Channel {
    SendEnd out{};
    ReceiveEnd in{};
    std::uint64_t forwarded = 0, delivered = 0;  // messages
    // With GpuLinks. Those whose slots the kernel may write again; by slot, the zero-copy send that
    // has to end before.
    std::uint64_t credited = 0;
    std::array<std::uint64_t, device::kMostSlots> awaited{};
    Receiver ahead;  // has passed what is delivered; `in` has freed what the kernel has
  };

  bool forward(std::uint32_t channel);
  bool deliver(std::uint32_t channel);
  /// Of GpuLinks: credit for what has left, and for what the kernel has taken.
  bool give_credit(std::uint32_t channel);
  /// What our kernel has freed, of messages from the peer.
  std::uint64_t freed_by_kernel(std::uint32_t channel) const;
  std::uint32_t slot(std::uint64_t message) const {
    return static_cast<std::uint32_t>(message % shape_.slots);
  }
  const std::uint64_t* sent_header(std::uint32_t channel, std::uint64_t message) const;
  std::uint64_t* credit_of_sent(std::uint32_t channel) const;

  device::SegmentShape shape_;
  std::size_t slot_bytes_;
  std::uint32_t rank_, peer_;
  std::byte *near_, *far_;
  std::shared_ptr<void> held_;
  std::shared_ptr<GpuLinks> gpu_;
  std::vector<Channel> channels_;
  RemoteDoorbell* wire_ = nullptr;  // that all channels share; null: the peer is on this host
};

/// The thread. It looks all the time while messages come, and for a millisecond after; then it
/// sleeps, at most a millisecond at a time, since a kernel cannot wake it.
class DeviceProxy {
 public:
  static std::shared_ptr<DeviceProxy> start();

  void add(std::shared_ptr<ProxyLink> link);
  /// Kernels have been launched.
  void wake();
  /// The thread does not touch the links after this has returned.
  void stop();
  /// The failure of a link, if one has failed.
  std::optional<Error> failure() const;

 private:
  DeviceProxy();
  void run(int stop_fd);
  /// Looks at all links once; true if something moved.
  bool advance();
  bool is_flushed() const;
  void fail(const Error& error);

  // Made before memory can be short.
  const Error has_ended_{ErrorCode::system,
                         "the thread that carries messages between this process's GPUs and "
                         "networks has ended; the log says why"};
  std::uint32_t generation_;  // of the process that made it
  FileDescriptor doorbell_;
  std::vector<std::shared_ptr<ProxyLink>> links_;  // the thread's
  std::atomic<bool> stopping_{false}, stopped_{false};
  std::atomic<bool> woken_{false};    // since the thread's last look
  std::atomic<bool> changed_{false};  // there are new links
  mutable std::mutex mutex_;          // of what follows
  std::vector<std::shared_ptr<ProxyLink>> new_links_;
  std::optional<Error> failure_;
};

}  // namespace tutti
