// How random plans are made: each unit (a run of chunks and where it goes) becomes a list of
// events; the lists are shuffled into one another, which keeps the order of each. Written down in
// that order, all ranks' steps could run one after the other, so they cannot be in deadlock with as
// many slots as that takes.
#include "tests/collectives/random_plans.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

namespace tutti::testing {
namespace {

/// An end of a message: `message` says which of the unit.
struct End {
  int peer = 0;
  int message = 0;
};

/// A step to be, of one rank.
struct Event {
  int rank = 0;
  std::vector<Operand> memory_to, memory_from;
  std::vector<End> sends, receives;
  Operand shape = out(0);
  std::uint32_t count = 1;
  bool completes = false;
};

/// A unit's events, and where its steps go.
struct Unit {
  std::deque<Event> events;
  std::vector<std::uint32_t> lanes;  // by rank
  std::size_t id = 0;
};

class Maker {
 public:
  Maker(std::mt19937_64& random, const RandomPlanSizes& sizes) : random_(random) {
    do {
      header_.collective = static_cast<Collective>(below(kCollectives));
    } while (header_.collective == Collective::send_recv);
    header_.algorithm = "random";
    header_.ranks = 1 + static_cast<int>(below(static_cast<std::uint32_t>(sizes.most_ranks)));
    header_.root = is_rooted(header_.collective) ? any_rank() : 0;
    header_.pieces = 1 + below(sizes.most_pieces);
    header_.lanes = 1 + below(sizes.most_lanes);
    header_.widest = 1;
    tmp_.resize(static_cast<std::size_t>(header_.ranks));
    windows_ = sizes.windows && below(3) == 0;
    few_channels_ = below(2) == 0;
  }

  Plan make() {
    const auto runs = cut_pieces();
    if (header_.collective == Collective::barrier) {
      add_barrier();
    } else if (is_reduction(header_.collective)) {
      add_reductions(runs);
    } else {
      add_copies(runs);
    }
    const std::uint32_t signals = below(4);
    for (std::uint32_t i = 0; i < signals && header_.collective != Collective::all_to_all_v; ++i) {
      add_signal();
    }
    return write_down();
  }

 private:
  struct Run {
    std::uint32_t first, count;
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  int any_rank() { return static_cast<int>(below(static_cast<std::uint32_t>(header_.ranks))); }
  bool coin() { return below(2) == 0; }

  /// Runs of pieces that travel together.
  std::vector<Run> cut_pieces() {
    std::vector<Run> runs;
    const std::uint32_t most = 1 + below(header_.pieces);
    for (std::uint32_t at = 0; at < header_.pieces;) {
      const std::uint32_t n = std::min(1 + below(most), header_.pieces - at);
      runs.push_back({at, n});
      at += n;
    }
    return runs;
  }

  std::vector<std::uint32_t> any_lanes() {
    std::vector<std::uint32_t> lanes(static_cast<std::size_t>(header_.ranks));
    for (auto& l : lanes) l = below(header_.lanes);
    return lanes;
  }

  Unit& new_unit(const std::vector<std::uint32_t>& lanes) {
    Unit& u = units_.emplace_back();
    u.lanes = lanes;
    u.id = units_.size();
    return u;
  }

  std::uint32_t more_tmp(int rank, std::uint32_t n) {
    auto& tmp = tmp_[static_cast<std::size_t>(rank)];
    tmp += below(3);  // some that nobody uses
    const std::uint32_t first = tmp;
    tmp += n;
    return first;
  }

  std::vector<int> shuffled_ranks() {
    std::vector<int> ranks(static_cast<std::size_t>(header_.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random_);
    return ranks;
  }

  // --- Reductions --------------------------------------------------------------------------------

  void add_reductions(const std::vector<Run>& runs) {
    const bool scatters = header_.collective == Collective::reduce_scatter ||
                          header_.collective == Collective::reduce_scatter_v;
    const int blocks = scatters ? header_.ranks : 1;
    for (const Run& run : runs) {
      const auto lanes = any_lanes();
      for (int b = 0; b < blocks; ++b) {
        Unit& u = new_unit(scatters ? any_lanes() : lanes);
        const std::uint32_t chunk = static_cast<std::uint32_t>(b) * header_.pieces + run.first;
        const bool everywhere = header_.collective == Collective::all_reduce;
        const int home = scatters ? b : everywhere ? any_rank() : header_.root;
        add_reduction(u, run, chunk, home, everywhere);
      }
    }
  }

  /// The sum of all ranks' in[chunk] in `home`'s out, and in all others'.
  void add_reduction(Unit& u, const Run& run, std::uint32_t chunk, int home, bool everywhere) {
    const auto order = shuffled_ranks();
    std::vector<int> members{home};
    for (const int r : order) {
      if (r != home) members.push_back(r);
    }
    // A random tree over `members`: parents come first, so children send before them from the back.
    std::vector<std::vector<int>> children(members.size());
    for (std::size_t i = 1; i < members.size(); ++i) {
      children[below(static_cast<std::uint32_t>(i))].push_back(static_cast<int>(i));
    }
    std::vector<int> parent(members.size(), 0);
    for (std::size_t i = 0; i < members.size(); ++i) {
      for (const int c : children[i]) parent[static_cast<std::size_t>(c)] = static_cast<int>(i);
    }
    for (std::size_t i = members.size(); i-- > 0;) {
      const int rank = members[i];
      const bool is_home = i == 0;
      std::vector<End> come;
      for (const int c : children[i]) {
        come.push_back({members[static_cast<std::size_t>(c)], message_of(c)});
      }
      std::shuffle(come.begin(), come.end(), random_);
      Event last = event(rank, run);
      last.shape = in(chunk);
      last.memory_from = {in(chunk)};
      // Some ranks that have nothing but their own input are looked at, through a window.
      std::vector<int> looked_at;
      for (const int r : fetched_) {
        if (std::ranges::find(come, r, &End::peer) == come.end()) continue;
        std::erase_if(come, [&](const End& end) { return end.peer == r; });
        looked_at.push_back(r);
        last.memory_from.push_back(in(chunk).at(r));
      }
      std::erase_if(fetched_,
                    [&](int r) { return std::ranges::find(looked_at, r) != looked_at.end(); });
      for (const int r : looked_at) signal(u, r, rank, 200 + r);
      if (!is_home && come.empty() && looked_at.empty() && windows_ && coin()) {
        fetched_.push_back(rank);
        continue;
      }
      if (come.size() > 1 && looked_at.empty() && coin()) {  // one by one, by way of tmp
        const std::uint32_t t = more_tmp(rank, run.count);
        Event first = last;
        first.memory_to = {tmp(t)};
        first.receives = {come.back()};
        come.pop_back();
        u.events.push_back(first);
        last.memory_from = {tmp(t)};
      }
      last.receives = come;
      if (is_home) {
        last.memory_to = {
            out(everywhere || header_.collective == Collective::reduce ? chunk : run.first)};
        last.completes = true;
      } else {
        last.sends = {
            {members[static_cast<std::size_t>(parent[i])], message_of(static_cast<int>(i))}};
      }
      u.events.push_back(last);
      for (const int r : looked_at) signal(u, rank, r, 300 + r);
    }
    if (everywhere) spread(u, run, out(chunk), members, [&](int) { return out(chunk); });
  }

  static int message_of(int child) { return child; }

  // --- Copies ------------------------------------------------------------------------------------

  void add_copies(const std::vector<Run>& runs) {
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
          spread(u, run, in(run.first), from_on(source), [&](int) { return out(run.first); });
        } else if (c == Collective::all_gather || c == Collective::all_gather_v) {
          Unit& u = new_unit(lanes);
          const Operand to_where = out(piece(source));
          own_copy(u, run, source, in(run.first), to_where);
          spread(u, run, to_where, from_on(source), [&](int) { return to_where; });
        } else if (c == Collective::gather) {
          Unit& u = new_unit(lanes);
          travel(u, run, source, in(run.first), header_.root, out(piece(source)), lanes);
        } else {
          if (c == Collective::scatter && source != header_.root) continue;
          for (int to_whom = 0; to_whom < n; ++to_whom) {
            const Operand last = c == Collective::scatter ? out(run.first) : out(piece(source));
            if (c == Collective::all_to_all_v) {
              pair_lanes(source, to_whom, run, in(piece(to_whom)), last);
            } else {
              Unit& u = new_unit(lanes);
              travel(u, run, source, in(piece(to_whom)), to_whom, last, lanes);
            }
          }
        }
      }
    }
  }

  std::vector<int> from_on(int first) {
    std::vector<int> ranks{first};
    for (const int r : shuffled_ranks()) {
      if (r != first) ranks.push_back(r);
    }
    return ranks;
  }

  /// all_to_all_v: every lane moves the block of one pair.
  void pair_lanes(int source, int target, const Run& run, Operand from_what, Operand to_what) {
    const int n = header_.ranks;
    header_.lanes = std::max(header_.lanes, static_cast<std::uint32_t>(n) * 2U);
    std::vector<std::uint32_t> lanes(static_cast<std::size_t>(n));
    lanes[static_cast<std::size_t>(source)] = static_cast<std::uint32_t>(target);
    lanes[static_cast<std::size_t>(target)] = static_cast<std::uint32_t>(n + source);
    Unit& u = new_unit(lanes);
    if (source == target) return own_copy(u, run, source, from_what, to_what);
    add_message(u, run, source, {from_what}, target, {to_what}, from_what, to_what, 1);
  }

  void own_copy(Unit& u, const Run& run, int rank, Operand from_what, Operand to_what) {
    Event e = event(rank, run);
    e.memory_from = {from_what};
    e.memory_to = {to_what};
    e.shape = to_what;
    u.events.push_back(e);
  }

  void add_message(Unit& u, const Run& run, int source, const std::vector<Operand>& from_what,
                   int target, const std::vector<Operand>& to_what, Operand shape_there,
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

  /// From one rank's memory to another's, by way of others.
  void travel(Unit& u, const Run& run, int source, Operand from_what, int target, Operand to_what,
              const std::vector<std::uint32_t>&) {
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

  /// Chunks of rank `rank`'s with the sizes of the run's.
  Operand somewhere(int rank, const Run& run) const {
    const bool has_out = out_blocks(header_.collective, header_.ranks, rank, header_.root) > 0;
    return has_out ? out(run.first) : in(run.first);
  }

  /// Through a window: ready, read, done.
  void fetch(Unit& u, const Run& run, int source, Operand from_what, int target, Operand to_what) {
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

  /// A message that says how far `sender` is: a signal; or, which addresses nobody, data.
  void tell(Unit& u, const Run& run, int sender, int receiver, int number) {
    const bool has_data = somewhere_is_written(sender);
    if (!has_data || below(4) != 0) return signal(u, sender, receiver, number);
    add_message(u, run, sender, {in(run.first)}, receiver, {tmp(more_tmp(receiver, run.count))},
                in(run.first), somewhere(receiver, run), number);
  }
  bool somewhere_is_written(int rank) const {  // an input of one block
    return in_blocks(header_.collective, header_.ranks, rank, header_.root) == 1 &&
           !is_reduction(header_.collective) && header_.collective != Collective::all_gather_v;
  }

  void signal(Unit& u, int sender, int receiver, int number) {
    Event e;
    e.rank = sender;
    e.count = 0;
    e.sends = {{receiver, number}};
    u.events.push_back(e);
    e = {};
    e.rank = receiver;
    e.count = 0;
    e.receives = {{sender, number}};
    u.events.push_back(e);
  }

  /// Along a random tree from members[0], which has it in `from_what`, into all others' memory.
  template <class Where>
  void spread(Unit& u, const Run& run, Operand from_what, const std::vector<int>& members,
              Where&& where) {
    std::vector<std::vector<std::size_t>> children(members.size());
    for (std::size_t i = 1; i < members.size(); ++i) {
      children[below(static_cast<std::uint32_t>(i))].push_back(i);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::vector<End> go;
      for (const std::size_t c : children[i]) {
        go.push_back({members[c], 100 + static_cast<int>(c)});
      }
      if (i == 0) {
        if (go.empty()) continue;
        Event e = event(members[0], run);
        e.memory_from = {from_what};
        e.shape = from_what;
        e.sends = go;
        u.events.push_back(e);
        continue;
      }
      Event e = event(members[i], run);
      e.receives = {{parent_of(children, members, i), 100 + static_cast<int>(i)}};
      e.memory_to = {where(members[i])};
      e.shape = where(members[i]);
      if (coin()) {
        e.sends = go;
        u.events.push_back(e);
        continue;
      }
      u.events.push_back(e);
      // One by one, out of memory, or into theirs (but for ranks that wait for a message).
      for (const End& end : go) {
        Event more = event(members[i], run);
        more.memory_from = {where(members[i])};
        more.shape = where(members[i]);
        more.sends = {end};
        u.events.push_back(more);
      }
    }
  }

  static int parent_of(const std::vector<std::vector<std::size_t>>& children,
                       const std::vector<int>& members, std::size_t child) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (std::ranges::find(children[i], child) != children[i].end()) return members[i];
    }
    return members[0];
  }

  // --- Signals -----------------------------------------------------------------------------------

  void add_barrier() {
    Unit& u = new_unit(any_lanes());
    const auto order = shuffled_ranks();
    for (std::size_t i = 1; i < order.size(); ++i) {
      signal(u, order[i], order[0], static_cast<int>(i));
    }
    for (std::size_t i = 1; i < order.size(); ++i) {
      signal(u, order[0], order[i], static_cast<int>(i) + 100);
    }
  }

  void add_signal() {
    Unit& u = new_unit(any_lanes());
    signal(u, any_rank(), any_rank(), 1);
  }

  static Event event(int rank, const Run& run) {
    Event e;
    e.rank = rank;
    e.count = run.count;
    return e;
  }

  // --- Writing it down ---------------------------------------------------------------------------

  struct Link {
    std::uint8_t channel = 0;
    std::deque<std::pair<std::size_t, int>> under_way;  // unit, message
  };

  /// The link that goes from a lane to another; null: there is no more channel.
  Link* link(const Unit& u, int sender, int receiver) {
    const std::uint32_t from_lane = u.lanes[static_cast<std::size_t>(sender)];
    const std::uint32_t to_lane = u.lanes[static_cast<std::size_t>(receiver)];
    const std::tuple key{sender, receiver, from_lane, to_lane};
    if (const auto found = links_.find(key); found != links_.end()) return &found->second;
    auto& used = channels_[{sender, receiver}];
    if (used.size() == kMostChannels) return nullptr;
    std::uint8_t channel = few_channels_ ? static_cast<std::uint8_t>(used.size())
                                         : static_cast<std::uint8_t>(below(kMostChannels));
    while (std::ranges::find(used, channel) != used.end()) {
      channel = static_cast<std::uint8_t>((channel + 1U) % kMostChannels);
    }
    used.push_back(channel);
    return &(links_[key] = Link{channel, {}});
  }

  /// Whether the messages that an event takes are the next of their links.
  bool can_come(const Unit& u) {
    const Event& e = u.events.front();
    return std::ranges::all_of(e.receives, [&](const End& end) {
      const Link* const l = link(u, end.peer, e.rank);
      return l != nullptr && !l->under_way.empty() &&
             l->under_way.front() == std::pair{u.id, end.message};
    });
  }

  Plan write_down() {
    struct Written {
      Event event;
      std::uint32_t lane;
      std::vector<Operand> destinations, sources;
    };
    std::vector<Written> all;
    std::size_t slots = 1;
    for (;;) {
      std::vector<Unit*> ready;
      for (Unit& u : units_) {
        if (!u.events.empty() && can_come(u)) ready.push_back(&u);
      }
      if (ready.empty()) break;  // done; or stuck, which makes the plan wrong
      Unit& u = *ready[below(static_cast<std::uint32_t>(ready.size()))];
      Written w{u.events.front(), u.lanes[static_cast<std::size_t>(u.events.front().rank)], {}, {}};
      u.events.pop_front();
      const Event& e = w.event;
      w.destinations = e.memory_to;
      w.sources = e.memory_from;
      for (const End& end : e.sends) {
        Link* const l = link(u, e.rank, end.peer);
        if (l == nullptr) continue;
        l->under_way.emplace_back(u.id, end.message);
        slots = std::max(slots, l->under_way.size());
        w.destinations.push_back(to(end.peer, l->channel));
      }
      for (const End& end : e.receives) {
        Link* const l = link(u, end.peer, e.rank);
        l->under_way.pop_front();
        w.sources.push_back(from(end.peer, l->channel));
      }
      std::shuffle(w.destinations.begin(), w.destinations.end(), random_);
      std::shuffle(w.sources.begin(), w.sources.end(), random_);
      if (!(e.sends.empty() && e.receives.empty())) {
        header_.widest = std::max(header_.widest, e.count);
      }
      all.push_back(std::move(w));
    }
    header_.slots = static_cast<std::uint32_t>(slots) + below(2) * below(20);
    Plan plan{header_, {}};
    for (int r = 0; r < header_.ranks; ++r) {
      RankPlanBuilder b(header_, r);
      b.reserve_tmp(tmp_[static_cast<std::size_t>(r)]);
      for (const Written& w : all) {
        if (w.event.rank != r) continue;
        auto step = b.lane(w.lane).step(w.destinations, w.sources);
        if (w.event.count == 0) continue;
        step.span(w.event.count).shaped_as(w.event.shape).completes(w.event.completes);
      }
      plan.ranks.push_back(b.finish());
    }
    return plan;
  }

  std::mt19937_64& random_;
  PlanHeader header_;
  bool windows_ = false;
  std::vector<int>
      fetched_;  // of the reduction at hand: ranks that send nothing, but are looked at
  bool few_channels_ = false;
  std::vector<std::uint32_t> tmp_;  // chunks, by rank
  std::deque<Unit> units_;
  std::map<std::tuple<int, int, std::uint32_t, std::uint32_t>, Link> links_;
  std::map<std::pair<int, int>, std::vector<std::uint8_t>> channels_;
};

}  // namespace

Plan random_plan(std::mt19937_64& random, const RandomPlanSizes& sizes) {
  return Maker(random, sizes).make();
}

}  // namespace tutti::testing
