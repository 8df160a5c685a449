// Data races, and other faults of order: remote memory that is used too early or too late, and a
// barrier that lets a rank through.
//
// Every access is compared with the last write to the chunk, and every write with the reads since
// then (FastTrack, Flanagan and Freund 2009), in the order that clocks.h defines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/verify/clocks.h"
#include "collectives/verify/network.h"
#include "collectives/verify/schedule.h"

namespace tutti::proof {

/// The chunks in which several lanes meet.
class Sharing {
 public:
  explicit Sharing(const Network& network);

  /// Whether the order of lanes can matter nowhere.
  bool is_harmless() const { return is_harmless_; }
  /// Whether several lanes meet in some chunk of tmp, so that one tile can run into the next.
  bool shares_tmp() const { return shares_tmp_; }
  /// A location's number among those that several lanes use and some lane writes; else kNone.
  std::uint32_t number(std::uint32_t location) const {
    return numbers_.empty() ? kNone : numbers_[location];
  }
  std::uint32_t locations() const { return locations_; }
  /// By lane: whether the times of its actions matter.
  const std::vector<bool>& lanes() const { return lanes_; }

 private:
  void find(const Network& network);

  std::vector<std::uint32_t> numbers_;  // by location
  std::vector<bool> lanes_;
  std::uint32_t locations_ = 0;
  bool is_harmless_ = true;
  bool shares_tmp_ = false;
};

/// A visitor of Schedule::run, for one tile, or for two where tmp is shared. It asks whether each
/// action of lanes of `ranks` comes before later actions of other lanes. A plan is free of races if
/// that is so for all its ranks. With many ranks it asks about some at a time, as clocks of all
/// about all would grow with the square of the ranks.
class RaceCheck {
 public:
  RaceCheck(const Network& network, const Schedule& schedule, const Sharing& sharing,
            RankInterval ranks);
  /// How many ranks to ask about at a time. Throws Refuted if that takes too many runs.
  static std::uint32_t ranks_at_a_time(const Network& network);

  void step(const NetworkStep& step, std::uint32_t tile);
  void rank_ends(int rank);

 private:
  struct Access {
    std::uint32_t lane = kNone;  // kNone: there is none
    Clocks::Time time = 0;
    std::uint32_t step = 0;  // of the lane
    std::uint32_t tile = 0;
  };
  /// The place of an access: chunk `chunk` of its step's operand.
  struct Place {
    std::uint32_t operand = 0;
    std::uint32_t chunk = 0;
    bool is_written = false;
  };
  struct Read {
    Access access;
    std::uint32_t next = kNone;  // in reads_: an earlier one
  };
  struct Chunk {
    Access write;
    std::uint32_t reads = kNone;  // in reads_: those since then
  };

  void touch(const Access& by, const NetworkStep& step, std::uint32_t operand);
  void touch_chunk(const Access& by, std::uint32_t number, const Place& at);
  void touch_remote(const Access& by, const NetworkStep& step, std::uint32_t operand);
  std::size_t heard_at(std::uint32_t lane, int from) const;
  void hear(std::uint32_t lane, int from);
  bool has_heard(std::uint32_t lane, int from) const;
  void check_order(const Access& first, bool first_writes, const Access& second,
                   const Place& at) const;
  std::string step_name(const Access& access) const;

  const Network& net_;
  const Schedule& schedule_;
  const Sharing& sharing_;
  const RankInterval ranks_;
  Clocks clocks_;
  std::vector<Chunk> chunks_;  // by Sharing::number
  std::vector<Read> reads_;
  // Where the plan uses windows:
  std::vector<Clocks::Time> heard_;          // by watched lane and rank: when it first heard of it
  std::vector<bool> ended_;                  // by rank
  std::vector<std::vector<Access>> guests_;  // by rank: others' accesses to its memory
};

}  // namespace tutti::proof
