// The control blocks of a communicator's ranks (host/control_block.h). The ranks of this host share
// one segment of memory, which begins with their blocks. Of a rank on another host there is a copy
// in private memory.
//
// The first failure lies in the block of the host's first rank, where all ranks of the host look.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "transport/host/control_block.h"
#include "transport/host/shared_memory.h"
#include "transport/members.h"
#include "transport/network/ring_memory.h"

namespace tutti {

class Network;

class ControlBlocks {
 public:
  /// Collective over the ranks of this host. Their segment has `bytes`; the first `mapped` of these
  /// lie behind data(), the blocks among them. `network`: the way to other hosts; null: none.
  /// Throws Error where the rank of this host that has to hand on the segment does not, or a rank
  /// of another host is lost meanwhile; this rank has refused the communicator then.
  ControlBlocks(const Members& members, Network* network, std::size_t bytes, std::size_t mapped,
                Deadline deadline);

  ControlBlock& of(int rank) const { return *blocks_[static_cast<std::size_t>(rank)]; }
  ControlBlock& own() const { return of(members_.rank()); }
  ControlBlock& first_here() const { return *first_here_; }
  /// The segment of this host.
  const std::shared_ptr<SharedMemory>& segment() const { return segment_; }

  /// The failure of a rank of this host that has not joined and will not; none: there is no such.
  std::optional<Failure> refusal() const;
  bool has_joined(int rank) const { return has(rank, kJoined); }
  bool has_left(int rank) const { return has(rank, kLeft); }

  /// Wakes the ranks of this host that sleep on their doorbells, and the threads of this rank that
  /// sleep on its network. Other ranks that sleep on their networks look again after 0.5 ms.
  void ring_here() const;
  /// Wakes the threads of this rank that sleep, on its doorbell or on its network.
  void wake_own() const;
  /// Records `failure` for the ranks of this host, and wakes them. False: there is one already.
  bool record(const Failure& failure) const;
  /// The failure; none: there is none. Waits (briefly) for one that is being written.
  std::optional<Failure> failure() const;

 private:
  bool has(int rank, Presence bit) const {
    return (of(rank).state.load(std::memory_order_acquire) & bit) != 0;
  }
  void show_nameplate();
  void get_segment(std::size_t bytes, std::size_t mapped, Deadline deadline);

  const Members& members_;
  Network* const network_;
  std::shared_ptr<SharedMemory> segment_;
  std::unique_ptr<RingMemory> copies_;  // by rank; those that nobody asks for take no memory
  std::vector<ControlBlock*> blocks_;
  ControlBlock* first_here_ = nullptr;
};

/// Rank `rank` of the new communicator died before it joined, or did not come in time.
Failure absence(const Members& members, int rank, bool died);
/// The absence of a rank of another host that is lost; none: all may come.
std::optional<Failure> absence_elsewhere(const Members& members, Network* network);
/// This rank cannot hold the connection to rank `rank` (Departure::refused); `why` is a sentence.
Failure refusal_here(const Members& members, int rank, const std::string& why);

}  // namespace tutti
