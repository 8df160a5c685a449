// How a rank finds and reaches the memory of another rank of its host, through windows and by
// copies of the kernel's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/window_memory.h"
#include "execute/host/mover.h"
#include "execute/windows.h"
#include "transport/rank_group.h"

namespace tutti {

/// This process's mapping of `window` of rank `peer`, which has told of it; waits until that has
/// come. Throws Error.
std::shared_ptr<SharedMemory> wait_for_window(RankGroup& group, int peer, std::uint32_t window);

/// Has the kernel copy `bytes` to address `to` in the process of rank `peer`. Throws Error:
/// peer_lost where that process is gone, system where the kernel refuses.
void write_plain_memory(RankGroup& group, int peer, const void* from, std::uint64_t to,
                        std::size_t bytes);

/// The part of an operation that addresses other ranks' memory: it tells them where this rank's
/// buffers are, learns where theirs are, and moves data there and from there.
class PeerMemory {
 public:
  PeerMemory(RankGroup& group, Workspace& workspace, Mover& mover)
      : group_(group), workspace_(workspace), mover_(mover) {}

  /// For the call that the mover is bound to. Returns that call, or what runs instead of it: with
  /// staged buffers, where the others cannot address the user's, though the ranks rely on that
  /// (Agreement).
  const Binding& bind();
  /// After the call's last step: its results are in the user's buffers.
  void finish();
  void abandon() { heap_hold_.release(); }

  /// What a signal tells rank `peer` of this rank's buffers.
  BufferAddresses told_to(int peer) const;
  /// Takes in what rank `peer` has told. Returns its scalar.
  std::uint64_t learn(int peer, const std::byte* payload);
  /// learn() for a message by itself: nothing else is known of any rank.
  std::uint64_t learn_alone(int peer, const std::byte* payload) {
    peers_.resize(1);
    return learn(peer, payload);
  }
  /// A move that has other ranks' operands, too.
  void move(const Action& action, const Move& move, std::size_t shift);

 private:
  static_assert(sizeof(BufferAddresses) <= kInlineBytes);
  // What another rank has told of its buffers, and what learn() has made of that.
  struct Peer {
    BufferAddresses said{};
    struct Buffer {
      std::byte* pointer = nullptr;  // mapped here, `bytes` long; else
      std::uint64_t remote = 0;      // an address in its process; with a window, an offset there
      std::size_t bytes = 0;
      std::uint32_t window = 0;  // in which it lies; not mapped as long as `pointer` is null
      std::shared_ptr<SharedMemory> mapping;  // of the window: its owner may free that at any time,
                                              // when its call has failed
    };
    std::array<Buffer, 3> buffers;  // in, out, tmp
  };
  // An operand of the move at hand: a pointer of ours, or an address in another process.
  struct Target {
    std::byte* pointer = nullptr;
    std::uint64_t remote = 0;
    std::int32_t peer = -1;
  };
  class Touching;
  /// Of other ranks' memory, between two looks whether the communicator has failed.
  static constexpr std::size_t kTouchedBytes = std::size_t{8} << 20;

  Peer& known(int peer) {
    return peers_.size() == 1 ? peers_.front() : peers_[static_cast<std::size_t>(peer)];
  }
  /// `buffer` of rank `peer` lies in `window`, if that is there.
  static void map(Peer::Buffer& buffer, int peer, std::shared_ptr<SharedMemory> window);
  /// tmp of another rank of this process, which stays as long as the result.
  static Peer::Buffer keep(std::byte* tmp, std::uint32_t window);
  /// Puts staged buffers into the place of so many bytes of the user's, until finish().
  void stage(std::size_t in, std::size_t out);
  /// After other ranks' memory was read: throws where the communicator has failed. A rank that has
  /// left its call because of a failure may have changed the memory meanwhile.
  void check_still_valid() const;
  /// Fills targets_; whether one of them can only be reached by copying.
  bool find_targets(const Action& action, const Move& move, std::size_t shift);
  Target peer_target(const CompiledOperand& operand, std::size_t bytes, std::size_t shift,
                     bool writes);
  /// Puts the targets' addresses, so many bytes on, into the mover's operands, scaled.
  Mover::Operands address(const Move& move, std::size_t shifted);
  void move_through_copies(const Move& move, const Mover::Operands& at,
                           const CombineOptions& options);

  RankGroup& group_;
  Liveness& liveness_ = group_.liveness();
  Workspace& workspace_;
  Mover& mover_;
  HeapHold heap_hold_;  // while the call runs, if a buffer lies there
  Binding staged_;      // the binding, with staged buffers
  struct Result {
    std::byte* to = nullptr;
    std::size_t bytes = 0;
  };
  Result result_;                // of staged_, for the user's output
  BufferAddresses mine_{};       // for ranks in other processes
  BufferAddresses mine_here_{};  // for ranks in this process
  std::vector<Peer> peers_;      // by rank, from their signals; of a message the only one
  std::vector<Target> targets_;  // of the move at hand; kept for their capacity
  std::optional<bool> light_;    // a light_fence() is enough; unknown before it is needed
};

}  // namespace tutti
