// What the generators share.
#include "collectives/algorithms/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/error.h"

namespace tutti::algorithm {

PlanHeader make_header(Collective collective, std::string_view name, const PlanRequest& request,
                       int rank, const Sizes& sizes) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} by '{}': {}", tutti::name(collective), name, why));
  };
  if (request.ranks < 1) refuse(fmt::format("{} ranks; at least 1 is needed", request.ranks));
  if (rank < 0 || rank >= request.ranks) {
    refuse(fmt::format("rank {} is not one of 0 to {}", rank, request.ranks - 1));
  }
  const int root = is_rooted(collective) ? request.root : 0;
  if (root < 0 || root >= request.ranks) {
    refuse(fmt::format("root {} is not one of the ranks 0 to {}", root, request.ranks - 1));
  }
  PlanHeader h;
  h.collective = collective;
  h.algorithm = name;
  h.ranks = request.ranks;
  h.root = root;
  h.pieces = sizes.pieces;
  h.slots = sizes.slots;
  h.lanes = sizes.lanes;
  h.widest = sizes.widest;
  h.format = sizes.format;
  return h;
}

BinomialNode::BinomialNode(int n, int label) {
  const int lowest = label == 0 ? n : label & -label;
  if (label != 0) parent = label - lowest;
  for (int bit = 1; bit < lowest && label + bit < n; bit *= 2) {
    children.push_back({label + bit, std::min(bit, n - label - bit)});
  }
}

std::vector<int> others(int ranks, int rank) {
  std::vector<int> all;
  all.reserve(u32(ranks));
  for (int i = 1; i < ranks; ++i) all.push_back(wrap(rank + i, ranks));
  return all;
}

std::vector<Operand> of_all_ranks(int ranks, Operand chunk) {
  std::vector<Operand> all;
  all.reserve(u32(ranks));
  for (int q = 0; q < ranks; ++q) all.push_back(chunk.at(q));
  return all;
}

std::vector<Operand> in_rank_order(int ranks, int rank, Operand own) {
  std::vector<Operand> sources;
  sources.reserve(u32(ranks));
  for (int q = 0; q < ranks; ++q) sources.push_back(q == rank ? own : from(q));
  return sources;
}

std::vector<Operand> to_all(const std::vector<int>& peers) {
  std::vector<Operand> destinations;
  destinations.reserve(peers.size() + 1);
  for (const int q : peers) destinations.push_back(to(q));
  return destinations;
}

std::vector<Operand> and_to(const std::vector<int>& peers, Operand own) {
  std::vector<Operand> destinations = to_all(peers);
  destinations.insert(destinations.begin(), own);
  return destinations;
}

void meet(RankPlanBuilder::LaneRef lane, const std::vector<int>& peers) {
  if (peers.empty()) return;
  lane.signal(peers);
  lane.wait(peers);
}

void copy_alone(RankPlanBuilder& builder, Collective collective) {
  builder.lane(0).step({out(0)}, {in(0)}).completes(is_reduction(collective));
}

namespace {

/// Where the chunks of a plan are once each block has `slices` slices, for slice `s`.
struct Slicing {
  std::uint32_t pieces;
  std::uint32_t slices;
  std::uint32_t s;
  std::uint32_t tmp_chunks;

  std::uint32_t chunk(Space space, std::uint32_t c) const {
    if (space == Space::tmp) return s * tmp_chunks + c;
    return (c / pieces * slices + s) * pieces + c % pieces;
  }
};

[[noreturn]] void refuse_slices(const PlanHeader& h, std::size_t slices, const std::string& why) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{} by '{}' with {} lanes: {}", name(h.collective), h.algorithm, slices, why));
}

void check_slices(const PlanHeader& h, std::size_t slices) {
  if (slices >= 1 && slices <= kMostChannels / h.lanes) return;
  refuse_slices(h, slices,
                fmt::format("1 to {} are possible, as a rank has {} lanes at most",
                            kMostChannels / h.lanes, kMostChannels));
}

}  // namespace

RankPlan join_slices(const std::vector<const RankPlan*>& parts) {
  const PlanHeader& h = parts.front()->header;
  const auto slices = static_cast<std::uint32_t>(parts.size());
  const auto refuse = [&](const std::string& why) { refuse_slices(h, slices, why); };
  check_slices(h, slices);
  RankPlan result;
  result.header = h;
  result.header.pieces *= slices;
  result.header.lanes *= slices;
  result.rank = parts.front()->rank;
  result.tmp_chunks = parts.front()->tmp_chunks * slices;
  result.lanes.reserve(result.header.lanes);
  result.operands.reserve(parts.front()->operands.size() * slices);
  for (std::uint32_t s = 0; s < slices; ++s) {
    const RankPlan& plan = *parts[s];
    if (plan.tmp_chunks != parts.front()->tmp_chunks) {
      refuse("its ranks need different memory in different places; ask for 1 lane");
    }
    const Slicing slicing{h.pieces, slices, s, plan.tmp_chunks};
    const auto first = static_cast<std::uint32_t>(result.operands.size());
    for (Operand o : plan.operands) {
      if (o.is_link()) {
        const std::uint32_t channel = o.channel * slices + s;
        if (channel >= kMostChannels) {
          refuse(
              fmt::format("two ranks have {} links at most; ask for fewer lanes", kMostChannels));
        }
        o.channel = static_cast<std::uint8_t>(channel);
      } else if (o.is_remote() && o.space == Space::tmp) {
        refuse("it addresses the tmp of other ranks; ask for 1 lane");
      } else {
        o.chunk = slicing.chunk(o.space, o.chunk);
      }
      result.operands.push_back(o);
    }
    for (const auto& lane : plan.lanes) {
      auto& steps = result.lanes.emplace_back(lane);
      for (Step& step : steps) {
        if (step.count > 1 && step.shape_chunk % h.pieces + step.count > h.pieces) {
          refuse("it moves several blocks at once; ask for 1 lane");
        }
        step.first_operand += first;
        step.shape_chunk = slicing.chunk(step.shape_space, step.shape_chunk);
      }
    }
  }
  return result;
}

RankPlan slice(RankPlan plan, std::uint32_t slices) {
  if (slices == 1) return plan;
  check_slices(plan.header, slices);
  return join_slices(std::vector<const RankPlan*>(slices, &plan));
}

}  // namespace tutti::algorithm
