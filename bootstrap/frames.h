// Frames: the messages over a connection after both ends have proved themselves. A frame is a type,
// a length, a payload of at most 1,280 bytes, and a MAC over these under the connection's keys.
// Sockets are non-blocking: a FrameReader reads what has arrived, an Outbox sends as much as the
// socket takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti::protocol {

/// Each type is sent once over a connection, and in one direction, so nobody can replay a frame.
enum class FrameType : std::uint32_t {
  hello = 1,      // rank -> server
  placement = 2,  // server -> rank
  have = 3,       // rank -> server
  trouble = 4,    // rank -> server; in place of a hello: the rank cannot join
  go = 5,         // server -> rank
  failed = 6,     // server -> rank
  child = 7,      // rank -> its parent
  question = 8,   // the first rank -> the meeting point of one that has not come
};

constexpr std::size_t kMaxPayload = 1280;

using Buffer = std::shared_ptr<const std::vector<std::byte>>;

/// A frame as it travels.
Buffer frame(const Session& session, FrameType type,
             std::initializer_list<std::span<const std::byte>> payload);

enum class FrameResult : std::uint8_t {
  more,    // will come
  whole,   // the frame is there
  closed,  // the connection is closed
  wrong,   // too long, or altered on its way
};

class FrameReader {
 public:
  /// Reads the arrived part of the next frame, and nothing beyond it. After `whole`, the next call
  /// begins another frame.
  FrameResult read(const FileDescriptor& socket, const Session& session);
  FrameType type() const { return head_.type; }
  std::span<const std::byte> payload() const {
    return std::span(bytes_).subspan(sizeof head_, head_.bytes);
  }
  /// The payload as one T, if it has that size.
  template <typename T>
  std::optional<T> payload_as() const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (payload().size() != sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(static_cast<void*>(&value), payload().data(), sizeof value);
    return value;
  }

 private:
  friend Buffer frame(const Session&, FrameType, std::initializer_list<std::span<const std::byte>>);
  struct Head {
    FrameType type{};
    std::uint32_t bytes = 0;  // of the payload
  };
  static_assert(sizeof(Head) == 8);

  Head head_;
  std::vector<std::byte> bytes_;
  std::size_t received_ = 0;
};

/// The frames that a connection still has to send, in order.
class Outbox {
 public:
  void add(Buffer buffer) { buffers_.push_back(std::move(buffer)); }
  bool empty() const { return buffers_.empty(); }
  /// Sends as much as the socket takes. False: the connection is gone.
  bool send(const FileDescriptor& socket);

 private:
  std::deque<Buffer> buffers_;
  std::size_t sent_ = 0;  // of the first
};

}  // namespace tutti::protocol
