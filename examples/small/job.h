// 5. Ranks that meet, and the memory that they share.
//
// A rank is a process. The ranks of a job meet by a file whose name all of them know: rank 0 makes
// a piece of memory (a memfd, which has no name in any directory) and writes into the file where
// the others find it. When all are there the file is removed. So a job leaves nothing behind,
// however it ends: the kernel frees the memory with the last process that has it.
//
// In the memory lie a *board*, where the first failure is written for all to read, and for every
// two ranks a *link* in each direction: a ring of slots, each of which holds a message.
//
//     slot 0 | slot 1 | ... | slot 3        message k lies in slot k % 4
//     published: messages that the sender has written
//     freed:     messages that the receiver has finished with
//
// Both numbers only grow, and each has one writer. The sender may write message k if k < freed + 4,
// and the receiver may read it if k < published. No lock is needed, and no number is ever reset.
//
// Two rules make a job that can't hang. Every wait has a deadline, and says for whom it waits; and
// a rank that fails writes so on the board, where all waits look.
//
// In the library: bootstrap/ (ranks meet by TCP, with a secret), transport/host/host_board.h and
// failure.h (boards), transport/host/connection.h (links: messages of any length, short ones in the
// counter's own cache line), execute/host/peer_wait.h (waits that sleep and notice
// deaths), and transport/network/ (the same links between hosts).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace small {

inline constexpr int kMostRanks = 64;
inline constexpr std::uint32_t kSlots = 4;  // of a link
inline constexpr std::size_t kSlotBytes = 65536;

/// What went wrong, on which rank, in which wait or call.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The head of a slot. The data follow it.
struct alignas(64) Slot {
  std::uint64_t call;   // the sender's call (run.h); the receiver compares it with its own
  std::uint64_t bytes;  // of data
  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

/// A link's counters, each in a cache line of its own, as different cores write them. The slots
/// follow them.
struct Link {
  alignas(64) std::atomic<std::uint64_t> published;
  alignas(64) std::atomic<std::uint64_t> freed;
};

/// The head of the shared memory. The links follow it.
struct Board {
  int ranks;
  std::size_t slot_bytes;
  std::atomic<bool> present[kMostRanks];
  std::atomic<int> awaited[kMostRanks];  // by rank: 1 + the rank that it waits for; 0: none
  std::atomic<int> failing;              // 1 + the first rank that fails; 0: none
  std::atomic<bool> failed;              // ... and has written why
  char failure[512];
};

/// This process's part in a job. One thread uses it.
class Job {
 public:
  /// Meets the other ranks by `file`, which must not exist before, in a folder of the host that all
  /// ranks share. Throws Error if not all are there before the timeout.
  /// `timeout`: of this and of every later wait. `slot_bytes`: a multiple of 64; equal on all
  /// ranks.
  Job(const std::string& file, int rank, int ranks, std::chrono::milliseconds timeout,
      std::size_t slot_bytes = kSlotBytes);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  Link& link(int sender, int receiver);
  Slot& slot(int sender, int receiver, std::uint64_t message);

  /// Waits for rank `peer` until `ready()`. Throws Error when another rank has failed, and at the
  /// deadline. The error says what this rank has waited for, with the text of `what()`: "to send
  /// message 5"; and whom `peer` waits for, and so on to the rank that holds them all up.
  void wait(int peer, const std::function<bool()>& ready, const std::function<std::string()>& what);
  /// Writes this rank's failure on the board, if it is the first, and throws it.
  [[noreturn]] void fail(const std::string& why);

  /// The number of the next call, from 1.
  std::uint64_t next_call() { return ++calls_; }

 private:
  std::string awaited(int peer) const;
  void make(const std::string& file);
  void find(const std::string& file);
  void map(int memory, const std::string& where);
  std::size_t link_bytes() const { return sizeof(Link) + kSlots * (sizeof(Slot) + slot_bytes_); }
  std::size_t bytes() const;

  int rank_;
  int ranks_;
  std::size_t slot_bytes_;
  std::chrono::milliseconds timeout_;
  Board* board_ = nullptr;
  std::uint64_t calls_ = 0;
};

}  // namespace small
