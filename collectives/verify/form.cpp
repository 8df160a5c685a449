// Checks of form. A plan may come from a file, so nothing about it is taken for granted: every
// index is checked before use and every sum is made in 64 bits.
#include "collectives/verify/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "collectives/text/text.h"
#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

constexpr int kMostRanks = 1 << 24;
// What follows bounds memory and time: some gigabytes and about a minute.
constexpr std::uint64_t kMostLanes = std::uint64_t{1} << 24;
constexpr std::uint64_t kMostMoves = std::uint64_t{1} << 29;
constexpr std::uint64_t kMostRefs = std::uint64_t{1} << 28;

[[noreturn]] void refute(std::string story) { throw Refuted{std::move(story)}; }

std::int64_t distance(std::uint32_t from, std::uint32_t to) {
  return std::int64_t{to} - std::int64_t{from};
}

/// Whether `next` differs from `step` in nothing but its memory, all of it `stride` chunks on.
bool is_shifted(const RankPlan& part, const Step& step, const Step& next, std::int64_t stride) {
  if (next.count != step.count || next.destinations != step.destinations ||
      next.sources != step.sources || next.completes != step.completes ||
      next.shape_space != step.shape_space ||
      distance(step.shape_chunk, next.shape_chunk) != stride) {
    return false;
  }
  const Operand* x = part.operands.data() + step.first_operand;
  const Operand* y = part.operands.data() + next.first_operand;
  for (std::uint32_t i = 0; i < std::uint32_t{next.destinations} + next.sources; ++i, ++x, ++y) {
    if (x->space != y->space || x->rank != y->rank || x->channel != y->channel) return false;
    if (!x->is_link() && distance(x->chunk, y->chunk) != stride) return false;
  }
  return true;
}

}  // namespace

void check_header(const PlanHeader& h) {
  if (!is_valid(h.collective)) refute("the plan's collective is none that Tutti knows");
  if (h.ranks < 1 || h.ranks > kMostRanks) {
    refute(fmt::format("a plan for {} ranks; 1 to {} are possible", h.ranks, kMostRanks));
  }
  if (h.root < 0 || h.root >= h.ranks) refute(fmt::format("root {} is no rank", h.root));
  if (!is_rooted(h.collective) && h.root != 0) {
    refute(fmt::format("{} has no root, but the plan names rank {}", name(h.collective), h.root));
  }
  if (h.pieces < 1) refute("a block has at least 1 piece, but the plan says 0");
  if (h.lanes < 1) refute("a rank has at least 1 lane, but the plan says 0");
  if (h.slots < 1) refute("a link has at least 1 slot, but the plan says 0");
  if (h.widest < 1) refute("a slot holds at least 1 chunk, but the plan says 0");
  if (h.format > Format::wide) refute("links and tmp have a format that Tutti does not know");
  if (h.format == Format::compressed && !is_compressible(h.collective)) {
    refute(fmt::format("a compressed plan is for all_reduce or reduce_scatter, not for {}",
                       name(h.collective)));
  }
  if (h.format == Format::wide && !is_reduction(h.collective)) {
    refute(fmt::format("a wide plan carries partial sums, but {} reduces nothing",
                       name(h.collective)));
  }
}

void Form::check() {
  net_.traffic.resize(net_.ranks());
  for (int r = 0; r < net_.header().ranks; ++r) {
    const RankPlan part = part_of(r);
    if (net_.lanes.size() + part.lanes.size() > kMostLanes) {
      refute(fmt::format("the plan has more than {} lanes, too many to follow", kMostLanes));
    }
    if (!net_.buffers.knows_tmp(r)) net_.buffers.add_tmp(r, part.tmp_chunks);
    operands_used_ = 0;
    for (std::uint32_t l = 0; l < net_.header().lanes; ++l) check_lane(part, l);
  }
  lay_out_links(net_);
}

RankPlan Form::part_of(int rank) const {
  RankPlan part = net_.plan.part(rank);
  if (part.rank != rank) {
    refute(fmt::format("the part at rank {}'s place says that it is rank {}'s", rank, part.rank));
  }
  if (!(part.header == net_.header())) {
    refute(fmt::format("rank {}'s part has another header than the plan", rank));
  }
  if (part.lanes.size() != net_.header().lanes) {
    refute(fmt::format("rank {} has {} lanes, but the header says {}", rank, part.lanes.size(),
                       net_.header().lanes));
  }
  return part;
}

/// Another rank's tmp can be named before that rank's turn comes.
void Form::know_tmp(int rank) {
  if (!net_.buffers.knows_tmp(rank)) net_.buffers.add_tmp(rank, part_of(rank).tmp_chunks);
}

void Form::check_lane(const RankPlan& part, std::uint32_t lane) {
  const std::vector<Step>& steps = part.lanes[lane];
  net_.lanes.push_back({part.rank, lane, static_cast<std::uint32_t>(net_.runs.size()), 0});
  net_.steps += steps.size();
  check_operands(part, lane);
  for (std::size_t first = 0; first < steps.size();) {
    std::size_t end = first + 1;
    const std::int64_t stride =
        end < steps.size() ? distance(steps[first].shape_chunk, steps[end].shape_chunk) : 0;
    while (end < steps.size() && is_shifted(part, steps[end - 1], steps[end], stride)) ++end;
    check_run(part, lane, first, end);
    ++net_.lanes.back().runs;
    first = end;
  }
}

void Form::check_operands(const RankPlan& part, std::uint32_t lane) {
  for (std::size_t i = 0; i < part.lanes[lane].size(); ++i) {
    const Step& step = part.lanes[lane][i];
    const std::uint64_t operands = std::uint64_t{step.destinations} + step.sources;
    operands_used_ += operands;
    // The second condition bounds what a step list that points at the same operands again and
    // again could make us build.
    if (step.first_operand + operands > part.operands.size() ||
        operands_used_ > part.operands.size()) {
      refute(fmt::format(
          "rank {} lane {} step {} has {} operands from {} on, but rank {} has only "
          "{}, each for one step",
          part.rank, lane, i, operands, step.first_operand, part.rank, part.operands.size()));
    }
  }
}

void Form::check_run(const RankPlan& part, std::uint32_t lane, std::size_t first, std::size_t end) {
  const std::vector<Step>& steps = part.lanes[lane];
  const auto named = [&](std::size_t i, auto&& check) {
    try {
      check();
    } catch (const Refuted& wrong) {
      refute(step_name(part, lane, i) + " " + wrong.story);
    }
  };
  named(first, [&] { add_run(part, steps[first], end - first); });
  if (end - first == 1) return;
  net_.runs.back().stride = steps[first + 1].shape_chunk - steps[first].shape_chunk;
  // Every range of a run moves on evenly, so those between are right where the first and the last
  // one are; and their classes of size stay equal if blocks are.
  bool is_sure = !net_.buffers.blocks_have_any_size();
  try {
    if (is_sure) check_step(part, steps[end - 1]);
  } catch (const Refuted&) {
    is_sure = false;  // which one is the first?
  }
  for (std::size_t i = first + 1; !is_sure && i < end; ++i) {
    named(i, [&] { check_step(part, steps[i]); });
  }
}

/// All that depends on which chunks it names, but for their overlap.
void Form::check_step(const RankPlan& part, const Step& step) {
  if (step.count > 0) check_moves(part.rank, step);
  for (const Operand& o : part.destinations(step)) {
    if (!o.is_link()) check_memory(part.rank, step, o, true);
  }
  for (const Operand& o : part.sources(step)) {
    if (!o.is_link()) check_memory(part.rank, step, o, false);
  }
}

void Form::add_run(const RankPlan& part, const Step& step, std::size_t steps) {
  const auto destinations = part.destinations(step);
  const auto sources = part.sources(step);
  if (destinations.empty() && sources.empty()) refute("has no operand");
  if (step.count == 0) {
    if (step.completes) refute("completes a reduction, but moves no chunk");
    for (const auto side : {destinations, sources}) {
      if (std::ranges::all_of(side, &Operand::is_link)) continue;
      refute("moves no chunk, but names memory; a signal and a wait have links alone");
    }
  }
  check_step(part, step);
  StepRun run;
  run.first_ref = static_cast<std::uint32_t>(net_.refs.size());
  run.steps = static_cast<std::uint32_t>(steps);
  run.count = step.count;
  run.shape_chunk = step.shape_chunk;
  run.destinations = step.destinations;
  run.sources = step.sources;
  run.shape_space = step.shape_space;
  run.completes = step.completes;
  run.sends_wide = sends_wide(part, step);
  run.takes_wide = takes_wide(step);
  for (const Operand& o : destinations) {
    net_.refs.push_back(o.is_link() ? resolve_link(part.rank, step, o, true)
                                    : resolve(part.rank, o));
  }
  for (const Operand& o : sources) {
    net_.refs.push_back(o.is_link() ? resolve_link(part.rank, step, o, false)
                                    : resolve(part.rank, o));
  }
  if (net_.refs.size() > kMostRefs) refute("is where the plan has too many steps to follow");
  net_.runs.push_back(run);
  check_overlap({&run});
  count(part.rank, run);
}

void Form::check_moves(int rank, const Step& step) const {
  const PlanHeader& h = net_.header();
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
}

void Form::check_memory(int rank, const Step& step, const Operand& o, bool is_destination) {
  if (static_cast<int>(o.space) > static_cast<int>(Space::link)) {
    refute("has an operand in no space that there is");
  }
  if (o.is_remote() && (o.rank < 0 || o.rank >= net_.header().ranks || o.rank == rank)) {
    refute(fmt::format("names {}, but {} is no other rank", to_text(o, step.count), o.rank));
  }
  if (is_destination && o.space == Space::in) refute("writes `in`, which is the user's");
  const int owner = o.is_remote() ? o.rank : rank;
  if (o.is_remote() && o.space == Space::tmp) know_tmp(owner);
  if (net_.header().format == Format::wide && o.space == Space::tmp) {
    if (o.is_remote()) {
      refute(fmt::format("names {}: in a wide plan tmp is its own rank's alone",
                         to_text(o, step.count)));
    }
    if (is_destination && step.completes) {
      refute("completes a reduction into tmp, which in a wide plan holds partial sums");
    }
  }
  const Buffers& buffers = net_.buffers;
  const std::uint32_t chunks = buffers.chunks(owner, o.space);
  if (std::uint64_t{o.chunk} + step.count > chunks) {
    refute(fmt::format("names {}, but rank {} has {} chunk(s) there", to_text(o, step.count), owner,
                       chunks));
  }
  if (o.space == Space::tmp || buffers.all_chunks_are_equal()) return;
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

Ref Form::resolve(int rank, const Operand& o) const {
  const int owner = o.is_remote() ? o.rank : rank;
  const Buffers& buffers = net_.buffers;
  return {buffers.has_locations(o.space) ? buffers.location(owner, o.space, o.chunk) : kNone,
          o.space == Space::in ? buffers.input(owner, o.chunk) : Ref::kWritable, o.rank};
}

Ref Form::resolve_link(int rank, const Step& step, const Operand& o, bool is_destination) {
  if (o.rank < 0 || o.rank >= net_.header().ranks) {
    refute(fmt::format("has a link with rank {}, which does not exist", o.rank));
  }
  const auto self = static_cast<std::uint32_t>(net_.lanes.size() - 1);
  const std::uint32_t id =
      is_destination ? links_.find(rank, o.rank, o.channel) : links_.find(o.rank, rank, o.channel);
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
  if (step.count > net_.header().widest) {
    refute(
        fmt::format("puts {} chunks into one message, but the header says that the widest has {}",
                    step.count, net_.header().widest));
  }
  link.widest = std::max(link.widest, step.count);
  return {id, Ref::kLink, o.rank};
}

/// What a run moves.
void Form::count(int rank, const StepRun& run) {
  const std::uint64_t chunks = std::uint64_t{run.count} * run.steps;
  Traffic& traffic = net_.traffic[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < std::size_t{run.destinations} + run.sources; ++i) {
    const Ref& ref = net_.refs[run.first_ref + i];
    const bool is_destination = i < run.destinations;
    moves_ += std::max<std::uint64_t>(chunks, run.steps);
    if (ref.is_link()) {
      Link& link = net_.links[ref.id];
      (is_destination ? link.sends : link.receives) += run.steps;
    } else if (ref.owner != Operand::kSelf) {
      net_.uses_windows = true;
    }
    if (ref.owner != Operand::kSelf && ref.owner != rank) {
      (is_destination ? traffic.sent : traffic.received) += chunks;
    }
  }
  if (moves_ > kMostMoves) {
    refute(
        fmt::format("is where the plan has moved more than {} chunks, too many to follow each "
                    "one",
                    kMostMoves));
  }
}

void Form::check_overlap(const NetworkStep& step) {
  places_.clear();
  for (const Ref& ref : net_.destinations(step)) {
    places_.push_back({ref.id, ref.is_link(), true});
  }
  for (const Ref& ref : net_.sources(step)) {
    const bool is_written = ref.is_link() || ref.has_location();
    if (is_written) places_.push_back({ref.id, ref.is_link(), false});
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
    if ((a.is_destination || b.is_destination) && b.id - a.id < step->count) {
      refute("has a destination that overlaps another operand");
    }
  }
}

}  // namespace tutti::proof
