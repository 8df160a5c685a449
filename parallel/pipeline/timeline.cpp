#include "parallel/pipeline/timeline.h"

#include <algorithm>

namespace tutti::parallel::pipeline {
namespace {

class Run {
 public:
  Run(const Schedule& schedule, const Messages& messages, const Costs& costs)
      : s_(schedule), m_(messages), costs_(costs), next_action_(schedule.actions.size()) {
    line_.messages.resize(m_.all.size());
    for (const auto& actions : s_.actions) line_.actions.emplace_back(actions.size());
    wires_of_.resize(s_.actions.size());
    for (std::size_t w = 0; w < m_.wires.size(); ++w) {
      wires_of_[index(m_.wires[w].from)].push_back(w);
      wires_of_[index(m_.wires[w].to)].push_back(w);
    }
    next_message_.resize(m_.wires.size());
  }

  Timeline run() {
    // A rank is looked at again when a wire from or to it has moved.
    std::vector<std::size_t> ranks;
    for (std::size_t r = s_.actions.size(); r > 0; --r) ranks.push_back(r - 1);
    while (!ranks.empty()) {
      const std::size_t r = ranks.back();
      ranks.pop_back();
      while (advance_rank(r)) {
      }
      for (const std::size_t w : wires_of_[r]) {
        if (!advance_wire(w)) continue;
        ranks.push_back(index(m_.wires[w].from));
        ranks.push_back(index(m_.wires[w].to));
      }
    }
    for (std::size_t r = 0; r < s_.actions.size(); ++r) {
      line_.never_start += static_cast<int>(s_.actions[r].size() - next_action_[r]);
    }
    return std::move(line_);
  }

 private:
  /// When message `i`'s buffer at the receiver is free again.
  double freed(int i) const {
    const Place reader = m_[i].receiver;
    return line_.actions[index(reader.rank)][index(reader.action)].end;
  }

  bool advance_rank(std::size_t r) {
    const std::size_t a = next_action_[r];
    if (a == s_.actions[r].size()) return false;
    double start = a == 0 ? 0 : line_.actions[r][a - 1].end;
    const auto after = [&](double time) {
      start = std::max(start, time);
      return time >= 0;
    };
    const int taken = m_.taken[r][a];
    if (taken != Messages::kNone && !after(line_.messages[index(taken)].end)) return false;
    const int given = m_.given[r][a];
    if (given != Messages::kNone) {
      const int before = m_.before(m_[given], s_.buffers);
      if (before != Messages::kNone &&
          !after(m_[given].local() ? freed(before) : line_.messages[index(before)].end)) {
        return false;
      }
    }
    Span& span = line_.actions[r][a];
    span = {start, start + costs_.of(s_.actions[r][a].work)};
    line_.end = std::max(line_.end, span.end);
    if (given != Messages::kNone && m_[given].local()) {
      line_.messages[index(given)] = {span.end, span.end};
    }
    ++next_action_[r];
    return true;
  }

  /// Returns whether anything has moved.
  bool advance_wire(std::size_t w) {
    const Wire& wire = m_.wires[w];
    const std::size_t first = next_message_[w];
    for (std::size_t& k = next_message_[w]; k < wire.messages.size(); ++k) {
      const int i = wire.messages[k];
      const Place sender = m_[i].sender;
      double start = line_.actions[index(sender.rank)][index(sender.action)].end;
      if (start < 0) break;
      if (k > 0) start = std::max(start, line_.messages[index(wire.messages[k - 1])].end);
      if (const int before = m_.before(m_[i], s_.buffers); before != Messages::kNone) {
        if (freed(before) < 0) break;
        start = std::max(start, freed(before));
      }
      line_.messages[index(i)] = {start, start + costs_.link};
    }
    return next_message_[w] != first;
  }

  const Schedule& s_;
  const Messages& m_;
  const Costs& costs_;
  Timeline line_;
  std::vector<std::size_t> next_action_;            // by rank
  std::vector<std::size_t> next_message_;           // by wire
  std::vector<std::vector<std::size_t>> wires_of_;  // by rank
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
  return Run(schedule, messages, costs).run();
}

}  // namespace tutti::parallel::pipeline
