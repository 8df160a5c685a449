// A wire over TCP. Messages go from the slots of the sender's ring into the socket, and from the
// socket into the slots of the receiver's ring; nothing is copied in between, but for what is read
// together with a frame's header. Long ones may go from where they lie, and to where they are
// expected.
//
// What is published is sent at once, by the thread that publishes, header and payload in one system
// call (two small sends in a row would wait for each other's acknowledgement); what the socket does
// not take is sent with what has been published by then. Credits go along with whatever is sent.
//
// There may be two connections. All frames travel on the first, in both directions; but the bytes
// of one rank's long messages travel apart, on the second, in the order of their frames. While a
// thread sends on a socket, the kernel cannot deliver to it, so with long messages in both
// directions on one socket, each of the two ranks keeps the other waiting (docs/experiments.md).
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <vector>

#include "transport/wire.h"

namespace tutti {

class TcpWire final : public Wire {
 public:
  explicit TcpWire(Owner& owner) : Wire(owner), staged_(kStaging) {}

  std::string carrier() const override { return "tcp"; }
  bool lends() const override { return true; }

  /// From now on there is something to send over.
  void attach(Stream stream, Stream apart, bool sends_apart) override;
  /// There never will be, or not any more. Messages that are left are dropped.
  void shut() override;
  void say_bye() override;
  bool is_delivered() override;
  bool waits_for_room(std::size_t which) override;

 private:
  static constexpr std::size_t kFrames = 32;  // in a batch
  static constexpr std::size_t kBatchBytes = std::size_t{1} << 20;
  static constexpr std::size_t kTaken = std::size_t{256} << 10;  // at once, about
  static constexpr std::size_t kStaging = 8256;  // read without knowing what it is: a short message

  void push() override;
  void take() override;
  void announce(OutLink& link, const Opening& opening) override;
  void say_left(std::uint64_t group) override;
  bool has_unsent() const override {
    return !said_.empty() || first_.has_unsent() || apart_.has_unsent();
  }
  void drop(OutLink& link) override;
  void drop(InLink& link) override;
  bool keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) override;
  bool stop_landing(InLink& link) override;

  /// A part of what is to be sent; of a message, if it has a link.
  struct Payload {
    OutLink* link = nullptr;
    std::uint64_t number = 0;
    std::size_t bytes = 0;  // of all of it
  };
  /// A connection, and a batch for it of which some may have gone already.
  struct Outlet {
    Stream stream;
    std::array<iovec, 2 * kFrames> io;
    std::array<Payload, 2 * kFrames> payloads{};
    std::size_t parts = 0, next = 0;
    std::vector<std::vector<std::byte>> copied;  // parts whose memory is not to be had any more

    bool has_unsent() const { return next < parts || stream.has_unsent(); }
    void begin();
    void add(const void* data, std::size_t bytes, const Payload& payload);
    /// The rest of the parts for which `wanted` holds is copied.
    template <class Wanted>
    void copy(Wanted&& wanted);
  };
  /// A long message whose frame has come, but not all of its bytes; or what was said behind it.
  struct Coming {
    Frame frame;
    InLink* link = nullptr;   // null: its bytes are not wanted
    std::byte* to = nullptr;  // where the next byte goes; null: not known yet
    std::size_t missing = 0;
  };

  void close_with(const std::string& why);
  void close_after(int error);
  /// Collects what is to be sent next; false: nothing is.
  bool fill();
  void fill_with_messages();
  /// Sends the batch, as far as there is room.
  void send_batch(Outlet& outlet);
  void add(const Frame& frame, const void* payload, const Payload& of);
  /// Reads once; false: nothing is left in the socket.
  bool receive();
  bool receive_apart();
  /// What was read is understood, up to a part of a frame. False: it cannot be.
  bool parse();
  bool begin(const Frame& frame);
  bool finish();
  /// The peer has left a communicator, or says good-bye.
  void take_leave(const Frame& frame);

  Outlet first_, apart_;
  bool sends_apart_ = false, hears_apart_ = false;  // long messages
  // What the wire itself says.
  struct Said {
    Frame frame;
    Opening opening;
  };
  std::deque<Said> said_;
  /// As it is sent: what is short lies behind its frame, as one part costs less than two.
  struct Head {
    Frame frame;
    std::array<std::byte, std::max(kInlineBytes, sizeof(Opening))> payload;
  };
  static_assert(offsetof(Head, payload) == sizeof(Frame));
  std::array<Head, kFrames> frames_;
  std::size_t used_frames_ = 0;
  // Being received.
  std::vector<std::byte> staged_;
  std::size_t begin_ = 0, end_ = 0;
  std::vector<std::byte> waste_;  // for what is not wanted
  bool in_frame_ = false;
  Frame frame_;
  InLink* link_ = nullptr;   // of a data frame; null: its bytes are not wanted
  std::byte* to_ = nullptr;  // where the next byte goes; null: nowhere
  std::size_t missing_ = 0;  // bytes of the frame that have not come
  Opening opening_;
  std::deque<Coming> coming_;
  bool heard_bye_ = false;
  std::size_t taken_ = 0;  // bytes
};

}  // namespace tutti
