#include "parallel/reshard/part.h"

#include <algorithm>
#include <utility>

namespace tutti::parallel::reshard {
namespace {

/// What has been brought into a piece of this rank, and the counts when it is there.
struct Brought {
  const Box* box;
  Arrivals at;
};
using BroughtTo = std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Brought>>;

Arrivals larger(const Arrivals& a, const Arrivals& b) {
  return {std::max(a.receives, b.receives), std::max(a.reads, b.reads),
          std::max(a.copies, b.copies)};
}

/// The pieces of this rank, by tensor and number, that relays read.
BroughtTo relayed_pieces(const Plan& plan, int rank) {
  BroughtTo pieces;
  for (const Message& m : plan.messages) {
    if (m.from != rank) continue;
    for (const Move& move : plan.moves_of(m)) {
      if (move.relay) pieces[{move.tensor, move.source}];
    }
  }
  return pieces;
}

}  // namespace

RankPart part_of(const Plan& plan, int rank, const std::function<bool(int, int)>& reads) {
  RankPart part;
  BroughtTo brought = relayed_pieces(plan, rank);
  for (std::uint32_t i = 0; i < plan.messages.size(); ++i) {
    const Message& m = plan.messages[i];
    if (m.from != rank && m.to != rank) continue;
    PartEntry entry{i, m.from == rank ? m.to : m.from};
    for (const Move& move : plan.moves_of(m)) {
      if (!move.relay) continue;
      entry.relays = true;
      if (m.from != rank) break;
      for (const Brought& b : brought[{move.tensor, move.source}]) {
        if (overlap(*b.box, move.box)) entry.needed = larger(entry.needed, b.at);
      }
    }
    const bool read = m.from != m.to && reads(m.to, m.from);
    if (m.from == rank && m.to != rank) (read ? part.offers : part.sends).push_back(entry);
    if (m.to != rank) continue;
    Arrivals now{};
    if (m.from == rank) {
      part.copies.push_back(entry);
      now.copies = static_cast<std::uint32_t>(part.copies.size());
    } else if (read) {
      part.reads.push_back(entry);
      now.reads = static_cast<std::uint32_t>(part.reads.size());
    } else {
      part.receives.push_back(entry);
      now.receives = static_cast<std::uint32_t>(part.receives.size());
    }
    if (brought.empty()) continue;
    for (const Move& move : plan.moves_of(m)) {
      const auto piece = brought.find({move.tensor, move.target});
      if (piece != brought.end()) piece->second.push_back({&move.box, now});
    }
  }
  return part;
}

}  // namespace tutti::parallel::reshard
