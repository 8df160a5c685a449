// The class that makes a random plan. Each unit (a run of chunks and where it goes) becomes a list
// of events; the lists are shuffled into one another, which keeps the order of each. Written down
// in that order, all ranks' steps could run one after the other, so they cannot be in deadlock with
// as many slots as that takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/collectives/random_plans.h"

namespace tutti::test {

/// An end of a message: `message` says which of the unit.
struct End {
  int peer = 0;
  int message = 0;
};

/// A step to be, of one rank.
struct Event {
  int rank = 0;
  std::vector<Operand> memory_to, memory_from;
  std::vector<End> sends, receives;
  Operand shape = out(0);
  std::uint32_t count = 1;
  bool completes = false;
};

/// A unit's events, and where its steps go.
struct Unit {
  std::deque<Event> events;
  std::vector<std::uint32_t> lanes;  // by rank
  std::size_t id = 0;
};

class RandomPlanMaker {
 public:
  RandomPlanMaker(std::mt19937_64& random, const RandomPlanSizes& sizes);
  Plan make();

 private:
  struct Run {
    std::uint32_t first, count;
  };
  struct Link {
    std::uint8_t channel = 0;
    std::deque<std::pair<std::size_t, int>> under_way;  // unit, message
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  int any_rank() { return static_cast<int>(below(static_cast<std::uint32_t>(header_.ranks))); }
  bool coin() { return below(2) == 0; }

  /// Runs of pieces that travel together.
  std::vector<Run> cut_pieces();
  std::vector<std::uint32_t> any_lanes();
  Unit& new_unit(const std::vector<std::uint32_t>& lanes);
  std::uint32_t more_tmp(int rank, std::uint32_t n);
  std::vector<int> shuffled_ranks();

  // --- Units of reductions (random_reductions.cpp) -----------------------------------------------

  void add_reductions(const std::vector<Run>& runs);
  /// The sum of all ranks' in[chunk] in `home`'s out, and in all others'.
  void add_reduction(Unit& u, const Run& run, std::uint32_t chunk, int home, bool everywhere);

  // --- Units of copies (random_copies.cpp) -------------------------------------------------------

  void add_copies(const std::vector<Run>& runs);
  std::vector<int> from_on(int first);
  /// all_to_all_v: every lane moves the block of one pair.
  void pair_lanes(int source, int target, const Run& run, Operand from_what, Operand to_what);
  void own_copy(Unit& u, const Run& run, int rank, Operand from_what, Operand to_what);
  void add_message(Unit& u, const Run& run, int source, const std::vector<Operand>& from_what,
                   int target, const std::vector<Operand>& to_what, Operand shape_there,
                   Operand shape_here, int number);
  /// From one rank's memory to another's, by way of others.
  void travel(Unit& u, const Run& run, int source, Operand from_what, int target, Operand to_what);
  /// Chunks of rank `rank`'s with the sizes of the run's.
  Operand somewhere(int rank, const Run& run) const;
  /// Through a window: ready, read, done.
  void fetch(Unit& u, const Run& run, int source, Operand from_what, int target, Operand to_what);
  /// A message that says how far `sender` is: a signal; or, which addresses nobody, data.
  void tell(Unit& u, const Run& run, int sender, int receiver, int number);
  /// Whether it has an input of one block.
  bool somewhere_is_written(int rank) const;

  // --- Events of all of them ---------------------------------------------------------------------

  static Event event(int rank, const Run& run);
  void signal(Unit& u, int sender, int receiver, int number);
  /// Along a random tree from members[0], which has it in `from_what`, into all others' memory.
  void spread(Unit& u, const Run& run, Operand from_what, const std::vector<int>& members,
              Operand to_what);
  void add_barrier();
  void add_signal();

  // --- Writing it down ---------------------------------------------------------------------------

  /// The link that goes from a lane to another; null: there is no more channel.
  Link* link(const Unit& u, int sender, int receiver);
  /// Whether the messages that an event takes are the next of their links.
  bool can_come(const Unit& u);
  Plan write_down();

  std::mt19937_64& random_;
  PlanHeader header_;
  bool windows_ = false;
  // Of the reduction at hand: ranks that send nothing, but are looked at.
  std::vector<int> fetched_;
  bool few_channels_ = false;
  std::vector<std::uint32_t> tmp_;  // chunks, by rank
  std::deque<Unit> units_;
  std::map<std::tuple<int, int, std::uint32_t, std::uint32_t>, Link> links_;
  std::map<std::pair<int, int>, std::vector<std::uint8_t>> channels_;
};

}  // namespace tutti::test
