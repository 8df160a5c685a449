#include "parallel/pipeline/timeline.h"

#include <algorithm>

namespace tutti::parallel::pipeline {
namespace {

/// Ranks are workers with actions as their steps. The ways between two ranks are workers, too, with
/// messages as their steps. A queue with a slot for each buffer lies between an action and a
/// message that it fills, and another one between a message and the action that reads it. Where an
/// action reads what one of the same rank has filled, there is one queue for both.
class PipelineScenario {
 public:
  PipelineScenario(const Schedule& schedule, const Messages& messages, const Costs& costs)
      : schedule_(schedule), m_(messages), links_(static_cast<int>(m_.links.size())) {
    for (const Work w :
         {Work::forward, Work::backward, Work::backward_inputs, Work::backward_weights}) {
      s_.costs.push_back({costs.of(w)});  // by Work
    }
    s_.costs.push_back({costs.link});
    s_.slots = static_cast<std::uint32_t>(schedule.buffers);
    s_.routes.emplace_back();
    s_.queues.resize(2 * m_.links.size());  // a link's at its sender, then all at their receivers
    for (int r = 0; r < schedule.ranks(); ++r) add_rank(r);
    for (const RankPair& pair : m_.pairs) add_pair(pair);
  }

  Timeline run() const {
    const Course course = simulate(s_, true);
    Timeline line;
    std::size_t step = 0;
    for (const auto& actions : schedule_.actions) {
      auto& spans = line.actions.emplace_back();
      for (std::size_t a = 0; a < actions.size(); ++a) spans.push_back(course.steps[step++]);
      for (const Span& s : spans) {
        line.end = std::max(line.end, s.end);
        line.never_start += s.never() ? 1 : 0;
      }
    }
    line.messages.resize(m_.all.size());
    for (const RankPair& pair : m_.pairs) {
      for (const int i : pair.messages) line.messages[index(i)] = course.steps[step++];
    }
    for (std::size_t i = 0; i < m_.all.size(); ++i) {
      if (!m_.all[i].local()) continue;
      const ActionId sender = m_.all[i].sender;
      const double end = line.actions[index(sender.rank)][index(sender.action)].end;
      line.messages[i] = {end, end};
    }
    return line;
  }

 private:
  static constexpr std::uint32_t kLinkCost = 4;

  int at_sender(const StageMessage& m) const { return m.link; }
  int at_receiver(const StageMessage& m) const { return m.local() ? m.link : links_ + m.link; }

  void begin_worker() {
    s_.workers.push_back({static_cast<std::uint32_t>(s_.lanes.size()), 1});
    const auto step = static_cast<std::uint32_t>(s_.steps.size());
    s_.lanes.push_back({step, step});
  }
  void add_step(std::uint32_t cost, int taken, int given) {
    Scenario::Step step;
    step.first = static_cast<std::uint32_t>(s_.ends.size());
    step.cost = cost;
    const int worker = static_cast<int>(s_.workers.size()) - 1;
    if (taken != Messages::kNone) {
      s_.queues[index(taken)].receiver = worker;
      s_.ends.push_back({taken});
      step.sources = 1;
    }
    if (given != Messages::kNone) {
      s_.queues[index(given)].sender = worker;
      s_.ends.push_back({given});
      step.sends = 1;
    }
    s_.steps.push_back(step);
    ++s_.lanes.back().end;
  }

  void add_rank(int r) {
    begin_worker();
    const auto& actions = schedule_.actions[index(r)];
    for (std::size_t a = 0; a < actions.size(); ++a) {
      const int taken = m_.taken[index(r)][a], given = m_.given[index(r)][a];
      add_step(static_cast<std::uint32_t>(actions[a].work),
               taken == Messages::kNone ? taken : at_receiver(m_[taken]),
               given == Messages::kNone ? given : at_sender(m_[given]));
    }
  }
  void add_pair(const RankPair& pair) {
    begin_worker();
    for (const int i : pair.messages) add_step(kLinkCost, at_sender(m_[i]), at_receiver(m_[i]));
  }

  const Schedule& schedule_;
  const Messages& m_;
  const int links_;
  Scenario s_;
};

}  // namespace

std::vector<Span> waits_of(const Timeline& timeline, int rank) {
  const double rounding = 1e-9 * timeline.end;
  std::vector<Span> waits;
  const auto& spans = timeline.actions[index(rank)];
  for (std::size_t i = 1; i < spans.size() && !spans[i].never(); ++i) {
    const Span gap{spans[i - 1].end, spans[i].start};
    if (gap.end - gap.start > rounding) waits.push_back(gap);
  }
  return waits;
}

Timeline timeline_of(const Schedule& schedule, const Messages& messages, const Costs& costs) {
  return PipelineScenario(schedule, messages, costs).run();
}

}  // namespace tutti::parallel::pipeline
