#include "collectives/text/write.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "collectives/text/text.h"
#include "core/error.h"
#include "core/line.h"

namespace tutti {
namespace {

void put_header(std::string& text, const PlanHeader& h) {
  if (!is_word(h.algorithm)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("cannot write a plan whose algorithm is named '{}': a name is one word "
                            "of at most 64 letters, digits, '_', '-' and '.'",
                            h.algorithm));
  }
  auto end = std::back_inserter(text);
  fmt::format_to(end, "tutti plan 1\n{} {}  ranks {}", name(h.collective), h.algorithm, h.ranks);
  if (is_rooted(h.collective)) fmt::format_to(end, "  root {}", h.root);
  fmt::format_to(end, "  pieces {}  slots {}  lanes {}", h.pieces, h.slots, h.lanes);
  if (h.widest != 1) fmt::format_to(end, "  widest {}", h.widest);
  if (h.format != Format::plain) fmt::format_to(end, "  {}", name(h.format));
  text += '\n';
}

void put_rank(std::string& text, const RankPlan& rank) {
  fmt::format_to(std::back_inserter(text), "rank {}", rank.rank);
  if (rank.tmp_chunks != 0) {
    fmt::format_to(std::back_inserter(text), "  tmp {}", rank.tmp_chunks);
  }
  text += '\n';
  for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane) {
    if (rank.lanes[lane].empty()) continue;
    fmt::format_to(std::back_inserter(text), "  lane {}\n", lane);
    for (const Step& step : rank.lanes[lane]) {
      fmt::format_to(std::back_inserter(text), "    {}\n",
                     to_text(rank, static_cast<std::uint32_t>(lane), step));
    }
  }
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text;
  put_header(text, plan.header);
  for (const RankPlan& rank : plan.ranks) put_rank(text, rank);
  return text;
}

void write_text(const PlanParts& plan, const std::function<void(std::string_view)>& write) {
  std::string text;
  put_header(text, plan.header);
  for (int rank = 0; rank < plan.header.ranks; ++rank) {
    write(text);
    text.clear();
    put_rank(text, plan.part(rank));
  }
  write(text);
}

std::string to_text(const RankPlan& rank) {
  std::string text;
  put_header(text, rank.header);
  put_rank(text, rank);
  return text;
}

}  // namespace tutti
