// The form of a plan: all checks of steps that need no run. Builds the Network on the way.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/verify/link_table.h"
#include "collectives/verify/network.h"

namespace tutti::proof {

/// Throws Refuted unless the header is sound.
void check_header(const PlanHeader& header);

/// Checks the steps and fills in `network`'s lanes, runs, refs, links and traffic.
class Form {
 public:
  explicit Form(Network& network) : net_(network), links_(network.links) {}
  void check();

 private:
  RankPlan part_of(int rank) const;
  void know_tmp(int rank);
  void check_lane(const RankPlan& part, std::uint32_t lane);
  void check_operands(const RankPlan& part, std::uint32_t lane);
  void check_run(const RankPlan& part, std::uint32_t lane, std::size_t first, std::size_t end);
  void check_step(const RankPlan& part, const Step& step);
  void check_moves(int rank, const Step& step) const;
  void check_memory(int rank, const Step& step, const Operand& o, bool is_destination);
  void add_run(const RankPlan& part, const Step& step, std::size_t steps);
  Ref resolve(int rank, const Operand& o) const;
  Ref resolve_link(int rank, const Step& step, const Operand& o, bool is_destination);
  void count(int rank, const StepRun& run);
  void check_overlap(const NetworkStep& step);

  struct Place {  // of one operand, for finding those that lie over each other
    std::uint32_t id = 0;
    bool is_link = false;
    bool is_destination = false;
  };

  Network& net_;
  LinkTable links_;
  std::vector<Place> places_;        // scratch
  std::uint64_t operands_used_ = 0;  // of this rank
  std::uint64_t moves_ = 0;          // chunks, of all steps and operands
};

}  // namespace tutti::proof
