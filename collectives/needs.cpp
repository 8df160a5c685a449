#include "collectives/needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "collectives/text/text.h"

namespace tutti {
namespace {

/// Calls `visit(rank, lane, step, operand, sends)` for every end of a link in the plan. `visit` may
/// change `operand`.
template <class AnyPlan, class Visit>
void for_each_end(AnyPlan& plan, Visit&& visit) {
  for (auto& part : plan.ranks) {
    for (std::uint32_t l = 0; l < part.lanes.size(); ++l) {
      for (const Step& step : part.lanes[l]) {
        const std::uint32_t sources = step.first_operand + step.destinations;
        for (std::uint32_t i = step.first_operand; i < sources + step.sources; ++i) {
          auto& operand = part.operands[i];
          if (operand.is_link()) visit(part.rank, l, step, operand, i < sources);
        }
      }
    }
  }
}

/// Sender, receiver.
std::pair<int, int> ranks_of(int rank, const Operand& end, bool sends) {
  return sends ? std::pair{rank, end.rank} : std::pair{end.rank, rank};
}

/// Blocks of different sizes: how often a lane repeats its steps follows from the largest block
/// that it moves, so the two lanes at the ends of a link must move the same blocks (source,
/// destination).
std::string uneven_lanes(const Plan& plan) {
  using Blocks = std::set<std::pair<int, int>>;
  std::map<std::pair<int, std::uint32_t>, Blocks> blocks;  // by rank and lane
  for (const RankPlan& part : plan.ranks) {
    for (std::uint32_t l = 0; l < part.lanes.size(); ++l) {
      Blocks& mine = blocks[{part.rank, l}];
      for (const Step& step : part.lanes[l]) {
        for (std::uint32_t i = 0; i < step.count; ++i) {
          const auto other = static_cast<int>((step.shape_chunk + i) / plan.header.pieces);
          mine.insert(step.shape_space == Space::in ? std::pair{part.rank, other}
                                                    : std::pair{other, part.rank});
        }
      }
    }
  }
  std::map<std::tuple<int, int, int>, std::pair<int, std::uint32_t>> sending;  // rank, lane
  for_each_end(plan, [&](int rank, std::uint32_t lane, const Step&, const Operand& o, bool sends) {
    if (sends) sending[{rank, o.rank, o.channel}] = {rank, lane};
  });
  std::string story;
  for_each_end(plan, [&](int rank, std::uint32_t lane, const Step&, const Operand& o, bool sends) {
    if (sends || !story.empty()) return;
    const auto& [sender, its_lane] = sending[{o.rank, rank, o.channel}];
    if (blocks[{sender, its_lane}] == blocks[{rank, lane}]) return;
    story = fmt::format(
        "rank {} lane {} receives from rank {} lane {}, but they do not move the same blocks: a "
        "lane of {} repeats its steps for the largest block that it moves, so these two could "
        "repeat them not equally often",
        rank, lane, sender, its_lane, name(plan.header.collective));
  });
  return story;
}

/// Another rank's blocks, where only that rank knows where they are.
std::string unknown_places(const Plan& plan) {
  const Collective c = plan.header.collective;
  for (const RankPlan& part : plan.ranks) {
    for (const Operand& o : part.operands) {
      if (!o.is_remote()) continue;
      if (c == Collective::all_to_all_v ||
          (c == Collective::all_gather_v && o.space == Space::out)) {
        return fmt::format(
            "rank {} addresses {}, but in {} every rank says for itself where its blocks lie and "
            "how often its lanes repeat their steps, and tells no other",
            part.rank, to_text(o, 1), name(c));
      }
    }
  }
  return {};
}

}  // namespace

DataPath path_of(std::span<const RankPlan> parts) {
  DataPath path{.link_data = false, .from_inputs = true};
  for (const RankPlan& part : parts) {
    path.tmp_chunks = std::max(path.tmp_chunks, part.tmp_chunks);
    for (const Operand& o : part.operands) {
      path.windows = path.windows || o.is_remote();
      path.buffers = path.buffers || o.is_buffer_of_another();
    }
    for (const auto& lane : part.lanes) {
      path.link_data = path.link_data || std::ranges::any_of(lane, [&](const Step& step) {
                         return step.count > 0 &&
                                (std::ranges::any_of(part.destinations(step), &Operand::is_link) ||
                                 std::ranges::any_of(part.sources(step), &Operand::is_link));
                       });
      path.from_inputs =
          path.from_inputs && std::ranges::all_of(lane, [&](const Step& step) {
            return step.count == 0 || std::ranges::all_of(part.sources(step), [](const Operand& o) {
                     return !o.is_link() && o.space == Space::in;
                   });
          });
    }
  }
  return path;
}

PlanNeeds needs_of(const Plan& plan) {
  PlanNeeds needs{.path = path_of(plan.ranks)};
  needs.channels = 1;
  for (const RankPlan& part : plan.ranks) {
    for (const auto& lane : part.lanes) {
      for (const Step& step : lane) {
        needs.operands = std::max(needs.operands, std::uint32_t{step.destinations} + step.sources);
      }
    }
  }
  std::set<std::tuple<int, std::uint32_t, int, int, bool>>
      ends;  // rank, lane, peer, channel, sends
  for_each_end(plan, [&](int rank, std::uint32_t lane, const Step&, const Operand& o, bool sends) {
    needs.channels = std::max(needs.channels, std::uint32_t{o.channel} + 1);
    ends.emplace(rank, lane, o.rank, o.channel, sends);
  });
  for (auto first = ends.begin(); first != ends.end();) {
    const auto lane = std::pair{std::get<0>(*first), std::get<1>(*first)};
    std::uint32_t links = 0;
    for (; first != ends.end() && std::pair{std::get<0>(*first), std::get<1>(*first)} == lane;
         ++first) {
      ++links;
    }
    needs.lane_links = std::max(needs.lane_links, links);
  }
  return needs;
}

void tighten(Plan& plan) {
  std::map<std::pair<int, int>, std::map<std::uint8_t, std::uint32_t>> messages;  // by channel
  std::uint32_t widest = 1;
  for_each_end(plan, [&](int rank, std::uint32_t, const Step& step, const Operand& o, bool sends) {
    widest = std::max(widest, step.count);
    if (sends) ++messages[{rank, o.rank}][o.channel];
  });
  std::map<std::pair<int, int>, std::map<std::uint8_t, std::uint8_t>> numbers;
  std::uint32_t most = 1;
  for (const auto& [ranks, links] : messages) {
    auto& mine = numbers[ranks];
    for (const auto& [channel, count] : links) {
      mine.emplace(channel, static_cast<std::uint8_t>(mine.size()));
      most = std::max(most, count);
    }
  }
  for_each_end(plan, [&](int rank, std::uint32_t, const Step&, Operand& o, bool sends) {
    o.channel = numbers.at(ranks_of(rank, o, sends)).at(o.channel);
  });
  plan.header.slots = std::min(plan.header.slots, most);
  plan.header.widest = widest;
  for (RankPlan& part : plan.ranks) part.header = plan.header;
}

std::string unfit_to_run(const Plan& plan) {
  const Collective c = plan.header.collective;
  if (c == Collective::send_recv) {
    return "send and recv are calls of two ranks, and no communicator runs a plan for them";
  }
  std::string why = unknown_places(plan);
  if (why.empty() && c == Collective::all_to_all_v) why = uneven_lanes(plan);
  return why;
}

}  // namespace tutti
