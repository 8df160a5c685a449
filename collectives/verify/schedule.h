// Runs a Network with bounded links: a worklist of lanes. Each lane goes on until its next step
// finds a link empty or full. Links are FIFOs with one sender and one receiver, so the order of
// lanes in the list changes nothing: every step that can run does run, and a run that gets stuck
// would get stuck with any timing.
//
// A visitor sees every step when all of its links are ready, and before their slots move on:
//
//     void step(const NetworkStep& step, std::uint32_t tile);
//     void rank_ends(int rank);   // all lanes of `rank` have finished the first tile
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/verify/network.h"
#include "collectives/verify/story.h"

namespace tutti::proof {

/// How far a link has come.
struct LinkState {
  std::uint32_t sent = 0;  // messages; both wrap, which their difference does not mind
  std::uint32_t received = 0;
  std::uint32_t next_free = 0;  // slots: message k's is k % capacity, counted without dividing
  std::uint32_t next_full = 0;
};

class Schedule {
 public:
  explicit Schedule(const Network& network)
      : net_(network), links_(network.links.size()), lanes_(network.lanes.size()) {}

  /// Runs `tiles` tiles. `ranks_join`: a lane begins the next tile when all lanes of its rank have
  /// finished this one. Throws Refuted, which describes the deadlock, if there is one.
  template <class Visitor>
  void run(std::uint32_t tiles, bool ranks_join, Visitor& visitor);

  /// The slot (among those of all links) that a step which receives from `link`, or sends to it,
  /// is about to use.
  std::uint32_t full_slot(std::uint32_t link) const {
    return net_.links[link].first_slot + links_[link].next_full;
  }
  std::uint32_t free_slot(std::uint32_t link) const {
    return net_.links[link].first_slot + links_[link].next_free;
  }
  /// Where that slot's chunks are, among the chunks of all slots.
  std::uint32_t full_chunks(std::uint32_t link) const {
    return net_.links[link].first_value + links_[link].next_full * net_.links[link].widest;
  }
  std::uint32_t free_chunks(std::uint32_t link) const {
    return net_.links[link].first_value + links_[link].next_free * net_.links[link].widest;
  }

 private:
  struct LaneState {
    std::uint32_t run = 0;    // of the next step, within the lane
    std::uint32_t step = 0;   // of that run
    std::uint32_t shift = 0;  // of that step
    std::uint32_t index = 0;  // of that step, within the lane
    std::uint32_t ref = 0;    // of that step: those before it are ready
    std::uint32_t tile = 0;
    std::uint32_t waits_for = kNone;  // a link
  };

  NetworkStep next_step(std::uint32_t lane) const;
  bool is_ready(const NetworkStep& step);
  void move_links(const NetworkStep& step);
  void wake(std::uint32_t lane, std::uint32_t link);
  std::string deadlock() const;
  bool is_receiving(std::uint32_t lane) const;

  const Network& net_;
  std::vector<LinkState> links_;
  std::vector<LaneState> lanes_;
  std::vector<std::uint32_t> runnable_;
};

inline NetworkStep Schedule::next_step(std::uint32_t lane) const {
  const LaneState& state = lanes_[lane];
  return {&net_.runs[net_.lanes[lane].first_run + state.run], state.shift, lane, state.index};
}

template <class Visitor>
void Schedule::run(std::uint32_t tiles, bool ranks_join, Visitor& visitor) {
  const std::uint32_t lanes_per_rank = net_.header().lanes;
  std::vector<std::uint32_t> unfinished(net_.ranks(), lanes_per_rank);
  std::size_t lanes_done = 0;
  for (std::size_t lane = lanes_.size(); lane-- > 0;) {
    runnable_.push_back(static_cast<std::uint32_t>(lane));
  }
  while (!runnable_.empty()) {
    const std::uint32_t lane = runnable_.back();
    runnable_.pop_back();
    const NetworkLane& l = net_.lanes[lane];
    LaneState& state = lanes_[lane];
    const auto begin_tile = [&](LaneState& of, std::uint32_t tile) {
      of = {};
      of.tile = tile;
    };
    for (;;) {
      while (state.run < l.runs) {
        const NetworkStep step = next_step(lane);
        if (!is_ready(step)) break;
        visitor.step(step, state.tile);
        move_links(step);
        ++state.index;
        state.shift += step->stride;
        if (++state.step < step->steps) continue;
        ++state.run;
        state.step = state.shift = 0;
      }
      if (state.run < l.runs) break;  // it waits
      if (state.tile == 0 && --unfinished[static_cast<std::size_t>(l.rank)] == 0) {
        visitor.rank_ends(l.rank);
        if (ranks_join && tiles > 1) {  // the others have waited for this lane
          for (std::uint32_t i = 0; i < lanes_per_rank; ++i) {
            const std::uint32_t other = lane - l.lane + i;
            begin_tile(lanes_[other], 1);
            if (other != lane) runnable_.push_back(other);
          }
          continue;
        }
      }
      if (state.tile + 1 == tiles) {
        ++lanes_done;
        break;
      }
      if (ranks_join) break;
      begin_tile(state, state.tile + 1);
    }
  }
  if (lanes_done < lanes_.size()) throw Refuted{deadlock()};
}

}  // namespace tutti::proof
