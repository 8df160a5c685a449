#include "parallel/agreement.h"

#include <fmt/format.h>

#include <exception>
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

void together(RollCall& ranks, std::string_view what, const std::function<void()>& body) {
  std::exception_ptr refused;
  std::string why;
  try {
    body();
  } catch (const std::exception& e) {
    refused = std::current_exception();
    why = e.what();
  } catch (...) {
    refused = std::current_exception();
    why = "what was thrown is no std::exception";
  }
  // The first rank that was refused has the largest number.
  const auto size = static_cast<std::uint64_t>(ranks.ranks());
  const auto rank = static_cast<std::uint64_t>(ranks.rank());
  const std::uint64_t largest = ranks.largest(refused ? size - rank : 0);
  if (largest == 0) return;
  if (ranks.same(mix(refused ? 1 : 0, why))) std::rethrow_exception(refused);
  const int culprit = static_cast<int>(size - largest);
  const std::string its = ranks.text_of(culprit, why);
  throw Error(
      ErrorCode::mismatch,
      fmt::format("{}: {} was refused, and so no rank goes on: {}; other ranks have no such "
                  "problem, or another one",
                  what, ranks.name(culprit), its),
      ranks.world_rank(culprit));
}

void together(Axis& axis, std::string_view what, const std::function<void()>& body) {
  RollCall ranks(axis, nullptr);
  together(ranks, what, body);
}

}  // namespace tutti::parallel
