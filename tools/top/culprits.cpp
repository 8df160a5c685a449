#include "tools/top/culprits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace tutti::top {
namespace {

// Ranks that wait for less long are on their way.
constexpr double kHeldUp = 0.3;

/// What a rank may wait for: a rank that is seen, or rank `rank` of a communicator, unseen.
struct Node {
  int seen = -1;  // its place in Job::ranks
  std::uint64_t communicator = 0;
  int rank = -1;
  friend auto operator<=>(const Node&, const Node&) = default;
};

/// A rank waits for another one in a call.
struct Edge {
  int from = -1;  // its place in Job::ranks
  Node to;
  const Member* in = nullptr;
  const Wait* wait = nullptr;
};

/// The number of the collective that `call` names ("all_reduce #42 (...)"); 0: none.
std::uint64_t number_in(std::string_view call) {
  const std::size_t at = call.find('#');
  std::uint64_t number = 0;
  for (std::size_t i = at + 1; at != call.npos && i < call.size(); ++i) {
    if (call[i] < '0' || call[i] > '9') break;
    number = number * 10 + static_cast<std::uint64_t>(call[i] - '0');
  }
  return number;
}

class Graph {
 public:
  explicit Graph(const Job& job) : job_(job) {
    for (int i = 0; i < static_cast<int>(job.ranks.size()); ++i) {
      for (const Member* m : at(i).members) places_[{m->communicator, m->rank}] = i;
    }
    for (int i = 0; i < static_cast<int>(job.ranks.size()); ++i) add_edges(i);
  }

  std::vector<Culprit> culprits() {
    std::vector<Culprit> found;
    add_failures(found);
    std::vector<std::pair<std::size_t, Culprit>> by_weight;
    auto all_ends = ends();
    if (drop_started_waits()) all_ends = ends();
    for (const auto& [end, held_up] : all_ends) {
      if (named_.contains(end)) continue;
      by_weight.emplace_back(held_up.size(), at_the_end(end, held_up));
    }
    std::ranges::stable_sort(by_weight, std::greater(), &std::pair<std::size_t, Culprit>::first);
    for (auto& [weight, culprit] : by_weight) found.push_back(std::move(culprit));
    add_circles(found);
    return found;
  }

 private:
  const Rank& at(int place) const { return job_.ranks[static_cast<std::size_t>(place)]; }

  void add_edges(int from) {
    if (at(from).state != RankState::waiting) return;
    for (const Member* m : at(from).members) {
      if (!m->error.empty()) continue;
      for (const Wait& w : m->waits) {
        if (!w.fresh || w.seconds < kHeldUp) continue;
        const auto place = places_.find({m->communicator, w.peer});
        const Node to =
            place == places_.end() ? Node{-1, m->communicator, w.peer} : Node{place->second, 0, -1};
        edges_[from].push_back({from, to, m, &w});
      }
    }
  }

  const std::vector<Edge>* edges_of(const Node& node) const {
    const auto found = node.seen < 0 ? edges_.end() : edges_.find(node.seen);
    return found == edges_.end() ? nullptr : &found->second;
  }

  /// By the end of the line: the ranks that wait for it, directly or not.
  std::map<Node, std::set<int>> ends() {
    std::map<Node, std::set<int>> result;
    for (const auto& [from, edges] : edges_) {
      std::set<Node> visited;
      std::vector<Node> next{{from, 0, -1}};
      while (!next.empty()) {
        const Node node = next.back();
        next.pop_back();
        if (!visited.insert(node).second) continue;
        const auto* const further = edges_of(node);
        if (further == nullptr) {
          result[node].insert(from);
          reaches_end_.insert(from);
          continue;
        }
        for (const Edge& e : *further) next.push_back(e.to);
      }
    }
    return result;
  }

  /// Callers may wait in a circle that a rank belongs to only by a started call that no caller
  /// waits for. That rank goes on, and so is the end of their line. True: there was such a circle.
  bool drop_started_waits() {
    const auto in_circle = [&](int place) { return !reaches_end_.contains(place); };
    const bool any_blocked = std::ranges::any_of(
        edges_, [&](const auto& e) { return in_circle(e.first) && at(e.first).blocked; });
    if (!any_blocked) return false;
    return std::erase_if(edges_, [&](const auto& e) {
             return in_circle(e.first) && !at(e.first).blocked;
           }) > 0;
  }

  /// The wait for it that says most.
  const Edge* edge_to(const Node& node) const {
    const Edge* longest = nullptr;
    for (const auto& [from, edges] : edges_) {
      for (const Edge& e : edges) {
        if (e.to == node && (longest == nullptr || comes_before(*e.wait, *longest->wait))) {
          longest = &e;
        }
      }
    }
    return longest;
  }

  /// " of the group of ranks 0,2", where not all ranks of the job are in it.
  std::string group_text(const Member& m) const {
    if (m.size == job_.size) return "";
    std::vector<int> numbers;
    for (const Rank& r : job_.ranks) {
      const bool in = std::ranges::any_of(
          r.members, [&](const Member* o) { return o->communicator == m.communicator; });
      if (in) numbers.push_back(r.number);
    }
    return fmt::format(
        " of the group of {}{}", ranks_text(numbers),
        static_cast<int>(numbers.size()) < m.size
            ? fmt::format(" and {} unseen", m.size - static_cast<int>(numbers.size()))
            : "");
  }

  const Member* member_in(int place, std::uint64_t communicator) const {
    for (const Member* m : at(place).members) {
      if (m->communicator == communicator) return m;
    }
    return nullptr;
  }

  /// What its process does, for a rank that is alone there.
  std::string process_text(const Rank& rank) const {
    const Process* const p = rank.process;
    if (p == nullptr) return "";
    std::string text = fmt::format(". Its process, {} ({}", p->pid, p->command);
    text += job_.hosts.size() > 1 ? fmt::format(") on {}, ", p->host) : "), ";
    if (p->state == 'T') {
      return text + fmt::format("is stopped by a signal: kill -CONT {} lets it go on", p->pid);
    }
    if (p->state == 't') return text + "is stopped by a debugger";
    if (p->state == 'Z') return text + "has ended, and its parent has not noticed";
    if (p->ranks > 1) return text + fmt::format("has {} ranks as threads", p->ranks);
    if (p->state == 'D') {
      return text + fmt::format("waits for a disk or another device ({})",
                                p->sleeps_in.empty() ? "uninterruptible" : p->sleeps_in);
    }
    if (p->state == 'R' || p->cores > 0.5) {
      return text + fmt::format("computes ({:.0f} % of a core)", 100 * p->cores);
    }
    if (p->state != 'S') return text + fmt::format("is in state {}", p->state);
    return text + "sleeps in the kernel" +
           (p->sleeps_in.empty() ? "" : fmt::format(" ({})", p->sleeps_in));
  }

  /// What the rank at the end of a line does instead of what others wait for.
  std::string instead(const Rank& rank, const Edge& edge) const {
    const Member* const there =
        member_in(static_cast<int>(&rank - job_.ranks.data()), edge.in->communicator);
    std::string text;
    if (rank.state == RankState::stopped) {
      text = rank.wait != nullptr ? fmt::format("it is stopped in {}", rank.wait->call)
                                  : "it is stopped outside of a call";
    } else if (rank.state == RankState::failed) {
      text = "its calls have failed";
    } else {
      text = "it is not in a call";
    }
    if (rank.state != RankState::stopped || rank.wait == nullptr) {
      const Member& last = there != nullptr ? *there : *rank.at;
      text += last.newest.empty()
                  ? fmt::format("; it has called nothing so far{}", group_text(last))
                  : fmt::format("; its last was {}{}", last.newest, group_text(last));
      if (rank.at->calls > last.calls) {
        text += fmt::format(", and {}{}", rank.at->newest, group_text(*rank.at));
      }
    }
    if (rank.wait != nullptr && rank.wait->fresh && !rank.blocked) {
      text += fmt::format("; it has started {}, which waits for rank {}{}", rank.wait->call,
                          number_of(job_, rank.at->communicator, rank.wait->peer),
                          group_text(*rank.at));
    }
    for (const Member* m : rank.members) {
      if (!m->refused.empty()) text += fmt::format("; a call of it was refused: {}", m->refused);
    }
    if (!rank.error.empty() && text.find(rank.error) == std::string::npos) {
      text += fmt::format("; its newest error: {}", rank.error);
    }
    return text + process_text(rank);
  }

  /// Other ranks that do nothing, and have not made the collective in which `edge` waits either.
  std::vector<int> also_missing(const Edge& edge, int but) const {
    std::vector<int> places;
    const std::uint64_t number = number_in(edge.wait->call);
    if (number == 0) return places;
    for (int i = 0; i < static_cast<int>(job_.ranks.size()); ++i) {
      const Member* const m = member_in(i, edge.in->communicator);
      if (i == but || m == nullptr || m->number >= number || edges_.contains(i)) continue;
      if (at(i).state == RankState::running) places.push_back(i);
    }
    return places;
  }

  Culprit at_the_end(const Node& end, const std::set<int>& held_up) {
    const Edge& edge = *edge_to(end);
    std::vector<int> others;
    for (const int place : held_up) others.push_back(at(place).number);
    const std::string waits =
        fmt::format("{} {} for {:.1f} s, in {}{}", capitalized(ranks_text(others)),
                    others.size() == 1 ? "has waited" : "have waited", edge.wait->seconds,
                    edge.wait->call, group_text(*edge.in));
    Culprit culprit;
    if (end.seen < 0) {
      culprit.ranks.push_back(end.rank);
      const bool elsewhere = edge.in->here < edge.in->size;
      culprit.sentence = fmt::format(
          "Rank {}{} holds up {}: {}. {}", end.rank, group_text(*edge.in), ranks_text(others),
          elsewhere ? "it is not seen here. It is on another host (tutti top -H HOST,... looks at "
                      "several), or its process is gone"
                    : "its process is gone, or belongs to another user",
          waits);
      return culprit;
    }
    const Rank& rank = at(end.seen);
    culprit.ranks.push_back(rank.number);
    if (rank.process != nullptr) culprit.pids.push_back(rank.process->pid);
    const std::vector<int> missing = also_missing(edge, end.seen);
    for (const int place : missing) {
      named_.insert(Node{place, 0, -1});
      culprit.ranks.push_back(at(place).number);
      if (at(place).process != nullptr) culprit.pids.push_back(at(place).process->pid);
    }
    const std::string who = ranks_text(culprit.ranks);
    std::string what = instead(rank, edge);
    if (!missing.empty()) what = fmt::format("of rank {}: {}", rank.number, what);
    culprit.sentence =
        fmt::format("{} {} up {}: {}. {}", capitalized(who),
                    culprit.ranks.size() == 1 ? "holds" : "hold", ranks_text(others), what, waits);
    return culprit;
  }

  /// Ranks that wait for each other, one circle.
  void add_circles(std::vector<Culprit>& found) {
    std::set<int> done;
    for (const auto& [from, edges] : edges_) {
      if (reaches_end_.contains(from) || done.contains(from)) continue;
      std::vector<const Edge*> path;
      std::map<int, std::size_t> position;
      int here = from;
      while (!position.contains(here) && !done.contains(here)) {
        position[here] = path.size();
        path.push_back(&edges_.at(here).front());
        here = path.back()->to.seen;
      }
      for (const auto& [place, index] : position) done.insert(place);
      if (!position.contains(here)) continue;  // it leads to a circle that is known
      path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(position[here]));
      found.push_back(circle(path));
    }
  }

  /// So many ranks wait in the same call.
  std::size_t company(const Edge& edge) const {
    std::size_t ranks = 0;
    for (const auto& [from, edges] : edges_) {
      ranks += std::ranges::any_of(edges, [&](const Edge& e) {
        return e.in->communicator == edge.in->communicator && e.wait->call == edge.wait->call;
      });
    }
    return ranks;
  }

  /// Whether the rank that `edge` waits for has not made the collective in which it waits.
  bool is_behind(const Edge& edge) const {
    const std::uint64_t number = number_in(edge.wait->call);
    const Member* const m = member_in(edge.to.seen, edge.in->communicator);
    return number > 0 && m != nullptr && m->number < number;
  }

  Culprit circle(const std::vector<const Edge*>& path) const {
    Culprit culprit;
    std::string each;
    double seconds = 0;
    for (const Edge* e : path) {
      const Rank& rank = at(e->from);
      culprit.ranks.push_back(rank.number);
      if (rank.process != nullptr) culprit.pids.push_back(rank.process->pid);
      each += fmt::format("; rank {} waits for rank {} in {}{}", rank.number, at(e->to.seen).number,
                          e->wait->call, group_text(*e->in));
      if (is_behind(*e)) each += ", which that one has not called";
      seconds = std::max(seconds, e->wait->seconds);
    }
    // The one that is alone in its call, if the others have company.
    const auto by_company = [&](const Edge* a, const Edge* b) { return company(*a) < company(*b); };
    const auto [least, most] = std::ranges::minmax_element(path, by_company);
    std::string odd;
    if (company(**least) < company(**most) && is_behind(**most)) {
      const int number = at((*least)->from).number;
      odd = fmt::format(". Rank {} is the odd one out: {} ranks are in {}", number, company(**most),
                        (*most)->wait->call);
      std::ranges::stable_partition(culprit.ranks, [&](int r) { return r == number; });
    }
    const bool several = std::ranges::any_of(
        path, [&](const Edge* e) { return e->in->communicator != path.front()->in->communicator; });
    culprit.sentence = fmt::format(
        "{} wait for each other, for {:.1f} s{}{}{}", capitalized(ranks_text(culprit.ranks)),
        seconds, each, odd,
        several ? ". Ranks that use several communicators on one thread must use them in the same "
                  "order"
                : "");
    return culprit;
  }

  void add_failures(std::vector<Culprit>& found) const {
    std::set<std::uint64_t> done;
    for (const Rank& rank : job_.ranks) {
      for (const Member* m : rank.members) {
        // The record itself may have gone with its rank; all that have thrown it have its text.
        const std::string& text = m->failure.empty() ? m->error : m->failure;
        if (text.empty() || !done.insert(m->communicator).second) continue;
        Culprit culprit;
        culprit.sentence = fmt::format("The communicator{} has failed: {}", group_text(*m), text);
        found.push_back(std::move(culprit));
      }
    }
  }

  const Job& job_;
  std::map<std::pair<std::uint64_t, int>, int> places_;  // by communicator and rank there
  std::map<int, std::vector<Edge>> edges_;               // by the rank that waits
  std::set<int> reaches_end_;
  std::set<Node> named_;
};

}  // namespace

std::vector<Culprit> culprits_of(const Job& job) { return Graph(job).culprits(); }

}  // namespace tutti::top
