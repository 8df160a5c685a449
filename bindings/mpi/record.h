// The records of messages, as they lie in the rings that ranks write to each other.
//
// Rank r's window has, for each other rank p, a ring that p alone writes, and a place where p says
// how far it has read of the ring that r writes at p:
//
//     front | credit of rank 0, 1, ... | ring of rank 0, 1, ...
//
// A record begins on a line of the cache. Its stamp is its number in the ring: a reader that sees
// the number it expects sees the record. The writer clears the next stamp before it writes this
// one, so what lies there from an earlier lap is not taken for one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::mpi {

enum class RecordKind : std::uint16_t {
  none = 0,
  skip,      // nothing, up to the end of the ring
  eager,     // a message with its data
  request,   // a message whose data lies at the sender
  ready,     // the receiver wants the data
  data,      // a part of it
  taken,     // the receiver has the data, or as much of it as it wants
  question,  // of one who wants something of a window here (window_far.h)
  answer,    // to a question
  bye,       // no record follows
};

/// Of a message whose data does not come with the envelope.
struct Rendezvous {
  std::uint64_t bytes = 0;     // of the message; `data`: where this part begins; else how many
  std::uint64_t sender = 0;    // number of the send, or of the question
  std::uint64_t receiver = 0;  // number of the receive
  std::uint64_t address = 0;   // of the data in the sender's process
};

struct Header {
  std::uint32_t stamp = 0;
  RecordKind kind = RecordKind::none;
  std::uint16_t unused = 0;
  std::uint64_t context = 0;  // of the communicator, in which the source is a rank
  std::int32_t source = 0;
  std::int32_t tag = 0;
  std::uint32_t payload = 0;  // bytes behind the header
  std::uint32_t unused2 = 0;
};
static_assert(sizeof(Header) == 32 && sizeof(Rendezvous) == 32);

constexpr std::size_t kLine = 64;
constexpr std::size_t kMostPayload = std::size_t{16} << 10;  // without the Rendezvous of `data`

constexpr std::size_t record_bytes(std::size_t payload) {
  return (sizeof(Header) + payload + kLine - 1) / kLine * kLine;
}

/// Of the record after the one with stamp `n`: numbers that go round, without 0, which is no stamp.
constexpr std::uint32_t next_stamp(std::uint32_t n) { return n + 1 == 0 ? 1 : n + 1; }

/// What a rank says of the ring that another one writes to it.
struct alignas(kLine) Credit {
  std::atomic<std::uint64_t> head{0};   // bytes that it has read
  std::atomic<std::uint64_t> eager{0};  // bytes of eager messages that receives have taken
};

/// For those that wake the rank, or copy from its memory.
struct alignas(kLine) Front {
  std::atomic<std::uint32_t> sleeps{0};
  std::atomic<std::uint32_t> bell{0};  // a futex
  std::int32_t pid = 0;
  std::uint32_t light = 0;  // its process has joined the heavy fences
  std::uint64_t probe = 0;  // where `probed` lies in the process
  std::uint64_t probed = 0;
};
static_assert(sizeof(Front) == kLine && sizeof(Credit) == kLine);

/// Where things lie in the window of a rank of `ranks`.
struct WindowShape {
  std::size_t ranks = 1;
  std::size_t ring = 0;

  static WindowShape of(int ranks) {
    const std::size_t n = static_cast<std::size_t>(ranks);
    constexpr std::size_t kKiB = 1024;
    return {n, n <= 16 ? 256 * kKiB : n <= 128 ? 128 * kKiB : 64 * kKiB};
  }
  std::size_t credit_at(int rank) const {
    return sizeof(Front) + static_cast<std::size_t>(rank) * sizeof(Credit);
  }
  std::size_t ring_at(int rank) const {
    return sizeof(Front) + ranks * sizeof(Credit) + static_cast<std::size_t>(rank) * ring;
  }
  std::size_t bytes() const { return sizeof(Front) + ranks * (sizeof(Credit) + ring); }
};

}  // namespace tutti::mpi
