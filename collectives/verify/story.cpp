// Words for steps and ranks.
#include "collectives/verify/story.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/text/text.h"

namespace tutti::proof {
namespace {

// A step of an all-pairs plan names every rank; a story has room for the first few.
constexpr std::size_t kLongestStep = 120;
constexpr std::size_t kMostIntervals = 6;

}  // namespace

std::string step_name(const RankPlan& part, std::uint32_t lane, std::size_t step) {
  std::string text = to_text(part, lane, part.lanes[lane][step]);
  if (text.size() > kLongestStep) text = text.substr(0, kLongestStep) + "...";
  return fmt::format("rank {} lane {} step {} ({})", part.rank, lane, step, text);
}

std::string rank_names(std::span<const RankInterval> ranks) {
  const bool one = ranks.size() == 1 && ranks[0].end - ranks[0].begin == 1;
  std::string text = one ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostIntervals); ++i) {
    if (i > 0) text += ", ";
    text += ranks[i].end - ranks[i].begin == 1
                ? fmt::format("{}", ranks[i].begin)
                : fmt::format("{}-{}", ranks[i].begin, ranks[i].end - 1);
  }
  if (ranks.size() > kMostIntervals) text += ", ...";
  return text;
}

}  // namespace tutti::proof
