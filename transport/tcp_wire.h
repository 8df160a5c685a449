// A wire over a TCP connection. Messages go from the slots of the sender's ring into the socket,
// and from the socket into the slots of the receiver's ring; nothing is copied in between, but for
// what is read together with a frame's header. Long ones may go from where they lie, and to where
// they are expected.
//
// What is published is sent at once, by the thread that publishes, header and payload in one system
// call (two small sends in a row would wait for each other's acknowledgement); what the socket does
// not take is sent with what has been published by then. Credits go along with whatever is sent.
#pragma once

#include <sys/uio.h>

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
  bool moves_any_memory() const override { return true; }

  /// From now on there is something to send over.
  void attach(Stream stream) override;
  /// There never will be, or not any more. Messages that are left are dropped.
  void shut() override;
  void say_bye() override;
  bool is_delivered() override;

 private:
  static constexpr std::size_t kFrames = 32;  // in a batch
  static constexpr std::size_t kBatchBytes = std::size_t{1} << 20;
  static constexpr std::size_t kStaging = 16384;  // read without knowing what it is

  void push() override;
  void take() override;
  void announce(OutLink& link, const Opening& opening) override;
  void say_left(std::uint64_t group) override;
  bool has_unsent() const override {
    return !said_.empty() || next_part_ < parts_ || stream_.has_unsent();
  }
  void drop(OutLink& link) override;
  void drop(InLink& link) override;
  void keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) override;
  void stop_landing(InLink& link) override;

  /// The rest of the parts of the batch for which `wanted` holds is copied.
  template <class Wanted>
  void copy_parts(Wanted&& wanted);
  void close_with(const std::string& why);
  void close_after(int error);
  /// Collects what is to be sent next; false: nothing is.
  bool fill();
  void add(const Frame& frame, const void* payload);
  /// Reads once; false: nothing is left in the socket.
  bool receive();
  /// What was read is understood, up to a part of a frame. False: it cannot be.
  bool parse();
  bool begin(const Frame& frame);
  bool finish();

  Stream stream_;
  // To send: what the wire itself says, and a batch of which a part may have gone already.
  struct Said {
    Frame frame;
    Opening opening;
  };
  std::deque<Said> said_;
  std::array<Said, kFrames> frames_;
  std::array<iovec, 2 * kFrames> io_;
  struct Payload {
    OutLink* link = nullptr;
    std::uint64_t number = 0;
  };
  std::array<Payload, 2 * kFrames> payloads_{};  // what a part is; no link: something else
  std::size_t parts_ = 0, next_part_ = 0, used_frames_ = 0;
  std::vector<std::vector<std::byte>> copied_;  // parts whose memory is not to be had any more
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
};

}  // namespace tutti
