// One run of a plan on one rank.
#pragma once

#include <tutti/comm/communicator.h>
#include <tutti/comm/window.h>

#include <chrono>
#include <cstddef>
#include <vector>

#include "parallel/reshard/bound_memory.h"
#include "parallel/reshard/part.h"
#include "parallel/reshard/reshard.h"

namespace tutti::parallel::reshard {

/// Staging buffers for messages that do not lie in one run, made when they are first needed.
class Slots {
 public:
  /// A buffer that the caller gives back, of `bytes`, the same with every call.
  std::byte* take(std::size_t bytes);
  void give(std::byte* slot) { free_.push_back(slot); }
  Slots() = default;
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  ~Slots();

 private:
  std::vector<std::byte*> all_, free_;
};

/// What the runs of a Reshard share.
struct RunContext {
  Communicator& comm;
  Window& signals;  // whose memory does not matter
  const Layout& from;
  const Layout& to;
  const Plan& plan;
  const ReshardOptions& options;
  const std::vector<int>& hosts;  // by rank; other hosts' messages are coded
  Slots& slots;                   // of the plan's most_bytes
  Slots& coded;
  ReshardTraffic& traffic;
};

/// Carries out `part`, with this rank's memory. `bound`: the memory of others that it reads. Throws
/// Error; then nothing is under way any more, and the communicator has failed.
void run_part(const RunContext& context, const RankPart& part, const Memory& own,
              const BoundMemory& bound);

}  // namespace tutti::parallel::reshard
