#include "ring.h"

namespace small {
namespace {

/// One rank's place in the ring, and its steps as they are made.
struct Place {
  int ranks;
  int rank;
  std::vector<Step> steps = {};

  int next() const { return (rank + 1) % ranks; }
  int previous() const { return (rank + ranks - 1) % ranks; }
  /// The chunk that belongs to the rank `hops` hops upstream.
  std::uint32_t upstream(int hops) const {
    return static_cast<std::uint32_t>((rank + ranks - hops % ranks) % ranks);
  }
  std::uint32_t own() const { return static_cast<std::uint32_t>(rank); }

  /// The sums' journey, but for its last step: begin one sum, and add to those that come by.
  void pass_sums_on() {
    steps.push_back({{to(next())}, {in(upstream(1))}});
    for (int hop = 2; hop < ranks; ++hop) {
      steps.push_back({{to(next())}, {from(previous()), in(upstream(hop))}});
    }
  }
  /// The journey of what each rank has sent to its next: keep a copy, and pass it on. The last to
  /// arrive has been everywhere else.
  void pass_copies_on() {
    for (int hop = 1; hop < ranks - 1; ++hop) {
      steps.push_back({{out(upstream(hop)), to(next())}, {from(previous())}});
    }
    steps.push_back({{out(upstream(ranks - 1))}, {from(previous())}});
  }
};

std::vector<Step> steps_of(Collective collective, int ranks, int rank) {
  if (ranks == 1) return {{{out(0)}, {in(0)}, reduces(collective)}};
  Place place{ranks, rank};
  switch (collective) {
    case Collective::all_reduce:
      place.pass_sums_on();
      place.steps.push_back(
          {{out(place.own()), to(place.next())}, {from(place.previous()), in(place.own())}, true});
      place.pass_copies_on();
      break;
    case Collective::all_gather:
      place.steps.push_back({{out(place.own()), to(place.next())}, {in(0)}});
      place.pass_copies_on();
      break;
    case Collective::reduce_scatter:
      place.pass_sums_on();
      place.steps.push_back({{out(0)}, {from(place.previous()), in(place.own())}, true});
      break;
  }
  return place.steps;
}

}  // namespace

Plan ring(Collective collective, int ranks) {
  Plan plan;
  plan.collective = collective;
  plan.algorithm = "ring";
  // Only all_reduce has one block for all ranks, and so has to cut it.
  if (collective == Collective::all_reduce) plan.pieces = static_cast<std::uint32_t>(ranks);
  // All ranks begin with a send. With one slot a link, all would wait for a free slot in their
  // second step, and free one only after that: verify() tells this story for plans with `slots 1`.
  plan.slots = 2;
  for (int rank = 0; rank < ranks; ++rank) {
    plan.steps.push_back(steps_of(collective, ranks, rank));
  }
  return plan;
}

}  // namespace small
