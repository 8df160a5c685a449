// Checks of form. A plan may come from a file, so nothing about it is taken for granted: every
// index is checked before use and every sum is made in 64 bits.
#include "collectives/verify/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "collectives/text.h"
#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

constexpr int kMostRanks = 1 << 24;
constexpr std::uint64_t kMostMoves = std::uint64_t{1} << 32;
constexpr std::uint64_t kMostRefs = std::uint64_t{1} << 31;
constexpr std::uint64_t kMostSlotChunks = std::uint64_t{1} << 28;

[[noreturn]] void refute(std::string story) { throw Refuted{std::move(story)}; }

std::uint64_t link_hash(int sender, int receiver, std::uint8_t channel) {
  const std::uint64_t key = (static_cast<std::uint64_t>(sender) << 32) ^
                            (static_cast<std::uint64_t>(receiver) << 8) ^ channel;
  return (key * 0x9e3779b97f4a7c15U) >> 20;  // Fibonacci hashing: the high bits are the mixed ones
}

}  // namespace

void check_header(const Plan& plan) {
  const PlanHeader& h = plan.header;
  if (!is_valid(h.collective)) refute("the plan's collective is none that Tutti knows");
  if (h.ranks < 1 || h.ranks > kMostRanks) {
    refute(fmt::format("a plan for {} ranks; 1 to {} are possible", h.ranks, kMostRanks));
  }
  if (plan.ranks.size() != static_cast<std::size_t>(h.ranks)) {
    refute(fmt::format("a plan for {} ranks has parts for {}", h.ranks, plan.ranks.size()));
  }
  if (h.root < 0 || h.root >= h.ranks) refute(fmt::format("root {} is no rank", h.root));
  if (!is_rooted(h.collective) && h.root != 0) {
    refute(fmt::format("{} has no root, but the plan names rank {}", name(h.collective), h.root));
  }
  if (h.pieces < 1) refute("a block has at least 1 piece, but the plan says 0");
  if (h.lanes < 1) refute("a rank has at least 1 lane, but the plan says 0");
  if (h.slots < 1) refute("a link has at least 1 slot, but the plan says 0");
  if (h.widest < 1) refute("a slot holds at least 1 chunk, but the plan says 0");
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const RankPlan& part = plan.ranks[r];
    if (part.rank != static_cast<int>(r)) {
      refute(fmt::format("the part at rank {}'s place says that it is rank {}'s", r, part.rank));
    }
    if (!(part.header == h)) {
      refute(fmt::format("rank {}'s part has another header than the plan", r));
    }
    if (part.lanes.size() != h.lanes) {
      refute(fmt::format("rank {} has {} lanes, but the header says {}", r, part.lanes.size(),
                         h.lanes));
    }
  }
}

void Form::check() {
  const Plan& plan = net_.plan;
  std::uint64_t steps = 0;
  std::uint64_t refs = 0;
  std::uint64_t lanes = 0;
  for (const RankPlan& part : plan.ranks) {
    lanes += part.lanes.size();
    refs += part.operands.size();
    for (const auto& lane : part.lanes) steps += lane.size();
  }
  if (std::max({steps, refs, lanes}) > kMostRefs) refute("the plan has too many steps to follow");
  net_.lanes.reserve(lanes);
  net_.steps.reserve(steps);
  net_.refs.reserve(refs);
  net_.traffic.resize(plan.ranks.size());
  link_table_.assign(1024, kNone);
  for (int r = 0; r < plan.header.ranks; ++r) {
    operands_used_ = 0;
    for (std::uint32_t l = 0; l < plan.header.lanes; ++l) check_lane(r, l);
  }
  lay_out_links();
}

void Form::check_lane(int rank, std::uint32_t lane) {
  const auto& steps = net_.plan.ranks[static_cast<std::size_t>(rank)].lanes[lane];
  net_.lanes.push_back({rank, lane, static_cast<std::uint32_t>(net_.steps.size()),
                        static_cast<std::uint32_t>(steps.size())});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const RankPlan& part = net_.plan.ranks[static_cast<std::size_t>(rank)];
    const std::uint64_t operands = std::uint64_t{step.destinations} + step.sources;
    operands_used_ += operands;
    // The second condition bounds what a step list that points at the same operands again and
    // again could make us build.
    if (step.first_operand + operands > part.operands.size() ||
        operands_used_ > part.operands.size()) {
      refute(
          fmt::format("rank {} lane {} step {} has {} operands from {} on, but rank {} has only "
                      "{}, each for one step",
                      rank, lane, i, operands, step.first_operand, rank, part.operands.size()));
    }
    try {
      check_step(rank, lane, i);
    } catch (const Refuted& wrong) {
      refute(step_name(net_.plan, rank, lane, i) + " " + wrong.story);
    }
  }
}

void Form::check_step(int rank, std::uint32_t lane, std::size_t index) {
  const RankPlan& part = net_.plan.ranks[static_cast<std::size_t>(rank)];
  const Step& step = part.lanes[lane][index];
  const std::span<const Operand> operands{part.operands.data() + step.first_operand,
                                          std::size_t{step.destinations} + step.sources};
  if (operands.empty()) refute("has no operand");
  if (step.count > 0) {
    check_moves(rank, step, operands);
  } else {
    if (step.completes) refute("completes a reduction, but moves no chunk");
    if (!std::all_of(operands.begin(), operands.end(),
                     [](const Operand& o) { return o.is_link(); })) {
      refute("moves no chunk, but names memory; a signal and a wait have links alone");
    }
  }
  const NetworkStep resolved{&step, static_cast<std::uint32_t>(net_.refs.size())};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    net_.refs.push_back(resolve(rank, step, operands[i], i < step.destinations));
  }
  net_.steps.push_back(resolved);
  check_overlap(resolved);
}

void Form::check_moves(int rank, const Step& step, std::span<const Operand> operands) {
  const PlanHeader& h = net_.plan.header;
  if (step.sources == 0) refute("moves chunks, but has no source");
  if (step.destinations == 0) refute("moves chunks, but has no destination");
  if (step.completes && !is_reduction(h.collective)) {
    refute(fmt::format("completes a reduction, but {} is none", name(h.collective)));
  }
  if (step.sources > 1 && !is_reduction(h.collective)) {
    refute(fmt::format("has {} sources, but {} reduces nothing", step.sources, name(h.collective)));
  }
  if (step.shape_space != Space::in && step.shape_space != Space::out) {
    refute("takes its size from neither in nor out");
  }
  const std::uint32_t chunks = net_.buffers.chunks(rank, step.shape_space);
  if (std::uint64_t{step.shape_chunk} + step.count > chunks) {
    refute(fmt::format("takes its size from {}[{}] and moves {} chunk(s), but there are only {}",
                       name(step.shape_space), step.shape_chunk, step.count, chunks));
  }
  moves_ += std::uint64_t{step.count} * operands.size();
  if (moves_ > kMostMoves) refute("is where the plan moves too many chunks to follow each one");
}

Ref Form::resolve(int rank, const Step& step, const Operand& o, bool is_destination) {
  const int ranks = net_.plan.header.ranks;
  if (static_cast<int>(o.space) > static_cast<int>(Space::link)) {
    refute("has an operand in no space that there is");
  }
  if (o.is_link()) return resolve_link(rank, step, o, is_destination);
  if (o.is_remote() && (o.rank < 0 || o.rank >= ranks || o.rank == rank)) {
    refute(fmt::format("names {}, but {} is no other rank", to_text(o, step.count), o.rank));
  }
  if (is_destination && o.space == Space::in) refute("writes `in`, which is the user's");
  const int owner = o.is_remote() ? o.rank : rank;
  const Buffers& buffers = net_.buffers;
  const std::uint32_t chunks = buffers.chunks(owner, o.space);
  if (std::uint64_t{o.chunk} + step.count > chunks) {
    refute(fmt::format("names {}, but rank {} has {} chunk(s) there", to_text(o, step.count), owner,
                       chunks));
  }
  if (o.space != Space::tmp && !buffers.all_chunks_are_equal()) {
    // The first and the last chunk decide: within a range the classes follow one another evenly.
    const std::uint32_t last = step.count - 1;
    if (buffers.size_class(owner, o.space, o.chunk) !=
            buffers.size_class(rank, step.shape_space, step.shape_chunk) ||
        buffers.size_class(owner, o.space, o.chunk + last) !=
            buffers.size_class(rank, step.shape_space, step.shape_chunk + last)) {
      refute(fmt::format("is as large as {}[{}], but {} can have another size",
                         name(step.shape_space), step.shape_chunk, to_text(o, step.count)));
    }
  }
  if (o.is_remote()) {
    net_.uses_windows = true;
    Traffic& traffic = net_.traffic[static_cast<std::size_t>(rank)];
    (is_destination ? traffic.sent : traffic.received) += step.count;
  }
  return {buffers.location(owner, o.space, o.chunk),
          o.space == Space::in ? buffers.input(owner, o.chunk) : Ref::kWritable};
}

Ref Form::resolve_link(int rank, const Step& step, const Operand& o, bool is_destination) {
  if (o.rank < 0 || o.rank >= net_.plan.header.ranks) {
    refute(fmt::format("has a link with rank {}, which does not exist", o.rank));
  }
  const auto self = static_cast<std::uint32_t>(net_.lanes.size() - 1);
  const std::uint32_t id =
      is_destination ? find_link(rank, o.rank, o.channel) : find_link(o.rank, rank, o.channel);
  Link& link = net_.links[id];
  std::uint32_t& end = is_destination ? link.sending_lane : link.receiving_lane;
  if (end == kNone) end = self;
  if (end != self) {
    refute(
        fmt::format("{} the link from rank {} to rank {} on channel {}, as lane {} does; a link "
                    "has one sending and one receiving lane",
                    is_destination ? "sends on" : "receives from", link.sender, link.receiver,
                    link.channel, net_.lanes[end].lane));
  }
  ++(is_destination ? link.sends : link.receives);
  if (step.count > net_.plan.header.widest) {
    refute(
        fmt::format("puts {} chunks into one message, but the header says that the widest has {}",
                    step.count, net_.plan.header.widest));
  }
  link.widest = std::max(link.widest, step.count);
  if (o.rank != rank) {
    Traffic& traffic = net_.traffic[static_cast<std::size_t>(rank)];
    (is_destination ? traffic.sent : traffic.received) += step.count;
  }
  return {id, Ref::kLink};
}

void Form::check_overlap(const NetworkStep& resolved) {
  places_.clear();
  for (const Ref& ref : net_.destinations(resolved)) {
    places_.push_back({ref.id, ref.is_link(), true});
  }
  for (const Ref& ref : net_.sources(resolved)) {
    places_.push_back({ref.id, ref.is_link(), false});
  }
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return std::tie(a.is_link, a.id, a.is_destination) <
           std::tie(b.is_link, b.id, b.is_destination);
  });
  std::size_t distinct = 0;
  for (const Place& place : places_) {
    Place* same = distinct > 0 ? &places_[distinct - 1] : nullptr;
    if (same == nullptr || same->is_link != place.is_link || same->id != place.id) {
      places_[distinct++] = place;
      continue;
    }
    if (same->is_destination && place.is_destination) refute("has the same destination twice");
    if (place.is_link && !place.is_destination) refute("receives from the same link twice");
    same->is_destination |= place.is_destination;
  }
  // All ranges have `count` chunks; so, in order, one that overlaps any other overlaps a neighbour.
  for (std::size_t i = 1; i < distinct; ++i) {
    const Place& a = places_[i - 1];
    const Place& b = places_[i];
    if (b.is_link) break;
    if ((a.is_destination || b.is_destination) && b.id - a.id < resolved.step->count) {
      refute("has a destination that overlaps another operand");
    }
  }
}

std::uint32_t Form::find_link(int sender, int receiver, std::uint8_t channel) {
  const std::size_t mask = link_table_.size() - 1;
  std::size_t at = link_hash(sender, receiver, channel) & mask;
  for (; link_table_[at] != kNone; at = (at + 1) & mask) {
    const Link& link = net_.links[link_table_[at]];
    if (link.sender == sender && link.receiver == receiver && link.channel == channel) {
      return link_table_[at];
    }
  }
  const auto id = static_cast<std::uint32_t>(net_.links.size());
  link_table_[at] = id;
  Link link;
  link.sender = sender;
  link.receiver = receiver;
  link.channel = channel;
  net_.links.push_back(link);
  if (net_.links.size() * 2 > link_table_.size()) grow_link_table();
  return id;
}

void Form::grow_link_table() {
  link_table_.assign(link_table_.size() * 2, kNone);
  const std::size_t mask = link_table_.size() - 1;
  for (std::uint32_t id = 0; id < net_.links.size(); ++id) {
    const Link& link = net_.links[id];
    std::size_t at = link_hash(link.sender, link.receiver, link.channel) & mask;
    while (link_table_[at] != kNone) at = (at + 1) & mask;
    link_table_[at] = id;
  }
}

void Form::lay_out_links() {
  std::uint64_t slots = 0;
  std::uint64_t chunks = 0;
  for (Link& link : net_.links) {
    if (link.sends != link.receives) {
      refute(fmt::format(
          "rank {} sends {} message(s) to rank {} on channel {}, but rank {} "
          "receives {}",
          link.sender, link.sends, link.receiver, link.channel, link.receiver, link.receives));
    }
    link.capacity = std::min(net_.plan.header.slots, link.sends);
    link.first_slot = static_cast<std::uint32_t>(slots);
    link.first_value = static_cast<std::uint32_t>(chunks);
    slots += link.capacity;
    chunks += std::uint64_t{link.capacity} * link.widest;
    if (std::max(slots, chunks) > kMostSlotChunks) {
      refute("the plan's links hold more chunks at a time than can be followed");
    }
  }
  net_.slots = static_cast<std::uint32_t>(slots);
  net_.slot_chunks = static_cast<std::uint32_t>(chunks);
}

}  // namespace tutti::proof
