// An endpoint does what a network can do for two ranks of different hosts: it finds the other end,
// moves messages of links and short control messages, and says what it has finished with. It knows
// nothing of communicators, credit, or the order in which links take turns: one link layer above it
// (wire.h) does all of that for every network.
//
// A message is a header and a payload. There are two ways to bring the payload to its place:
//
//   - Two-sided (TCP, UCX, net plugins). The receiving endpoint reads the header and asks its sink
//     where the payload goes (Sink::on_header()), before it receives it there.
//   - One-sided (RDMA verbs). The sender knows where the receiver wants the payload (Put::to) and
//     writes there; the header, or a notice of 32 bits, follows and says that it is there.
//
// Nothing here waits, but for drain(). The wire calls an endpoint with its lock held, one thread at
// a time. An endpoint calls its sink from within poll(), and, where it learns there that the
// connection broke, from within any call.
//
// To add a network: a folder with an Endpoint and an EndpointMaker, and a WireKind
// (CONTRIBUTING.md). tests/transport/endpoint_test.cpp says whether it is one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/network/message.h"
#include "transport/sockets/stream.h"

namespace tutti {

/// Memory that a network has been told of, for as long as this lives.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  /// What a one-sided peer needs to write there.
  virtual std::uint32_t remote_key() const { return 0; }
};

/// Memory of a GPU, as its driver gives it to other devices: `bytes` from `offset` on of a dma-buf.
/// Whole pages; no processor reads or writes them.
struct DeviceMemory {
  int dma_buf = -1;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;  // as the GPU addresses it
  std::size_t bytes = 0;
};

class Endpoint {
 public:
  /// What a network can do.
  struct Abilities {
    /// How many TCP connections it runs over, 2 at most. None: it reaches the peer by address().
    std::size_t streams = 0;
    /// put() writes to Put::to, and messages are there in the order in which they were sent. Else
    /// the receiving endpoint asks where a payload goes, and payloads may be complete in any order.
    bool one_sided = false;
    /// Headers come in the order in which they were sent.
    bool ordered = true;
    /// take_back() and redirect() free memory at once.
    bool cancels = false;
    /// Messages of so many bytes that lie behind each other may go as one (MessageHeader::more).
    std::size_t runs_from = SIZE_MAX;
    /// Users' memory has to be registered.
    bool registers = false;
    /// A descriptor is readable whenever something has come. Else it is after arm() alone.
    bool level_triggered = false;
    /// There are descriptors, its own or its maker's. Else it has to be polled: threads that wait
    /// do so every 0.5 ms, and without any, the reactor every 10 ms. They also call submit() then,
    /// and where a descriptor is ready, as long as is_flushed() is false.
    bool wakes = true;
    /// is_delivered() knows when the peer has all. Else the peer has to say so.
    bool confirms = false;
    /// Messages of so many bytes may be sent from, and received in, users' memory. SIZE_MAX: none.
    std::size_t least_direct = SIZE_MAX;
    /// Memory of GPUs may be registered. The same at both ends: whether a network card and a GPU
    /// can really do it, register_device() says.
    bool device_memory = false;
    /// The longest payload.
    std::size_t most_bytes = SIZE_MAX;
  };

  /// What the link layer hears. `wrong`: the peer has sent what cannot be, so the endpoint has
  /// nothing more to do with it. `last`: nothing comes after it but payloads that are under way.
  enum class Heard : std::uint8_t { wrong, fine, last };
  class Sink {
   public:
    struct Target {
      bool known = false;           // false: as Heard::wrong
      std::byte* to = nullptr;      // null: the payload is not wanted
      std::shared_ptr<void> keeps;  // the memory of `to`; null: it is a user's, and stays until
                                    // redirect()
      const MemoryRegion* region = nullptr;  // in which `to` lies, where it is a link's ring
    };
    virtual ~Sink() = default;
    /// Where the payload of this message goes, which comes next. Asked once, when it begins.
    virtual Target on_header(const MessageHeader& header) = 0;
    /// All of the message is at its place.
    virtual Heard on_message(const MessageHeader& header) = 0;
    /// A one-sided put with this notice is at its place.
    virtual Heard on_notice(std::uint32_t notice) = 0;
    virtual Heard on_control(const MessageHeader& header, const std::byte* control) = 0;
    /// There is room again after put() or send() has had none, and nobody is about to poll.
    virtual void on_room() = 0;
    /// The connection is over; `why`: for users.
    virtual void on_closed(const std::string& why) = 0;
  };

  explicit Endpoint(Sink& sink) : sink_(sink) {}
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default;

  virtual const Abilities& abilities() const = 0;
  /// What carries the bytes, for people: "tcp", "verbs, mlx5_0 port 1", "ucx (sysv, cma)".
  virtual std::string carrier() const = 0;

  /// What the peer's endpoint has to know to connect().
  virtual std::vector<std::byte> address() { return {}; }
  /// To the peer of this address, or over these streams. This side may send when the peer has
  /// connected, too. A failure is the sink's to hear.
  /// `sends_on_second`: the second stream is for this side's long messages, else for the peer's.
  virtual void connect(std::span<const std::byte> address) { (void)address; }
  virtual void connect(Stream first, Stream second, bool sends_on_second) {
    (void)first, (void)second, (void)sends_on_second;
  }
  /// One more stream, over another way to the peer. The peer adds it as its next one, too.
  virtual void add_stripe(Stream stripe) { (void)stripe; }
  static constexpr std::size_t kMostStripes = 7;

  /// What the network knows a link's ring by; null: it needs nothing. Throws Error(system) where
  /// the network cannot reach it.
  virtual std::shared_ptr<MemoryRegion> register_ring(std::byte* /*memory*/,
                                                      std::size_t /*bytes*/) {
    return {};
  }
  /// Where abilities().registers: the window (core/window_memory.h) that holds this memory. Null:
  /// there is none, or the network cannot reach it. Thread-safe, without the wire's lock. May take
  /// ms for MiB.
  virtual std::shared_ptr<const MemoryRegion> window_region(const std::byte* /*memory*/,
                                                            std::size_t /*bytes*/) {
    return {};
  }

  /// Where abilities().one_sided: memory that the peer may write to, until nobody holds this any
  /// more. Endpoints of one device share it by `key`. Null: the network cannot reach the memory.
  /// Thread-safe, as window_region().
  virtual std::shared_ptr<MemoryRegion> expose(std::uint64_t /*key*/, std::byte* /*memory*/,
                                               std::size_t /*bytes*/) {
    return {};
  }

  /// Where abilities().device_memory: puts may send from there, and write there, as long as
  /// somebody holds this. The memory outlives it. Thread-safe, without the wire's lock. Throws
  /// Error(system) where the network card cannot reach this memory.
  virtual std::shared_ptr<MemoryRegion> register_device(const DeviceMemory& /*memory*/) {
    return {};
  }

  struct Put {
    MessageHeader header;
    const std::byte* payload = nullptr;
    std::shared_ptr<void> keeps;           // the payload's memory; null: it stays until completed()
    const MemoryRegion* region = nullptr;  // in which the payload lies; valid in put() alone
    RemotePlace to;                        // one-sided, of a payload longer than kInlineBytes
    std::uint32_t notice = 0;              // one-sided: says all that the header would
  };
  /// Whether there is room for a message of `bytes`: yes; for no long message (is_long_message());
  /// or for none at all.
  enum class Room : std::uint8_t { yes, not_for_long, none };
  virtual Room room(std::size_t bytes) = 0;
  /// Takes a message, for which there is room.
  virtual void put(const Put& put) = 0;
  /// Takes a control message of at most kMostControl bytes. False: there is no room.
  static constexpr std::size_t kMostControl = 128;
  virtual bool send(const MessageHeader& header, const void* control) = 0;
  /// Sends what was taken, as far as the network takes it. True: there is room again where there
  /// was none.
  virtual bool submit() = 0;
  /// Takes in what has come, for the sink.
  virtual void poll() = 0;

  /// Puts, from 1. The network needs none of the payloads up to completed() any more.
  virtual std::uint64_t appended() const = 0;
  virtual std::uint64_t completed() const = 0;
  /// Whether all that was taken has left this process, as far as that is its matter.
  virtual bool is_flushed() = 0;
  /// Whether the peer has all that was taken, or never will (Abilities::confirms).
  virtual bool is_delivered() { return false; }

  /// Where abilities().cancels: payloads in this memory are copied, as far as they are not sent.
  virtual void take_back(const std::byte* /*begin*/, const std::byte* /*end*/) {}
  /// Where abilities().cancels: the missing rest of the messages of `link` that are under way goes
  /// to where Sink::on_header() says now.
  virtual void redirect(std::uint32_t /*link*/) {}

  /// Two at most; -1: none.
  virtual std::array<int, 2> descriptors() const { return {-1, -1}; }
  /// Makes the descriptors readable when something comes from now on. False: something has come.
  virtual bool arm() { return true; }
  /// Whether more will be sent when descriptor `which` is writable. From 2 on: the stripes'.
  virtual bool wants_room(std::size_t /*which*/) const { return false; }

  // The end, in two steps:
  /// When this returns, users' memory is neither read nor written any more, as far as the peer
  /// lives; `hard`: whatever has to be given up for that.
  virtual void drain(bool /*hard*/) {}
  /// `in_peace`: the peer has said good-bye. Nothing is sent or received any more.
  virtual void close(bool in_peace) = 0;

 protected:
  /// The connection is over; the sink hears it once.
  void fail(const std::string& why) {
    if (!std::exchange(failed_, true)) sink_.on_closed(why);
  }

  Sink& sink_;
  bool failed_ = false;
};

/// A network, as one rank uses it: makes its endpoints, and has what they share.
class EndpointMaker {
 public:
  virtual ~EndpointMaker() = default;
  /// To rank `peer`; `port`: of this rank, where the route names one (wire_choice.h).
  virtual std::unique_ptr<Endpoint> make(Endpoint::Sink& sink, int peer, int port) = 0;
  /// Whether its endpoints run over streams that Tutti makes (Endpoint::Abilities::streams). Then
  /// what they carry can be encrypted, and sockets tell of all that comes.
  virtual bool uses_streams() const { return false; }
  /// The lock of all wires over these endpoints, where they share something; null: they do not.
  virtual std::mutex* lock() { return nullptr; }
  // Of what the endpoints share:
  /// Readable when something has come for any of them after arm(); -1: there is none.
  virtual int descriptor() const { return -1; }
  /// False: something has come already. Without the lock.
  virtual bool arm() { return true; }
};

}  // namespace tutti
