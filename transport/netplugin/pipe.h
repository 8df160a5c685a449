// Two connections of a network plugin, to a peer and back, as a stream of bytes each way.
//
// The sender writes into chunks, and each chunk becomes a message of the plugin. The other end
// always has the same number of receives posted, into chunks as well. The plugin cannot be told to
// give memory back that it sends from or receives into. So it gets chunks alone, and neither rings
// nor users' memory.
//
// If possible, a connection is not closed with receives under way: in some plugins that ends other
// connections, too. So in the end each side sends as many messages as its peer has receives posted,
// and the pipe stays until these have come (finish()).
//
// Every failure that the plugin reports becomes an Error(system).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/netplugin/plugin.h"
#include "transport/network/ring_memory.h"

namespace tutti {

class NetPluginPipe : public std::enable_shared_from_this<NetPluginPipe> {
 public:
  /// What the peer has to know; plain bytes.
  struct Address {
    std::array<char, 64> plugin{};
    NetPlugin::Handle handle{};
  };

  NetPluginPipe(NetPlugin& plugin, int device);
  /// Begins to listen.
  Address address();
  /// Begins to connect: move() goes on with it. Throws Error(mismatch) for another plugin's.
  void connect(const Address& address);
  /// Connects, sends and receives what can be.
  void move();

  /// Where at least `least` bytes can be written; empty: nowhere now. Nothing before it is
  /// connected, or after end().
  std::span<std::byte> room(std::size_t least);
  /// So many there.
  void wrote(std::size_t bytes);
  /// Whether the plugin has sent all that was written.
  bool is_sent() const { return begun_ == done_; }

  /// What has come, up to where its chunk ends; empty: nothing.
  std::span<const std::byte> came();
  void took(std::size_t bytes);
  /// The peer has ended; all that it has sent was taken.
  bool has_ended() const { return heard_end_; }

  /// Nothing more is written. It is over when finish() says so, or with close().
  void end();
  bool finish() noexcept;
  void close() noexcept;

 private:
  static constexpr std::size_t kChunks = 8, kChunkBytes = std::size_t{64} << 10;
  static_assert(kChunks <= netabi::kMostRequests);
  enum class State : std::uint8_t { fresh, connecting, up, closed };
  struct Chunk {
    std::size_t bytes = 0, taken = 0;
    void* request = nullptr;
  };

  void connect_on();
  void send();
  void receive();
  std::byte* out(std::uint64_t n) const { return memory_.data() + n % kChunks * kChunkBytes; }
  std::byte* in(std::uint64_t n) const { return out(n) + kChunks * kChunkBytes; }
  bool is_quiet() const;

  NetPlugin& plugin_;
  const int device_;
  State state_ = State::fresh;
  std::chrono::steady_clock::time_point until_;  // it has to be connected
  NetPlugin::Handle theirs_{};
  void *listener_ = nullptr, *sender_ = nullptr, *receiver_ = nullptr;
  const RingMemory memory_{2 * kChunks * kChunkBytes};
  void *sends_ = nullptr, *receives_ = nullptr;  // registrations of its halves

  std::array<Chunk, kChunks> out_{}, in_{};
  std::uint64_t begun_ = 0, given_ = 0, done_ = 0;   // chunks to send; the plugin has `given_`
  std::uint64_t posted_ = 0, here_ = 0, taken_ = 0;  // chunks to receive
  std::uint64_t last_ = UINT64_MAX;                  // of those
  std::uint64_t writes_ = 0;                         // the chunk that room() has given
  std::size_t ends_ = 0;                             // to be sent
  bool ending_ = false, heard_end_ = false;
};

}  // namespace tutti
