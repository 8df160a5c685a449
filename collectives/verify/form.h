// The form of a plan: everything that can be said about a step without running it. Builds the
// Network on the way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/verify/network.h"

namespace tutti::proof {

/// Throws Refuted unless the header is sound and every rank's part agrees with it.
void check_header(const Plan& plan);

/// Checks the steps and fills in `network`'s lanes, steps, refs, links and traffic.
class Form {
 public:
  explicit Form(Network& network) : net_(network) {}
  void check();

 private:
  void check_lane(int rank, std::uint32_t lane);
  void check_step(int rank, std::uint32_t lane, std::size_t index);
  void check_moves(int rank, const Step& step, std::span<const Operand> operands);
  void check_overlap(const NetworkStep& step);
  Ref resolve(int rank, const Step& step, const Operand& o, bool is_destination);
  Ref resolve_link(int rank, const Step& step, const Operand& o, bool is_destination);
  std::uint32_t find_link(int sender, int receiver, std::uint8_t channel);
  void grow_link_table();
  void lay_out_links();

  struct Place {  // of one operand, for finding those that lie over each other
    std::uint32_t id = 0;
    bool is_link = false;
    bool is_destination = false;
  };

  Network& net_;
  std::vector<std::uint32_t> link_table_;  // open addressing, by (sender, receiver, channel)
  std::vector<Place> places_;              // scratch
  std::uint64_t operands_used_ = 0;        // of this rank
  std::uint64_t moves_ = 0;                // chunks, of all steps and operands
};

}  // namespace tutti::proof
