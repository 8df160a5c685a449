// Who shares what, and in which order.
#include "collectives/verify/races.h"

#include <fmt/format.h>

#include <tuple>

#include "collectives/text.h"

namespace tutti::proof {
namespace {

constexpr std::uint64_t kMostHeard = std::uint64_t{1} << 28;

}  // namespace

Sharing::Sharing(const Network& network) {
  const PlanHeader& h = network.plan.header;
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
      for (std::uint32_t s = l.first_step; s < l.first_step + l.steps; ++s) {
        const NetworkStep& step = network.steps[s];
        const std::uint32_t destinations = step.step->destinations;
        for (std::uint32_t i = 0; i < destinations + step.step->sources; ++i) {
          const Ref& ref = network.refs[step.first_ref + i];
          if (ref.is_link()) continue;
          for (std::uint32_t c = 0; c < step.step->count; ++c) {
            visit(lane, ref.id + c, i < destinations, step, i);
          }
        }
      }
    }
  };
  for_each_chunk(
      [&](std::uint32_t lane, std::uint32_t at, bool writes, const NetworkStep&, std::uint32_t) {
        user[at] = user[at] == kNone || user[at] == lane ? lane : kSeveral;
        if (writes) written[at] = true;
      });
  for (std::size_t at = 0; at < user.size(); ++at) {
    user[at] = user[at] == kSeveral && written[at] ? locations_++ : kNone;
  }
  if (locations_ == 0) return;
  lanes_.assign(network.lanes.size(), false);
  for_each_chunk([&](std::uint32_t lane, std::uint32_t at, bool, const NetworkStep& step,
                     std::uint32_t operand) {
    if (user[at] == kNone) return;
    lanes_[lane] = true;
    shares_tmp_ |= network.operand(lane, step, operand).space == Space::tmp;
  });
  numbers_ = std::move(user);
}

RaceCheck::RaceCheck(const Network& network, const Schedule& schedule, const Sharing& sharing)
    : net_(network),
      schedule_(schedule),
      sharing_(sharing),
      clocks_(network, sharing.lanes()),
      chunks_(sharing.locations()) {
  if (!net_.uses_windows) return;
  const std::uint64_t heard = std::uint64_t{net_.lanes.size()} * net_.plan.ranks.size();
  if (heard > kMostHeard) throw Refuted{"too many lanes use windows to follow who knows whom"};
  heard_.resize(heard);
  ended_.resize(net_.plan.ranks.size());
  guests_.resize(net_.plan.ranks.size());
}

void RaceCheck::step(std::uint32_t lane, std::uint32_t index, std::uint32_t tile) {
  const NetworkStep& step = net_.steps[index];
  const std::uint32_t destinations = step.step->destinations;
  const std::uint32_t operands = destinations + step.step->sources;
  for (const Ref& ref : net_.sources(step)) {
    if (!ref.is_link()) continue;
    const Link& link = net_.links[ref.id];
    clocks_.receive(lane, link.sending_lane, schedule_.full_slot(ref.id));
    // Data has no room for addresses.
    if (net_.uses_windows && step.step->count == 0) hear(lane, link.sender);
  }
  const Access by{lane, clocks_.now(lane), index, tile};
  for (std::uint32_t i = 0; i < operands; ++i) {
    if (!net_.refs[step.first_ref + i].is_link()) touch(by, step, i);
  }
  bool sends = false;
  for (const Ref& ref : net_.destinations(step)) {
    if (!ref.is_link()) continue;
    clocks_.send(lane, schedule_.free_slot(ref.id));
    sends = true;
  }
  if (sends) clocks_.tick(lane);
}

void RaceCheck::touch(const Access& by, const NetworkStep& step, std::uint32_t operand) {
  Operand o = net_.operand(by.lane, step, operand);
  // The next tile of in and out is other memory; only tmp is used again.
  if (by.tile > 0 && o.space != Space::tmp) return;
  if (by.tile == 0 && o.is_remote()) touch_remote(by, o);
  if (sharing_.locations() == 0) return;
  const Ref& ref = net_.refs[step.first_ref + operand];
  for (std::uint32_t c = 0; c < step.step->count; ++c, ++o.chunk) {
    const std::uint32_t number = sharing_.number(ref.id + c);
    if (number != kNone) touch_chunk(by, o, number, operand < step.step->destinations);
  }
}

void RaceCheck::touch_chunk(const Access& by, const Operand& o, std::uint32_t number, bool writes) {
  Chunk& chunk = chunks_[number];
  if (chunk.write.lane != kNone) check_order(chunk.write, true, by, writes, o);
  if (writes) {
    for (std::uint32_t r = chunk.reads; r != kNone; r = reads_[r].next) {
      check_order(reads_[r].access, false, by, true, o);
    }
    chunk = {by, kNone};
    return;
  }
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

void RaceCheck::touch_remote(const Access& by, const Operand& o) {
  if (!has_heard(by.lane, o.rank)) {
    throw Refuted{
        fmt::format("{} uses {}, but need not have received a signal from rank {} by then, which "
                    "says that the call has begun there and where its memory is",
                    step_name(by), to_text(o, net_.steps[by.step].step->count), o.rank)};
  }
  const auto owner = static_cast<std::size_t>(o.rank);
  if (ended_[owner]) {
    throw Refuted{
        fmt::format("{} uses rank {}'s memory, but rank {} can end the call before: it "
                    "does not wait for a message that is sent after that step",
                    step_name(by), o.rank, o.rank)};
  }
  auto& guests = guests_[owner];
  if (!guests.empty() && guests.back().lane == by.lane) {
    guests.back() = by;
  } else {
    guests.push_back(by);
  }
}

void RaceCheck::hear(std::uint32_t lane, int from) {
  Clocks::Time& heard =
      heard_[std::size_t{lane} * net_.plan.ranks.size() + static_cast<std::size_t>(from)];
  if (heard == 0) heard = clocks_.now(lane);
}

bool RaceCheck::has_heard(std::uint32_t lane, int from) const {
  // Lanes of a rank share what they have been told, if one comes after the other.
  const std::uint32_t first = lane - net_.lanes[lane].lane;
  for (std::uint32_t other = first; other < first + net_.plan.header.lanes; ++other) {
    const Clocks::Time heard =
        heard_[std::size_t{other} * net_.plan.ranks.size() + static_cast<std::size_t>(from)];
    if (heard != 0 && clocks_.knows(lane, other, heard)) return true;
  }
  return false;
}

void RaceCheck::rank_ends(int rank) {
  const std::uint32_t lanes = net_.plan.header.lanes;
  const std::uint32_t first = static_cast<std::uint32_t>(rank) * lanes;
  const auto knows = [&](std::uint32_t other, Clocks::Time time) {
    for (std::uint32_t lane = first; lane < first + lanes; ++lane) {
      if (clocks_.knows(lane, other, time)) return true;
    }
    return false;
  };
  if (net_.plan.header.collective == Collective::barrier) {
    for (int other = 0; other < net_.plan.header.ranks; ++other) {
      bool has_come = false;
      for (std::uint32_t l = 0; l < lanes && !has_come; ++l) {
        has_come = knows(static_cast<std::uint32_t>(other) * lanes + l, 1);
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
                            bool second_writes, const Operand& o) const {
  if (clocks_.knows(second.lane, first.lane, first.time)) return;
  // The run may have come to the next tile's access first.
  const bool swapped = first.tile > second.tile;
  const auto& [a, a_writes] =
      swapped ? std::tie(second, second_writes) : std::tie(first, first_writes);
  const auto& [b, b_writes] =
      swapped ? std::tie(first, first_writes) : std::tie(second, second_writes);
  const int owner = o.is_remote() ? o.rank : net_.lanes[second.lane].rank;
  throw Refuted{fmt::format(
      "race: {} {} {}[{}] of rank {}, and {}{} {} it, and no message puts one before the other",
      step_name(a), a_writes ? "writes" : "reads", name(o.space), o.chunk, owner, step_name(b),
      b.tile > a.tile ? " of the next tile" : "", b_writes ? "writes" : "reads")};
}

std::string RaceCheck::step_name(const Access& access) const {
  return net_.step_name(access.lane, access.step);
}

}  // namespace tutti::proof
