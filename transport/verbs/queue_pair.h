// A queue pair: one end of a reliable connection (RC), and its completion queue.
//
// The two ends describe themselves (VerbsAddress) and exchange the descriptions over some other
// channel, a socket. A queue pair can receive once it is connected, so the first request may be
// posted only after the peer has said, over that channel, that it is.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/verbs/device.h"

namespace tutti {

/// What the other side has to know of a queue pair. Plain bytes, to be sent as they are.
struct VerbsAddress {
  static constexpr std::uint32_t kMagic = 0x31525654;  // "TVR1"; another byte order reads another
  std::uint32_t magic = kMagic;
  std::uint32_t number = 0;        // of the queue pair
  std::uint32_t first_packet = 0;  // its sequence number; random, so that no old one fits
  std::uint16_t lid = 0;
  std::uint16_t mtu = 0;  // bytes
  std::uint8_t ethernet = 0;
  std::uint8_t most_reads = 0;  // that it answers at a time, of the peer's RDMA reads and atomics
  std::uint8_t unused[2] = {};
  std::array<std::uint8_t, 16> gid{};
};
static_assert(sizeof(VerbsAddress) == 36);

struct VerbsOptions {
  std::uint32_t send_depth = 256;     // requests under way
  std::uint32_t receive_depth = 512;  // notices that may come before this side has looked
  int timeout = 14;                   // 4.096 us * 2^timeout until a packet is sent again
  int retries = 6;                    // 7: for ever, on rdma_rxe
  int service_level = 0;
  int traffic_class = 0;

  /// With what TUTTI_VERBS_TIMEOUT and its like say.
  static VerbsOptions from_settings();
};

class VerbsQueuePair {
 public:
  /// Throws Error(system).
  VerbsQueuePair(std::shared_ptr<VerbsDevice> device, const VerbsOptions& options);
  ~VerbsQueuePair();
  VerbsQueuePair(const VerbsQueuePair&) = delete;
  VerbsQueuePair& operator=(const VerbsQueuePair&) = delete;

  const VerbsAddress& address() const { return address_; }
  /// Throws Error(mismatch) where `peer` is not what such an address can be, or of another network;
  /// Error(system) where the device refuses.
  void connect(const VerbsAddress& peer);
  /// From here on nothing is sent or received; what was posted completes as flushed.
  void stop();

  /// Post a chain of requests, from `first` on. Throws Error(system).
  void send(ibv_send_wr* first);
  void receive(ibv_recv_wr* first);
  /// The completions that have come, at most as many as `room` has.
  std::span<const ibv_wc> poll(std::span<ibv_wc> room);
  /// The misfortune that has been reported of it, of its completion queue or of the device, or
  /// VerbsMisfortune::kNone.
  int event() const;

  /// Readable when a completion has come after arm().
  int fd() const { return channel_->fd; }
  /// Reads what made fd() readable, and asks for more. Poll once more after it.
  void arm();

  const VerbsDevice& device() const { return *device_; }
  /// What the device gave, which may be more than asked for.
  const VerbsOptions& options() const { return options_; }
  std::size_t inline_bytes() const { return inline_bytes_; }

 private:
  template <auto destroy>
  struct Destroy {
    template <class T>
    void operator()(T* object) const {
      destroy(object);
    }
  };
  void modify(ibv_qp_attr attributes, int mask, const char* what);

  std::shared_ptr<VerbsDevice> device_;
  VerbsOptions options_;
  VerbsMisfortune own_, queue_;  // the thread that sets them knows their addresses
  std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>> channel_;
  std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>> completions_;
  std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>> pair_;
  VerbsAddress address_;
  std::size_t inline_bytes_ = 0;
  unsigned unacknowledged_ = 0;
};

}  // namespace tutti
