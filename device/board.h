// Where the processes of a communicator on one host tell each other of their memory on GPUs: a card
// for each rank, in the shared memory of the host (DeviceCard). A rank that leaves takes its card
// away, and keeps the memory until no process can have it mapped any more.
//
//     owner     publishes its card | ... | takes it away | frees, once no other process maps
//     importer  says that it maps | looks for the card | maps | ... | unmaps | says so
//
// The importer says so before it looks, and the owner looks after it has taken the card away, both
// sequentially consistent: so either the importer finds no card, or the owner sees that it maps.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/wait.h"
#include "transport/gpu/cuda_ipc.h"
#include "transport/host/control_block.h"
#include "transport/rank_group.h"

namespace tutti {

/// What a rank says of its memory on a GPU, in ControlBlock::area.
struct alignas(kCacheLine) DeviceCard {
  std::atomic<std::uint32_t> state;
  std::uint32_t most_blocks;
  std::int32_t carrier;
  std::int32_t ordinal;  // of the GPU that its buffers will be on, in its process; -1: not known
  std::array<std::uint64_t, 2> gpu;
  CudaMemoryHandle segment;
};
static_assert(sizeof(DeviceCard) <= ControlBlock::kAreaBytes);

inline DeviceCard& device_card(ControlBlock& control) {
  return reinterpret_cast<DeviceCard&>(control.area);
}
/// When the data must have come that a card names: its rank sends them before it shows the card.
/// Only from a stopped process do they take so long.
inline Deadline deadline_of_sent() { return deadline_after(std::chrono::seconds(10)); }

class DeviceBoard {
 public:
  /// Keeps what it needs of the group, so that it may outlive it.
  explicit DeviceBoard(RankGroup& group);

  struct Card {
    std::array<std::uint64_t, 2> gpu{};  // device::Device::identity()
    std::uint32_t most_blocks = 0;       // that it runs side by side
    std::int32_t carrier = 0;  // the rank with the socket that has the segment's descriptor
    CudaMemoryHandle segment;
  };
  // Those of one rank are for ranks of this host alone.
  /// Shows the card of a rank of this process. Throws Error(invalid_usage) if it was taken away.
  void publish(int rank, const Card& card);
  /// What rank `rank` of another process shows; nothing yet, or no longer. Throws Error(internal)
  /// for a carrier that cannot be; the rest is not to be trusted.
  std::optional<Card> card(int rank) const;
  /// Whether rank `rank` has taken its card away.
  bool is_gone(int rank) const;
  /// Takes the cards of this process's ranks away, for ever.
  void withdraw();
  /// Whether this process may have memory of others mapped, or wait for what they pass on to it.
  void set_maps(bool maps);
  /// Whether a living process may have memory of this one mapped, or wait for it so.
  bool is_mapped() const;

  /// Whether rank `rank` is on this host.
  bool is_here(int rank) const { return ranks_[static_cast<std::size_t>(rank)].card != nullptr; }
  /// Whether rank `rank` is of this process.
  bool is_local(int rank) const { return ranks_[static_cast<std::size_t>(rank)].local; }
  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  struct Rank {
    DeviceCard* card = nullptr;  // null: it is on another host
    int member = 0;              // in the job
    bool local = false;
  };
  std::vector<std::shared_ptr<SharedMemory>> memory_;  // that the cards lie in
  std::shared_ptr<HostPeers> host_peers_;
  std::vector<Rank> ranks_;
};

}  // namespace tutti
