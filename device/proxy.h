// A thread that carries the messages of kernels to other processes, and theirs to ours, where the
// GPUs' memory cannot be mapped, or is on another host. A kernel sees slots and two counters as
// ever (lane_links.h), but they lie in pinned memory of its own process:
//
//     kernel -> slots of `far` -> | thread -> link -> thread | -> slots of `near` -> kernel
//              <- credit in near  |     <- its credit <-     |  <- credit in far
//
// The link is what any two ranks have between them (links.h): a Connection in the host's memory, or
// one ring at either host with a wire in between. Each hop is a bounded FIFO, so the three together
// are a longer one. The thread waits for nothing: it looks at every link in turn, moves what can be
// moved, and drives the wires of those that lead to other hosts.
//
// A header does not say how long its message is. But a slot that is handed back to the kernel is
// all zeros again, and the receiver's slot is zero beyond the message: so the zeros at a slot's end
// need not travel, be they the message's own or not.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/execute/cuda/segment.h"
#include "core/error.h"
#include "device/link_ends.h"
#include "transport/socket.h"

namespace tutti {

/// Both directions between a rank of this process and one of another, on all channels.
class ProxyLink {
 public:
  struct Ends {
    int rank = 0, peer = 0;
    std::byte* near = nullptr;  // this rank's segment, in memory of the host
    std::byte* far = nullptr;   // what its kernels take for the peer's
    LinkEnds links;             // for each channel
  };
  /// `slot_bytes`: the most that a message of the links has.
  ProxyLink(const device::SegmentShape& shape, std::size_t slot_bytes, Ends ends);

  /// Moves what can be moved; false if that was nothing. Throws Error(internal) when the peer has
  /// sent what cannot be; the link must not be used any more. One thread.
  bool advance();
  /// Whether everything that our kernels have sent is on its way, and has left this process if it
  /// goes to another host. From any thread.
  bool is_flushed() const;

 private:
  struct Channel {
    SendEnd out{};
    ReceiveEnd in{};
    std::uint64_t forwarded = 0, delivered = 0;     // messages
    std::uint32_t filled[device::kMostSlots] = {};  // bytes in near's slots that may not be zero
  };

  bool forward(std::uint32_t channel);
  bool deliver(std::uint32_t channel);
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
  /// Links are not touched any more once this has returned.
  void stop();
  /// Why a link does not work any more, if one does not.
  std::optional<Error> failure() const;

 private:
  DeviceProxy();
  void run(int stop_fd);
  /// One look at all links: whether something was moved.
  bool advance();
  bool is_flushed() const;

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
