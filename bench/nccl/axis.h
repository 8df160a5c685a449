// An axis of a mesh over a library with NCCL's interface, on host memory: it lets us judge the
// engines for parallel training apart from the collectives beneath them. (NVIDIA's NCCL takes
// memory of GPUs alone, and says so.)
//
// NCCL's calls on host memory are done when they return, and calls on one communicator go in order.
// So each kind of traffic has a communicator and a thread: the collectives, and, if an axis carries
// messages, those from and to each neighbour.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "bench/nccl/communicator.h"
#include "bench/nccl/functions.h"
#include "parallel/axis.h"

namespace tutti::bench {

/// The functions that an NcclAxis needs of NcclFunctions.
std::span<const Collective> nccl_axis_collectives();

class NcclAxis final : public parallel::Axis {
 public:
  enum class Messages { none, between_neighbours };

  /// Collective over `meeting`, over which the ranks find each other; it is free afterwards.
  /// Neighbours are the ranks before and behind, of a ring. `functions` outlive this. Throws Error.
  NcclAxis(const NcclFunctions& functions, parallel::Axis& meeting,
           Messages messages = Messages::none);
  /// Waits for started operations; aborts them if an exception is under way.
  ~NcclAxis() override;

 private:
  class Lane;
  using Way = std::pair<int, int>;  // from a rank to a rank; of collectives: {-1, -1}

  Lane& lane(const Call& call);
  std::unique_ptr<parallel::Pending::Work> begin(const Call& call) override;
  void run_now(const Call& call) override;

  std::map<Way, std::unique_ptr<Lane>> lanes_;
};

}  // namespace tutti::bench
