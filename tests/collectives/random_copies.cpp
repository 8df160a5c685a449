// Units of random plans that copy: each from one rank's memory to another's or to all others', by
// way of other ranks' memory, or through a window.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/collectives/random_plan_maker.h"

namespace tutti::test {

void RandomPlanMaker::add_copies(const std::vector<Run>& runs) {
  const Collective c = header_.collective;
  const int n = header_.ranks;
  for (const Run& run : runs) {
    const auto lanes = any_lanes();  // in place, a rank's own block is copied onto itself
    const auto piece = [&](int block) {
      return static_cast<std::uint32_t>(block) * header_.pieces + run.first;
    };
    for (int source = 0; source < n; ++source) {
      if (c == Collective::broadcast) {
        if (source != header_.root) continue;
        Unit& u = new_unit(lanes);
        own_copy(u, run, source, in(run.first), out(run.first));
        spread(u, run, in(run.first), from_on(source), out(run.first));
      } else if (c == Collective::all_gather || c == Collective::all_gather_v) {
        Unit& u = new_unit(lanes);
        const Operand to_where = out(piece(source));
        own_copy(u, run, source, in(run.first), to_where);
        spread(u, run, to_where, from_on(source), to_where);
      } else if (c == Collective::gather) {
        Unit& u = new_unit(lanes);
        travel(u, run, source, in(run.first), header_.root, out(piece(source)));
      } else {
        if (c == Collective::scatter && source != header_.root) continue;
        for (int to_whom = 0; to_whom < n; ++to_whom) {
          const Operand last = c == Collective::scatter ? out(run.first) : out(piece(source));
          if (c == Collective::all_to_all_v) {
            pair_lanes(source, to_whom, run, in(piece(to_whom)), last);
          } else {
            Unit& u = new_unit(lanes);
            travel(u, run, source, in(piece(to_whom)), to_whom, last);
          }
        }
      }
    }
  }
}

std::vector<int> RandomPlanMaker::from_on(int first) {
  std::vector<int> ranks{first};
  for (const int r : shuffled_ranks()) {
    if (r != first) ranks.push_back(r);
  }
  return ranks;
}

void RandomPlanMaker::pair_lanes(int source, int target, const Run& run, Operand from_what,
                                 Operand to_what) {
  const int n = header_.ranks;
  header_.lanes = std::max(header_.lanes, static_cast<std::uint32_t>(n) * 2U);
  std::vector<std::uint32_t> lanes(static_cast<std::size_t>(n));
  lanes[static_cast<std::size_t>(source)] = static_cast<std::uint32_t>(target);
  lanes[static_cast<std::size_t>(target)] = static_cast<std::uint32_t>(n + source);
  Unit& u = new_unit(lanes);
  if (source == target) return own_copy(u, run, source, from_what, to_what);
  add_message(u, run, source, {from_what}, target, {to_what}, from_what, to_what, 1);
}

void RandomPlanMaker::own_copy(Unit& u, const Run& run, int rank, Operand from_what,
                               Operand to_what) {
  Event e = event(rank, run);
  e.memory_from = {from_what};
  e.memory_to = {to_what};
  e.shape = to_what;
  u.events.push_back(e);
}

void RandomPlanMaker::add_message(Unit& u, const Run& run, int source,
                                  const std::vector<Operand>& from_what, int target,
                                  const std::vector<Operand>& to_what, Operand shape_there,
                                  Operand shape_here, int number) {
  Event e = event(source, run);
  e.memory_from = from_what;
  e.sends = {{target, number}};
  e.shape = shape_there;
  u.events.push_back(e);
  e = event(target, run);
  e.receives = {{source, number}};
  e.memory_to = to_what;
  e.shape = shape_here;
  u.events.push_back(e);
}

void RandomPlanMaker::travel(Unit& u, const Run& run, int source, Operand from_what, int target,
                             Operand to_what) {
  if (source == target) return own_copy(u, run, source, from_what, to_what);
  if (windows_ && coin()) return fetch(u, run, source, from_what, target, to_what);
  std::vector<int> way{source};
  for (const int r : shuffled_ranks()) {
    if (r != source && r != target && below(3) == 0) way.push_back(r);
  }
  way.push_back(target);
  int number = 1;
  Operand here = from_what;
  for (std::size_t i = 0; i + 1 < way.size(); ++i, ++number) {
    const bool last = i + 2 == way.size();
    const Operand shape = i == 0 ? from_what : somewhere(way[i], run);
    std::optional<Operand> stored;
    if (last) {
      stored = to_what;
    } else {
      stored = tmp(more_tmp(way[i + 1], run.count));
    }
    add_message(u, run, way[i], {here}, way[i + 1], {*stored}, shape,
                last ? to_what : somewhere(way[i + 1], run), number);
    here = *stored;
  }
}

Operand RandomPlanMaker::somewhere(int rank, const Run& run) const {
  const bool has_out = out_blocks(header_.collective, header_.ranks, rank, header_.root) > 0;
  return has_out ? out(run.first) : in(run.first);
}

void RandomPlanMaker::fetch(Unit& u, const Run& run, int source, Operand from_what, int target,
                            Operand to_what) {
  const bool reads = coin();
  const int owner = reads ? source : target;
  const int guest = reads ? target : source;
  tell(u, run, owner, guest, 1);
  Event e = event(guest, run);
  e.memory_from = {reads ? from_what.at(source) : from_what};
  e.memory_to = {reads ? to_what : to_what.at(target)};
  e.shape = reads ? to_what : from_what;
  u.events.push_back(e);
  tell(u, run, guest, owner, 2);
}

void RandomPlanMaker::tell(Unit& u, const Run& run, int sender, int receiver, int number) {
  const bool has_data = somewhere_is_written(sender);
  if (!has_data || below(4) != 0) return signal(u, sender, receiver, number);
  add_message(u, run, sender, {in(run.first)}, receiver, {tmp(more_tmp(receiver, run.count))},
              in(run.first), somewhere(receiver, run), number);
}

bool RandomPlanMaker::somewhere_is_written(int rank) const {
  return in_blocks(header_.collective, header_.ranks, rank, header_.root) == 1 &&
         !is_reduction(header_.collective) && header_.collective != Collective::all_gather_v;
}

}  // namespace tutti::test
