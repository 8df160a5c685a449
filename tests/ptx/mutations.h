// Kernels that are wrong in one place, as text: an order weakened, or a barrier taken away. The
// tests have to notice each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::ptx {

struct Mutation {
  std::uint32_t line = 0;  // of the PTX
  std::string from, to;    // the instruction, before and after
  std::string source;      // "step_logic.h:12"
};

/// Every release and acquire made relaxed, every relaxed access weak, every scope a block's, every
/// barrier and meeting of a warp gone (what a vote returns stays).
std::vector<Mutation> mutations_of(const std::string& text);
std::string mutated(const std::string& text, const Mutation& m);

}  // namespace tutti::ptx
