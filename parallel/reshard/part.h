// One rank's part of a plan: what it sends, receives, reads from others' memory and copies, each
// list in the order of the plan; and what has to be there before it may pass something on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "parallel/reshard/plan.h"

namespace tutti::parallel::reshard {

/// How many entries of this rank's lists have to be over.
struct Arrivals {
  std::uint32_t receives = 0, reads = 0, copies = 0;
  bool covers(const Arrivals& needed) const {
    return receives >= needed.receives && reads >= needed.reads && copies >= needed.copies;
  }
};

struct PartEntry {
  std::uint32_t message = 0;  // its number in the plan
  int peer = 0;
  bool relays = false;
  Arrivals needed{};  // of sends, offers and copies that relay
};

struct RankPart {
  std::vector<PartEntry> sends, receives;  // messages that travel
  std::vector<PartEntry> reads;            // this rank copies from the peer's memory
  std::vector<PartEntry> offers;           // the peer copies from this rank's memory
  std::vector<PartEntry> copies;           // from this rank to itself
};

/// `reads(receiver, sender)`: whether the receiver copies from the sender's memory.
RankPart part_of(const Plan& plan, int rank, const std::function<bool(int, int)>& reads);

}  // namespace tutti::parallel::reshard
