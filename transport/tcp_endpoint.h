// An endpoint over TCP. Messages go from where they lie into the socket, and from the socket to
// their places; nothing is copied in between, but for what is read together with a header.
//
// What is published is sent at once, by the thread that publishes, header and payload in one system
// call (two small sends in a row would wait for each other's acknowledgement); what the socket does
// not take is sent with what has been published by then.
//
// There may be two connections. All headers travel on the first, in both directions; but the
// payloads of one rank's long messages travel on the second, in the order of their headers.
// While a thread sends on a socket, the kernel cannot deliver to it, so with long messages in both
// directions on one socket, each of the two ranks keeps the other waiting (docs/experiments.md).
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "transport/endpoint.h"
#include "transport/remote_link.h"

namespace tutti {

class TcpEndpoint final : public Endpoint {
 public:
  explicit TcpEndpoint(Sink& sink) : Endpoint(sink), staged_(kStaging) {}

  const Abilities& abilities() const override;
  std::string carrier() const override { return "tcp"; }
  void connect(Stream first, Stream second, bool sends_on_second) override;

  Room room(std::size_t bytes) override;
  void put(const Put& put) override;
  bool send(const MessageHeader& header, const void* control) override;
  bool submit() override;
  void poll() override;
  std::uint64_t appended() const override { return appended_; }
  std::uint64_t completed() const override;
  bool is_flushed() override { return hung_up_ || (!first_.has_unsent() && !second_.has_unsent()); }
  bool is_delivered() override;
  void take_back(const std::byte* begin, const std::byte* end) override;
  void redirect(std::uint32_t link) override;
  std::array<int, 2> descriptors() const override {
    return {first_.stream.fd(), second_.stream.fd()};
  }
  bool wants_room(std::size_t which) const override {
    return !hung_up_ && (which == 0 ? first_ : second_).has_unsent();
  }
  void close(bool in_peace) override;

 private:
  static constexpr std::size_t kHeaders = 32;  // in a batch
  static constexpr std::size_t kBatchBytes = std::size_t{1} << 20;
  static constexpr std::size_t kTaken = std::size_t{256} << 10;  // at once, about
  // Read without knowing what it is: a message that is not long, and the next one's header.
  static constexpr std::size_t kStaging = 8192 + 2 * sizeof(MessageHeader);
  struct Outlet {
    Stream stream;
    std::array<iovec, 2 * kHeaders> io;
    /// Of a part: the put whose payload it is, or 0, and its memory.
    struct Payload {
      std::uint64_t put = 0;
      std::shared_ptr<void> keeps;
    };
    std::array<Payload, 2 * kHeaders> payloads;
    std::size_t parts = 0, next = 0;
    std::vector<std::vector<std::byte>> copied;  // parts whose memory was taken back

    bool is_sent() const { return next == parts; }
    bool has_unsent() const { return !is_sent() || stream.has_unsent(); }
    void begin();
    void drop();  // what is not sent
    void add(const void* data, std::size_t bytes, std::uint64_t put, std::shared_ptr<void> keeps);
  };
  /// A header, and what is short behind it: one part costs less than two.
  struct Head {
    MessageHeader header;
    std::array<std::byte, kMostControl> payload;
  };
  static_assert(offsetof(Head, payload) == sizeof(MessageHeader));
  /// A message that is being received.
  struct Coming {
    MessageHeader header;
    bool placed = false;      // its sink has said where
    std::byte* to = nullptr;  // where the next byte goes; null: nowhere
    std::size_t missing = 0;  // bytes that have not come
    std::shared_ptr<void> keeps;
  };

  /// Opens a batch, unless one is on its way. False: there is no room in it.
  bool may_add();
  void add(const MessageHeader& header, const void* payload, std::uint64_t put,
           const std::shared_ptr<void>& keeps);
  void send_batch(Outlet& outlet);
  /// Reads once; false: nothing is left in the socket.
  bool receive();
  bool receive_second();
  /// What was read is understood, up to a part of a header. False: it cannot be.
  bool parse();
  bool begin_message();
  bool finish_message();
  /// False: its sink does not know it.
  bool place(Coming& coming);
  /// What is read and not wanted.
  std::byte* waste(std::size_t& bytes);
  bool heard(Heard heard);
  void fail_after(int error);
  /// The peer takes nothing any more, but what it had sent before is still to be read.
  void cannot_send(int error);

  Outlet first_, second_;
  bool hung_up_ = false;  // the peer has: what is to be sent is dropped
  bool sends_on_second_ = false, receives_on_second_ = false;  // long messages
  bool filling_ = false, is_second_free_ = false;              // the batch
  std::array<Head, kHeaders> heads_;
  std::size_t used_heads_ = 0, batch_bytes_ = 0;
  std::uint64_t appended_ = 0;
  // Being received.
  std::vector<std::byte> staged_;
  std::size_t begin_ = 0, end_ = 0;
  std::vector<std::byte> waste_;
  bool in_message_ = false;
  Coming now_;
  std::array<std::byte, kMostControl> control_;
  std::deque<Coming> coming_;  // on the second
  bool heard_last_ = false;
  std::size_t taken_ = 0;  // bytes
};

class TcpEndpoints final : public EndpointMaker {
 public:
  std::unique_ptr<Endpoint> make(Endpoint::Sink& sink, int, int) override {
    return std::make_unique<TcpEndpoint>(sink);
  }
};

}  // namespace tutti
