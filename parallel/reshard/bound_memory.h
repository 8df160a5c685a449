// The memory that ranks have bound to a Reshard, as this rank can address it.
#pragma once

#include <tutti/comm/communicator.h>
#include <tutti/comm/window.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/reshard/layout.h"
#include "parallel/reshard/pack.h"

namespace tutti::parallel::reshard {

class BoundMemory {
 public:
  BoundMemory() = default;
  /// Collective. Opens windows on the memory of all ranks, if it lies in a few regions of memory
  /// that others can map. `hosts`: by rank: ranks with equal numbers share a host.
  BoundMemory(Communicator& comm, const Layout& from, const Layout& to, const Memory& own,
              std::span<const int> hosts);

  /// Whether `receiver` can address all memory of `sender`, another rank.
  bool reads(int receiver, int sender) const {
    return !can_.empty() &&
           can_[static_cast<std::size_t>(receiver) * ranks_ + static_cast<std::size_t>(sender)] !=
               0;
  }
  /// The memory of a rank that this one can address.
  Memory of(int rank) const;

  /// Closes the windows. Collective.
  void close();

 private:
  struct Region {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
  };
  /// Where a buffer lies: in which region, at which byte; no region: it is not there.
  struct Place {
    std::uint64_t region = ~std::uint64_t{0}, offset = 0;
  };
  /// Whether all ranks of each host can map each other's regions.
  bool open(Communicator& comm, std::span<const Region> regions, std::span<const int> hosts);
  void exchange(Communicator& comm, std::span<const Place> own);

  std::size_t ranks_ = 0;
  std::vector<Window> windows_;                // by region
  std::vector<std::uint8_t> can_;              // by receiver, by sender
  std::vector<std::vector<void*>> from_, to_;  // by rank, by buffer
};

}  // namespace tutti::parallel::reshard
