// A connection to one peer over RDMA: writes into the peer's memory, each with a 32-bit notice, and
// short messages.
//
// What a peer may conclude from what (InfiniBand Architecture Specification, o9-20): data that was
// written are there once the receiver has the completion of a later notice or message on the same
// queue pair. Nothing else says so: not the last byte of the data, not a second write that comes
// after them, not anything on another queue pair, and not the sender's own completion. (What a
// device promises beyond that, ibv_query_qp_data_in_order(), holds within one write, not between
// two.) So whatever is written is followed by a notice (WRITE_WITH_IMM) or a message, and the
// receiver looks at its completion queue, not into memory. That costs it a microsecond at most, and
// is right with every device, relaxed ordering and packets on different ways included.
//
// A notice or message uses up a receive request of the peer. They are posted ahead, and again as
// they are used. A peer that does not look for long makes notices wait in the sender's device.
//
// One thread at a time. Nothing here waits, but for stop_and_drain().
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "transport/verbs/memory_region.h"
#include "transport/verbs/queue_pair.h"

namespace tutti {

/// From registered memory here to registered memory of the peer.
struct VerbsWrite {
  const void* from = nullptr;
  std::uint32_t local_key = 0;
  std::uint64_t to = 0;
  std::uint32_t remote_key = 0;
  std::size_t bytes = 0;
  bool is_of_device = false;  // the memory here, which the processor must not copy
};

/// What the peer did.
struct VerbsEvent {
  std::uint32_t notice = 0;
  std::span<const std::byte>
      message;  // empty: it was a notice. Valid until the next poll() of its channel
};

class VerbsChannel {
 public:
  static constexpr std::size_t kMostMessage = 128;

  /// `peer`: its rank, for errors.
  VerbsChannel(std::shared_ptr<VerbsDevice> device, int peer,
               const VerbsOptions& options = VerbsOptions::from_settings());

  const VerbsAddress& address() const { return pair_.address(); }
  /// From here on the peer may write and send; this side may once the peer has done the same.
  void connect(const VerbsAddress& peer) { pair_.connect(peer); }

  /// Whether there is room for a write of so many bytes, if any, and so many messages, before
  /// completions have been polled.
  bool has_room(std::size_t bytes, std::size_t messages) const;
  /// Writes `data`, and has the peer notice `notice`, if there is one, when all of it is there. The
  /// memory is to stay as it is until the request is complete. There is room for it. It is on its
  /// way after submit().
  void write(const VerbsWrite& data, std::optional<std::uint32_t> notice);
  /// A message of 1 to kMostMessage bytes, in order with what is written. As write().
  void send(std::span<const std::byte> message);
  /// completed() comes to appended() as of now without anything else being sent.
  void report();
  void submit();

  /// Takes in completions, and returns what the peer did, in its order, without waiting for more.
  /// Throws the Error that ended the connection, from then on always; never before the events that
  /// came before it.
  std::span<const VerbsEvent> poll();

  /// Sees to it that completed() comes to submitted() without anything else being sent. Where there
  /// is no room for that, completions are on their way anyhow.
  void mark();
  /// Counts of requests, for callers that ask later which of them are complete: the peer's device
  /// has acknowledged them. The device reports that of one in a few.
  std::uint64_t appended() const { return appended_; }
  std::uint64_t submitted() const { return submitted_; }
  std::uint64_t completed() const { return completed_; }

  /// Ends the connection. True: the device has let go of all requests, so all memory is ours again;
  /// it does at once, and false is for one that is broken. (Destroying the channel has it let go,
  /// too; this is for callers that go on with the memory.)
  bool stop_and_drain(std::chrono::nanoseconds limit);

  /// As VerbsQueuePair.
  int fd() const { return pair_.fd(); }
  void arm() { pair_.arm(); }

  /// The longest `data` of a write().
  std::size_t most_bytes() const;
  const VerbsQueuePair& pair() const { return pair_; }
  const std::shared_ptr<VerbsDevice>& device() const { return device_; }
  int peer() const { return peer_; }

 private:
  // In a request's number, so that one that failed says what it was.
  enum Kind : std::uint64_t { kWrite = 1, kNotice, kMessage, kMarker, kReceive };
  static constexpr std::size_t kBatch = 32;      // completions polled at a time
  static constexpr std::size_t kPostAgain = 16;  // receive requests, as posting takes a while

  std::size_t piece_bytes() const;
  std::uint32_t free_requests() const;
  ibv_send_wr& append(Kind kind, ibv_wr_opcode opcode, const void* from, std::size_t bytes,
                      std::uint32_t local_key);
  void post_receives(std::span<const std::uint32_t> buffers);
  std::byte* receive_buffer(std::uint64_t index) { return buffers_.data() + index * kMostMessage; }
  std::byte* send_buffer(std::uint64_t index);
  void take(const ibv_wc& completion);
  void fail(const ibv_wc& completion);
  void fail(ErrorCode code, const std::string& what);
  /// Where the port is not active: that, for an error's text.
  std::string port_state() const;

  int peer_;
  std::shared_ptr<VerbsDevice> device_;
  std::vector<std::byte> buffers_;  // of messages: that come, then those that go
  std::unique_ptr<VerbsMemory> buffer_region_;
  VerbsQueuePair pair_;  // goes before the memory that it uses
  std::optional<Error> failure_;
  // Send requests are numbered from 1. One that is reported as completed stands for all before it.
  std::uint64_t appended_ = 0, signalled_ = 0, submitted_ = 0, completed_ = 0;
  std::vector<ibv_send_wr> batch_;  // not submitted
  std::vector<ibv_sge> pieces_;
  std::vector<ibv_recv_wr> receives_;
  std::vector<ibv_sge> receive_pieces_;
  std::vector<std::uint32_t> used_;  // buffers of receive requests to be posted again
  std::array<ibv_wc, kBatch> completions_;
  std::vector<VerbsEvent> events_;
};

}  // namespace tutti
