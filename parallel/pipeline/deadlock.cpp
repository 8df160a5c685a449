// The story of a deadlock: from a rank that waits to the one that it waits for, until they repeat.
#include <fmt/format.h>

#include <algorithm>

#include "parallel/pipeline/timeline.h"

namespace tutti::parallel::pipeline {
namespace {

class Story {
 public:
  Story(const Schedule& schedule, const Messages& messages, const Timeline& timeline)
      : s_(schedule), m_(messages), t_(timeline) {}

  std::string tell() const {
    std::vector<int> visited;
    int rank = 0;
    while (first_stuck(rank).is_none()) ++rank;
    while (std::find(visited.begin(), visited.end(), rank) == visited.end()) {
      visited.push_back(rank);
      rank = waits_for(rank).rank;
    }
    // What leads to the circle is no part of it.
    visited.erase(visited.begin(), std::find(visited.begin(), visited.end(), rank));
    std::string story =
        fmt::format("deadlock with {} at each end of a link:",
                    s_.buffers == 1 ? "1 buffer" : fmt::format("{} buffers", s_.buffers));
    constexpr std::size_t kMost = 8;
    for (std::size_t i = 0; i < std::min(visited.size(), kMost); ++i) {
      story += fmt::format("\n  {} waits for {}", describe(s_, first_stuck(visited[i])),
                           waits_for(visited[i]).what);
    }
    if (visited.size() > kMost) story += fmt::format("\n  ... and {} more", visited.size() - kMost);
    return story;
  }

 private:
  struct Wait {
    int rank = 0;  // an action of this rank ends it
    std::string what;
  };

  bool ended(ActionId p) const { return !t_.actions[index(p.rank)][index(p.action)].never(); }
  ActionId first_stuck(int rank) const {
    const auto& spans = t_.actions[index(rank)];
    const auto at =
        std::find_if(spans.begin(), spans.end(), [](const Span& s) { return s.never(); });
    return at == spans.end() ? ActionId{} : ActionId{rank, static_cast<int>(at - spans.begin())};
  }

  Wait waits_for(int rank) const {
    const int action = first_stuck(rank).action;
    const int taken = m_.taken[index(rank)][index(action)];
    if (taken != Messages::kNone && t_.messages[index(taken)].never())
      return waits_for_message(taken);
    const int before = m_.before(m_[m_.given[index(rank)][index(action)]], s_.buffers);
    if (m_[before].local()) {
      return {rank, fmt::format("a buffer that holds {} until {} has ended",
                                describe(s_, m_, before), describe(s_, m_[before].receiver))};
    }
    const Wait wait = waits_for_message(before);
    return {wait.rank, "a buffer to send from: " + wait.what};
  }

  Wait waits_for_message(int i) const {
    const StageMessage& m = m_[i];
    const std::string what = describe(s_, m_, i);
    if (!ended(m.sender)) {
      return {m.sender.rank, fmt::format("{}, which {} sends", what, describe(s_, m.sender))};
    }
    // It was sent, so all messages from that rank to this one stand still for want of room.
    const auto pair = std::find_if(m_.pairs.begin(), m_.pairs.end(), [&](const RankPair& w) {
      return w.from == m.sender.rank && w.to == m.receiver.rank;
    });
    const int first = *std::find_if(pair->messages.begin(), pair->messages.end(),
                                    [&](int k) { return t_.messages[index(k)].never(); });
    const ActionId holder = m_[m_.before(m_[first], s_.buffers)].receiver;
    return {holder.rank,
            fmt::format("{}, {}has no room there until {} has ended", what,
                        first == i ? "which " : "behind " + describe(s_, m_, first) + ", which ",
                        describe(s_, holder))};
  }

  const Schedule& s_;
  const Messages& m_;
  const Timeline& t_;
};

}  // namespace

std::string story_of_deadlock(const Schedule& schedule, const Messages& messages,
                              const Timeline& timeline) {
  return Story(schedule, messages, timeline).tell();
}

}  // namespace tutti::parallel::pipeline
