#include "tests/parallel/pipeline_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace tutti::test {
namespace {

using namespace parallel::pipeline;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

int between(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

/// Of one stage.
struct Progress {
  int forwards = 0, inputs = 0;
  std::vector<int> owed;  // micro-batches whose weights' part is to be done
};

}  // namespace

Schedule random_schedule(std::mt19937& random, int ranks) {
  Schedule s;
  s.name = "random";
  s.micro_batches = between(random, 1, 7);
  const int stages = between(random, ranks, 3 * ranks);
  for (int i = 0; i < stages; ++i) {
    s.placement.push_back(i < ranks ? i : between(random, 0, ranks - 1));
  }
  std::shuffle(s.placement.begin(), s.placement.end(), random);
  s.actions.resize(index(ranks));
  s.buffers = between(random, 1, 3);
  const bool eager = between(random, 0, 1) == 0;  // backwards first
  std::vector<Progress> progress(index(stages));
  for (;;) {
    std::vector<Action> enabled;
    for (int st = 0; st < stages; ++st) {
      const Progress& p = progress[index(st)];
      const int ready = st == 0 ? s.micro_batches : progress[index(st - 1)].forwards;
      if (p.forwards < ready) enabled.push_back({Work::forward, st, p.forwards});
      const int back =
          st + 1 == stages ? p.forwards : std::min(progress[index(st + 1)].inputs, p.forwards);
      if (p.inputs < back) {
        enabled.push_back({Work::backward, st, p.inputs});
        enabled.push_back({Work::backward_inputs, st, p.inputs});
      }
      for (const int m : p.owed) enabled.push_back({Work::backward_weights, st, m});
    }
    if (enabled.empty()) break;
    if (eager && std::any_of(enabled.begin(), enabled.end(),
                             [](const Action& a) { return a.work != Work::forward; })) {
      if (between(random, 0, 3) != 0) {
        std::erase_if(enabled, [](const Action& a) { return a.work == Work::forward; });
      }
    }
    const Action a = enabled[index(between(random, 0, static_cast<int>(enabled.size()) - 1))];
    Progress& p = progress[index(a.stage)];
    if (a.work == Work::forward) ++p.forwards;
    if (takes_gradient(a.work)) ++p.inputs;
    if (a.work == Work::backward_inputs) p.owed.push_back(a.micro_batch);
    if (a.work == Work::backward_weights) std::erase(p.owed, a.micro_batch);
    s.actions[index(s.rank_of(a.stage))].push_back(a);
  }
  s.live = stages * s.micro_batches;
  return s;
}

namespace {

using LinkId = std::pair<int, int>;  // stages

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, std::mt19937& random)
      : s_(schedule), random_(random), next_(schedule.actions.size()), live_(next_.size()) {}

  std::string run() {
    for (;;) {
      std::vector<std::pair<bool, std::pair<int, int>>> events;  // a wire moves, or a rank
      for (const auto& [wire, queue] : wires_) {
        if (!queue.empty() && received_[queue.front().first] < s_.buffers)
          events.push_back({true, wire});
      }
      for (int r = 0; r < s_.ranks(); ++r) {
        if (next_[index(r)] < s_.actions[index(r)].size() && can_start(r)) {
          events.push_back({false, {r, 0}});
        }
        if (!wrong_.empty()) return wrong_;
      }
      if (events.empty()) break;
      const auto& [moves, who] =
          events[index(between(random_, 0, static_cast<int>(events.size()) - 1))];
      moves ? move(who) : act(who.first);
      if (!wrong_.empty()) return wrong_;
    }
    for (int r = 0; r < s_.ranks(); ++r) {
      if (next_[index(r)] < s_.actions[index(r)].size()) return "deadlock";
    }
    for (int stage = 0; stage < s_.stages(); ++stage) {
      for (int m = 0; m < s_.micro_batches; ++m) {
        if (done_[{stage, m}] != 'W') return "not all is done";
      }
    }
    return "";
  }

 private:
  /// The links of an action's input and output; {-1, -1}: none.
  LinkId taken(const Action& a) const {
    if (a.work == Work::forward) return a.stage == 0 ? kNone : LinkId{a.stage - 1, a.stage};
    if (a.work == Work::backward_weights || a.stage + 1 == s_.stages()) return kNone;
    return {a.stage + 1, a.stage};
  }
  LinkId given(const Action& a) const {
    if (a.work == Work::forward)
      return a.stage + 1 == s_.stages() ? kNone : LinkId{a.stage, a.stage + 1};
    if (a.work == Work::backward_weights || a.stage == 0) return kNone;
    return {a.stage, a.stage - 1};
  }
  bool local(LinkId l) const { return s_.rank_of(l.first) == s_.rank_of(l.second); }

  bool can_start(int rank) {
    const Action& a = s_.actions[index(rank)][next_[index(rank)]];
    if (a.stage < 0 || a.stage >= s_.stages() || s_.rank_of(a.stage) != rank || a.micro_batch < 0 ||
        a.micro_batch >= s_.micro_batches) {
      wrong_ = "not here";
      return false;
    }
    if (const LinkId in = taken(a); in != kNone) {
      if (arrived_[in].empty()) return false;
      if (arrived_[in].front() != a.micro_batch) wrong_ = "another micro-batch came";
    }
    const LinkId out = given(a);
    return out == kNone || (local(out) ? received_ : sending_)[out] < s_.buffers;
  }

  void act(int rank) {
    const Action a = s_.actions[index(rank)][next_[index(rank)]++];
    char& done = done_[{a.stage, a.micro_batch}];
    const char before = a.work == Work::forward ? 0 : a.work == Work::backward_weights ? 'I' : 'F';
    if (done != before) wrong_ = fmt::format("{} out of order", to_string(a));
    done = a.work == Work::backward ? 'W' : letter(a.work);
    if (a.work == Work::forward && ++live_[index(rank)] > s_.live) wrong_ = "too many live";
    if (ends_backward(a.work)) --live_[index(rank)];
    if (const LinkId in = taken(a); in != kNone) {
      arrived_[in].pop_front();
      --received_[in];
    }
    const LinkId out = given(a);
    if (out == kNone) return;
    if (local(out)) {
      ++received_[out];
      arrived_[out].push_back(a.micro_batch);
    } else {
      ++sending_[out];
      wires_[{rank, s_.rank_of(out.second)}].push_back({out, a.micro_batch});
    }
  }

  void move(std::pair<int, int> wire) {
    const auto [link, micro_batch] = wires_[wire].front();
    wires_[wire].pop_front();
    --sending_[link];
    ++received_[link];
    arrived_[link].push_back(micro_batch);
  }

  static constexpr LinkId kNone{-1, -1};
  const Schedule& s_;
  std::mt19937& random_;
  std::vector<std::size_t> next_;
  std::vector<int> live_;
  std::map<std::pair<int, int>, char> done_;
  std::map<LinkId, int> sending_, received_;  // buffers in use
  std::map<LinkId, std::deque<int>> arrived_;
  std::map<std::pair<int, int>, std::deque<std::pair<LinkId, int>>> wires_;
  std::string wrong_;
};

}  // namespace

std::string interpret(const Schedule& schedule, std::mt19937& random) {
  return Interpreter(schedule, random).run();
}

}  // namespace tutti::test
