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
//
// Where there are several ways to the peer, more connections come, one for each further way: the
// stripes. A long message is then cut into equal parts: the first travels as it would without
// stripes, each other one on a stripe. The header says on how many. A stripe has the parts of
// messages of both directions, in the order of their headers.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "transport/network/endpoint.h"
#include "transport/network/remote_link.h"

namespace tutti {

class TcpEndpoint final : public Endpoint {
 public:
  explicit TcpEndpoint(Sink& sink) : Endpoint(sink), staged_(kStaging) {}

  const Abilities& abilities() const override;
  std::string carrier() const override { return "tcp"; }
  void connect(Stream first, Stream second, bool sends_on_second) override;
  void add_stripe(Stream stripe) override;

  Room room(std::size_t bytes) override;
  void put(const Put& put) override;
  bool send(const MessageHeader& header, const void* control) override;
  bool submit() override;
  void poll() override;
  std::uint64_t appended() const override { return appended_; }
  std::uint64_t completed() const override;
  bool is_flushed() override {
    return hung_up_ ||
           std::ranges::none_of(outlets(), [](const Outlet& o) { return o.has_unsent(); });
  }
  bool is_delivered() override;
  void take_back(const std::byte* begin, const std::byte* end) override;
  void redirect(std::uint32_t link) override;
  std::array<int, 2> descriptors() const override {
    return {first_.stream.fd(), second_.stream.fd()};
  }
  bool wants_room(std::size_t which) const override {
    return !hung_up_ && outlets_[which].has_unsent();
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
  /// A message of which some parts are still to come.
  struct Striped {
    MessageHeader header;
    std::byte* to = nullptr;  // null: nowhere
    std::shared_ptr<void> keeps;
    std::size_t parts = 0;  // that are missing
  };
  /// A message, or a part of one, that is being received.
  struct Coming {
    MessageHeader header;
    bool placed = false;      // its sink has said where
    std::byte* to = nullptr;  // where the next byte goes; null: nowhere
    std::size_t missing = 0;  // bytes that have not come
    std::shared_ptr<void> keeps;
    std::size_t end = 0;       // of it, in the message
    Striped* whole = nullptr;  // whose part it is
  };

  /// Where part `part` of `parts` of a message of `bytes` ends.
  static std::size_t end_of(std::size_t part, std::size_t parts, std::size_t bytes);
  /// Opens a batch, unless one is on its way. False: there is no room in it.
  bool may_add();
  void add(const MessageHeader& header, const void* payload, std::uint64_t put,
           const std::shared_ptr<void>& keeps);
  void send_batch(Outlet& outlet);
  /// Reads once; false: nothing is left in the socket.
  bool receive();
  bool receive_payloads(std::size_t which);
  void receive_all_payloads(std::size_t most);
  /// What was read is understood, up to a part of a header. False: it cannot be.
  bool parse();
  bool begin_message();
  bool begin_striped();
  bool finish_message();
  /// All of this message, or part, has come.
  bool has_come(const Coming& coming);
  /// False: its sink does not know it.
  bool place(Coming& coming);
  /// What is read and not wanted.
  std::byte* waste(std::size_t& bytes);
  bool heard(Heard heard);
  /// Of a socket whose peer has closed it, or died; 0: the end of what it had sent.
  static bool is_hang_up(int error);
  void fail_after(int error);
  /// The peer takes nothing any more, but what it had sent before is still to be read.
  void cannot_send(int error);

  static constexpr std::size_t kFirstStripe = 2;
  std::span<Outlet> outlets() { return std::span(outlets_).first(kFirstStripe + stripes_); }
  std::span<const Outlet> outlets() const {
    return std::span(outlets_).first(kFirstStripe + stripes_);
  }
  /// On how many stripes a message of `bytes` is sent in this batch.
  std::size_t stripes_for(std::size_t bytes) const {
    return is_long_message(bytes) ? batch_stripes_ : 0;
  }

  std::array<Outlet, kFirstStripe + kMostStripes> outlets_;
  Outlet& first_ = outlets_[0];
  Outlet& second_ = outlets_[1];
  std::size_t stripes_ = 0;
  bool hung_up_ = false;  // the peer has: what is to be sent is dropped
  bool sends_on_second_ = false, receives_on_second_ = false;  // long messages
  bool filling_ = false, are_others_free_ = false;             // the batch: all but the first
  std::size_t batch_stripes_ = 0;
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
  std::array<std::deque<Coming>, kFirstStripe + kMostStripes> coming_;  // on all but the first
  std::list<Striped> striped_;
  bool heard_last_ = false;
  std::size_t taken_ = 0;  // bytes
};

}  // namespace tutti
