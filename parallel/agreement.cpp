#include "parallel/agreement.h"

#include <fmt/format.h>

#include <vector>

#include "core/error.h"

namespace tutti::parallel {

Difference first_difference(std::span<const std::uint64_t> entries, std::size_t columns) {
  for (std::size_t i = 0; i < columns; ++i) {
    std::vector<std::uint64_t> column;
    for (std::size_t at = i; at < entries.size(); at += columns) column.push_back(entries[at]);
    const int odd = RollCall::odd_one(column);
    if (odd >= 0) return {.entry = i, .rank = odd, .other = odd == 0 ? 1 : 0};
  }
  return {};
}

void agree(RollCall& ranks, std::string_view what, std::span<const std::string> lines) {
  std::vector<std::uint64_t> hashes;  // of a line and all before it
  for (const std::string& line : lines) {
    hashes.push_back(mix(hashes.empty() ? 0 : hashes.back(), line));
  }
  if (ranks.same(hashes.empty() ? 0 : hashes.back())) return;

  // The slow way, which all take: who differs, and in what?
  const std::size_t most = ranks.largest(hashes.size());
  hashes.resize(most);  // 0: there is no more
  const Difference first = first_difference(ranks.all(hashes), most);
  const std::string mine = first.entry < lines.size() ? lines[first.entry] : "nothing more";
  const std::string its = ranks.text_of(first.rank, mine);
  const std::string others = ranks.text_of(first.other, mine);
  throw Error(ErrorCode::mismatch,
              fmt::format("{} differs among the ranks: {} has \"{}\" where {} has \"{}\"; make it "
                          "the same on all ranks",
                          what, ranks.name(first.rank), its, ranks.name(first.other), others),
              ranks.world_rank(first.rank));
}

void agree(Axis& axis, std::string_view what, std::span<const std::string> lines) {
  RollCall ranks(axis, nullptr);
  agree(ranks, what, lines);
}

}  // namespace tutti::parallel
