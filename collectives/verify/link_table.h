// The links of a plan while they are found, step by step: a step names a link by its two ranks and
// its channel, and the verifier by a number.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/verify/network.h"

namespace tutti::proof {

class LinkTable {
 public:
  /// Adds to `links`, which is empty and outlives this.
  explicit LinkTable(std::vector<Link>& links) : links_(links) {}

  /// The number of the link in `links`; a new one, where it is not there yet. Throws Refuted where
  /// there are too many.
  std::uint32_t find(int sender, int receiver, std::uint8_t channel);

 private:
  void grow();

  std::vector<Link>& links_;
  std::vector<std::uint32_t> ids_ = std::vector<std::uint32_t>(1024, kNone);  // open addressing
};

/// Once all steps are known: gives the links of `network` their slots. Throws Refuted where a
/// link's ends do not match, or all links hold too much.
void lay_out_links(Network& network);

}  // namespace tutti::proof
