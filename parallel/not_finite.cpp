#include "parallel/not_finite.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::parallel {

void refuse_not_finite(Axis& world, std::string_view where, std::string_view found) {
  constexpr int kMost = 4;  // that are named: soon everybody has one
  Agreement ranks(world);
  const std::uint64_t mine = found.empty() ? 0 : 1;
  if (ranks.largest(mine) == 0) return;
  const std::vector<std::uint64_t> have = ranks.all({&mine, 1});
  std::string list;
  int first = -1, named = 0, others = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (have[static_cast<std::size_t>(rank)] == 0) continue;
    if (first < 0) first = rank;
    if (named == kMost) {
      ++others;
      continue;
    }
    list +=
        fmt::format("{}{} on rank {}", named++ > 0 ? "; " : "", ranks.text_of(rank, found), rank);
  }
  if (others > 0) list += fmt::format("; and something on {} more", others);
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: not finite: {}", where, list), first);
}

}  // namespace tutti::parallel
