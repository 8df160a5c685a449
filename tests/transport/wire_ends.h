// Two ends of a wire for tests, over any network, and messages between them whose bytes differ by
// message and by position.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "transport/network/endpoint.h"
#include "transport/network/wire.h"

namespace tutti::test {

/// A network whose two sides, 0 and 1, are in this process.
class TestNetwork {
 public:
  virtual ~TestNetwork() = default;
  virtual std::unique_ptr<Endpoint> make(int side, Endpoint::Sink& sink) = 0;
  /// The lock of the wires of this side, where they share one.
  virtual std::mutex* lock(int /*side*/) { return nullptr; }
  /// So many further streams.
  virtual int stripes() const { return 0; }
};

/// Two TCP connections over loopback; the second is empty where there is to be one alone.
struct TcpStreams {
  explicit TcpStreams(bool two);
  Stream first[2], second[2];  // by side
};

/// One end, and what its wire has said.
struct End final : Wire::Owner {
  explicit End(const Wire::MakeEndpoint& make, std::mutex* lock = nullptr)
      : wire(*this, make, lock) {}
  void on_left(std::uint64_t group) override { left.push_back(group); }
  void on_closed(const std::string& why, bool) override {
    is_closed = true;
    why_closed = why;
  }
  void on_polled() override {}

  Sender& sender(std::uint64_t channel, const ConnectionShape& shape, std::uint64_t group = 1) {
    return wire.out({group, channel}, shape, doorbell).sender();
  }
  /// Receiving end of a link, which rings its sender when it has freed.
  InLink& in(std::uint64_t channel, const ConnectionShape& shape, std::uint64_t group = 1) {
    return wire.in({group, channel}, shape, doorbell);
  }
  OutLink& out(std::uint64_t channel, const ConnectionShape& shape, std::uint64_t group = 1) {
    return wire.out({group, channel}, shape, doorbell);
  }

  Doorbell doorbell{};
  std::vector<std::uint64_t> left;
  bool is_closed = false;
  std::string why_closed;
  Wire wire;
};

/// Has both wires connected, over streams (two of them where `two_streams`, and `stripes`) or by
/// their addresses.
void connect(Wire& a, Wire& b, bool two_streams = true, int stripes = 0);

/// Ranks 0 and 1.
struct TwoEnds {
  explicit TwoEnds(TestNetwork& network, bool two_streams = true)
      : a([&](Endpoint::Sink& sink) { return network.make(0, sink); }, network.lock(0)),
        b([&](Endpoint::Sink& sink) { return network.make(1, sink); }, network.lock(1)) {
    connect(a.wire, b.wire, two_streams, network.stripes());
  }
  void poll() {
    a.wire.poll_and_tell();
    b.wire.poll_and_tell();
  }
  /// Polls both until then; false after `limit`.
  bool until(const std::function<bool()>& condition,
             std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      poll();
    }
    return true;
  }

  End a, b;
};

/// About the lengths at which a message goes another way.
inline constexpr std::size_t kMessageSizes[] = {0,  1,  47,   48,   49,   63,
                                                64, 65, 4095, 4096, 4097, 16384};

/// Differs by message and by position.
inline std::byte pattern(std::uint64_t message, std::size_t i) {
  return static_cast<std::byte>((message * 31 + i * 7 + (i >> 8) * 13 + (i >> 16)) & 0xff);
}
inline void fill(std::byte* to, std::uint64_t message, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = pattern(message, i);
}
/// The first position that is wrong; `bytes`: none is.
inline std::size_t first_wrong(const std::byte* at, std::uint64_t message, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (at[i] != pattern(message, i)) return i;
  }
  return bytes;
}

inline bool try_send(OutLink& link, std::uint64_t message, std::size_t bytes) {
  Sender& sender = link.sender();
  if (!sender.ready(bytes)) return false;
  fill(sender.slot(bytes), message, bytes);
  sender.publish(static_cast<std::uint32_t>(message), static_cast<std::uint32_t>(bytes));
  link.rung();
  return true;
}

/// True: message `message` of `bytes` was there, and right. Throws where it is not right.
inline bool try_receive(InLink& link, std::uint64_t message, std::size_t bytes) {
  Receiver& receiver = link.receiver();
  if (!receiver.ready()) return false;
  if (receiver.tag() != static_cast<std::uint32_t>(message) || receiver.bytes() != bytes) {
    throw Error(ErrorCode::internal, "a message has another tag or length");
  }
  const std::size_t wrong = first_wrong(receiver.slot(bytes), message, bytes);
  if (wrong != bytes) {
    throw Error(ErrorCode::internal, "message " + std::to_string(message) + " of " +
                                         std::to_string(bytes) + " bytes is wrong at " +
                                         std::to_string(wrong));
  }
  receiver.free();
  link.rung();
  return true;
}

}  // namespace tutti::test
