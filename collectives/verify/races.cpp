// Which lanes share which memory, and in which order they use it.
#include "collectives/verify/races.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "collectives/text/text.h"

namespace tutti::proof {
namespace {

constexpr std::uint64_t kMostHeard = std::uint64_t{1} << 28;
constexpr std::uint64_t kTimes = std::uint64_t{1} << 24;       // 64 MiB of clocks
constexpr std::uint64_t kMostVisits = std::uint64_t{1} << 28;  // steps of all runs: a minute or two

/// By lane: whether it is one of these ranks', and it matters when it does something.
std::vector<bool> lanes_of(const Network& network, const Sharing& sharing, RankInterval ranks) {
  std::vector<bool> lanes(network.lanes.size());
  for (std::size_t l = ranks.begin * network.header().lanes; l < ranks.end * network.header().lanes;
       ++l) {
    lanes[l] = sharing.lanes()[l];
  }
  return lanes;
}

}  // namespace

Sharing::Sharing(const Network& network) {
  const PlanHeader& h = network.header();
  const bool orders_ranks = h.collective == Collective::barrier && h.ranks > 1;
  if (network.uses_windows || h.lanes > 1) find(network);
  is_harmless_ = locations_ == 0 && !network.uses_windows && !orders_ranks;
  // A window's owner and its guests meet in memory that need not be shared otherwise.
  if (network.uses_windows || orders_ranks) lanes_.assign(network.lanes.size(), true);
}

void Sharing::find(const Network& network) {
  constexpr std::uint32_t kSeveral = kNone - 1;
  std::vector<std::uint32_t> user(network.buffers.locations(), kNone);  // the lane, or kSeveral
  std::vector<bool> written(user.size());
  const auto for_each_chunk = [&](auto&& visit) {
    for (std::uint32_t lane = 0; lane < network.lanes.size(); ++lane) {
      const NetworkLane& l = network.lanes[lane];
      for (std::uint32_t r = l.first_run; r < l.first_run + l.runs; ++r) {
        const StepRun& run = network.runs[r];
        NetworkStep step{&run};
        for (std::uint32_t s = 0; s < run.steps; ++s, step.shift += run.stride) {
          for (std::uint32_t i = 0; i < std::uint32_t{run.destinations} + run.sources; ++i) {
            const Ref& ref = network.refs[run.first_ref + i];
            if (!ref.has_location()) continue;
            for (std::uint32_t c = 0; c < run.count; ++c) {
              visit(lane, step.location(ref) + c, i < run.destinations);
            }
          }
        }
      }
    }
  };
  for_each_chunk([&](std::uint32_t lane, std::uint32_t at, bool writes) {
    user[at] = user[at] == kNone || user[at] == lane ? lane : kSeveral;
    if (writes) written[at] = true;
  });
  for (std::size_t at = 0; at < user.size(); ++at) {
    user[at] = user[at] == kSeveral && written[at] ? locations_++ : kNone;
  }
  if (locations_ == 0) return;
  lanes_.assign(network.lanes.size(), false);
  for_each_chunk([&](std::uint32_t lane, std::uint32_t at, bool) {
    if (user[at] == kNone) return;
    lanes_[lane] = true;
    shares_tmp_ |= network.buffers.is_tmp(at);
  });
  numbers_ = std::move(user);
}

std::uint32_t RaceCheck::ranks_at_a_time(const Network& network) {
  const std::uint64_t of_a_rank = std::uint64_t{network.lanes.size()} * network.header().lanes;
  const std::uint64_t at_a_time = std::clamp<std::uint64_t>(kTimes / of_a_rank, 1, network.ranks());
  const std::uint64_t runs = (network.ranks() + at_a_time - 1) / at_a_time;
  if (runs > 1 && runs * network.steps > kMostVisits) {
    throw Refuted{"too many lanes depend on one another to follow who knows what of whom"};
  }
  return static_cast<std::uint32_t>(at_a_time);
}

RaceCheck::RaceCheck(const Network& network, const Schedule& schedule, const Sharing& sharing,
                     RankInterval ranks)
    : net_(network),
      schedule_(schedule),
      sharing_(sharing),
      ranks_(ranks),
      clocks_(network, lanes_of(network, sharing, ranks)),
      chunks_(sharing.locations()) {
  if (!net_.uses_windows) return;
  const std::uint64_t heard = std::uint64_t{clocks_.dimensions()} * net_.ranks();
  if (heard > kMostHeard) throw Refuted{"too many lanes use windows to follow who knows whom"};
  heard_.resize(heard);
  ended_.resize(net_.ranks());
  guests_.resize(net_.ranks());
}

void RaceCheck::step(const NetworkStep& step, std::uint32_t tile) {
  for (const Ref& ref : net_.sources(step)) {
    if (!ref.is_link()) continue;
    const Link& link = net_.links[ref.id];
    clocks_.receive(step.lane, link.sending_lane, schedule_.full_slot(ref.id));
    // Data has no room for addresses.
    const bool tells = net_.uses_windows && step->count == 0;
    if (tells && clocks_.watches(step.lane)) hear(step.lane, link.sender);
  }
  const Access by{step.lane, clocks_.now(step.lane), step.index, tile};
  const auto operands = net_.operands(step);
  for (std::uint32_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].is_link()) touch(by, step, i);
  }
  bool sends = false;
  for (const Ref& ref : net_.destinations(step)) {
    if (!ref.is_link()) continue;
    clocks_.send(step.lane, schedule_.free_slot(ref.id));
    sends = true;
  }
  if (sends) clocks_.tick(step.lane);
}

void RaceCheck::touch(const Access& by, const NetworkStep& step, std::uint32_t operand) {
  const Ref& ref = net_.operands(step)[operand];
  if (by.tile == 0 && ref.owner != Operand::kSelf && clocks_.watches(by.lane)) {
    touch_remote(by, step, operand);
  }
  if (sharing_.locations() == 0 || !ref.has_location()) return;
  // The next tile of in and out is other memory; only tmp is used again.
  if (by.tile > 0 && !net_.buffers.is_tmp(step.location(ref))) return;
  for (std::uint32_t c = 0; c < step->count; ++c) {
    const std::uint32_t number = sharing_.number(step.location(ref) + c);
    if (number != kNone) touch_chunk(by, number, {operand, c, operand < step->destinations});
  }
}

void RaceCheck::touch_chunk(const Access& by, std::uint32_t number, const Place& at) {
  Chunk& chunk = chunks_[number];
  if (chunk.write.lane != kNone) check_order(chunk.write, true, by, at);
  if (at.is_written) {
    for (std::uint32_t r = chunk.reads; r != kNone; r = reads_[r].next) {
      check_order(reads_[r].access, false, by, at);
    }
    chunk = {by, kNone};
    return;
  }
  if (!clocks_.watches(by.lane)) return;  // another run compares it with what comes later
  // Whatever comes after this read comes after an earlier read that this one comes after.
  if (chunk.reads != kNone) {
    Access& last = reads_[chunk.reads].access;
    if (clocks_.knows(by.lane, last.lane, last.time)) {
      last = by;
      return;
    }
  }
  reads_.push_back({by, chunk.reads});
  chunk.reads = static_cast<std::uint32_t>(reads_.size() - 1);
}

void RaceCheck::touch_remote(const Access& by, const NetworkStep& step, std::uint32_t operand) {
  const int rank = net_.operands(step)[operand].owner;
  if (!has_heard(by.lane, rank)) {
    throw Refuted{fmt::format(
        "{} uses {}, but need not have received a signal from rank {} by then, which "
        "says that the call has begun there and where its memory is",
        step_name(by), to_text(net_.operand(by.lane, by.step, operand), step->count), rank)};
  }
  const auto owner = static_cast<std::size_t>(rank);
  if (ended_[owner]) {
    throw Refuted{
        fmt::format("{} uses rank {}'s memory, but rank {} can end the call before: it "
                    "does not wait for a message that is sent after that step",
                    step_name(by), rank, rank)};
  }
  auto& guests = guests_[owner];
  if (!guests.empty() && guests.back().lane == by.lane) {
    guests.back() = by;
  } else {
    guests.push_back(by);
  }
}

std::size_t RaceCheck::heard_at(std::uint32_t lane, int from) const {
  return clocks_.dimension(lane) * net_.ranks() + static_cast<std::size_t>(from);
}

void RaceCheck::hear(std::uint32_t lane, int from) {
  Clocks::Time& heard = heard_[heard_at(lane, from)];
  if (heard == 0) heard = clocks_.now(lane);
}

bool RaceCheck::has_heard(std::uint32_t lane, int from) const {
  // Lanes of a rank share what they have been told, if one comes after the other.
  const std::uint32_t first = lane - net_.lanes[lane].lane;
  for (std::uint32_t other = first; other < first + net_.header().lanes; ++other) {
    const Clocks::Time heard = heard_[heard_at(other, from)];
    if (heard != 0 && clocks_.knows(lane, other, heard)) return true;
  }
  return false;
}

void RaceCheck::rank_ends(int rank) {
  const std::uint32_t lanes = net_.header().lanes;
  const std::uint32_t first = static_cast<std::uint32_t>(rank) * lanes;
  const auto knows = [&](std::uint32_t other, Clocks::Time time) {
    for (std::uint32_t lane = first; lane < first + lanes; ++lane) {
      if (clocks_.knows(lane, other, time)) return true;
    }
    return false;
  };
  if (net_.header().collective == Collective::barrier) {
    for (std::uint32_t other = ranks_.begin; other < ranks_.end; ++other) {
      bool has_come = false;
      for (std::uint32_t l = 0; l < lanes && !has_come; ++l) {
        has_come = knows(other * lanes + l, 1);
      }
      if (!has_come) {
        throw Refuted{fmt::format(
            "rank {} can leave the barrier before rank {} has come: no message tells it", rank,
            other)};
      }
    }
  }
  if (!net_.uses_windows) return;
  for (const Access& guest : guests_[static_cast<std::size_t>(rank)]) {
    if (!knows(guest.lane, guest.time)) {
      throw Refuted{fmt::format(
          "rank {} can end the call while {} still uses its memory: it does not wait for a message "
          "that is sent after that step",
          rank, step_name(guest))};
    }
  }
  ended_[static_cast<std::size_t>(rank)] = true;
  clocks_.join(first, lanes);
}

void RaceCheck::check_order(const Access& first, bool first_writes, const Access& second,
                            const Place& at) const {
  if (!clocks_.watches(first.lane) || clocks_.knows(second.lane, first.lane, first.time)) return;
  const Operand o = net_.operand(second.lane, second.step, at.operand);
  // The run may have come to the next tile's access first.
  const bool swapped = first.tile > second.tile;
  const auto& [a, a_writes] =
      swapped ? std::tie(second, at.is_written) : std::tie(first, first_writes);
  const auto& [b, b_writes] =
      swapped ? std::tie(first, first_writes) : std::tie(second, at.is_written);
  const int owner = o.is_remote() ? o.rank : net_.lanes[second.lane].rank;
  throw Refuted{fmt::format(
      "race: {} {} {}[{}] of rank {}, and {}{} {} it, and no message puts one before the other",
      step_name(a), a_writes ? "writes" : "reads", name(o.space), o.chunk + at.chunk, owner,
      step_name(b), b.tile > a.tile ? " of the next tile" : "", b_writes ? "writes" : "reads")};
}

std::string RaceCheck::step_name(const Access& access) const {
  return net_.step_name(access.lane, access.step);
}

}  // namespace tutti::proof
