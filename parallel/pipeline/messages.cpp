#include "parallel/pipeline/messages.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace tutti::parallel::pipeline {
namespace {

constexpr int kNoLink = -1;

/// Links 0 ... stages - 2 are those of activations, the others those of gradients.
struct Ends {
  int taken = kNoLink, given = kNoLink;
};
Ends ends_of(const Action& a, int stages) {
  const int boundaries = stages - 1;
  Ends e;
  if (a.work == Work::forward) {
    if (a.stage > 0) e.taken = a.stage - 1;
    if (a.stage < boundaries) e.given = a.stage;
  } else if (takes_gradient(a.work)) {
    if (a.stage < boundaries) e.taken = boundaries + a.stage;
    if (a.stage > 0) e.given = boundaries + a.stage - 1;
  }
  return e;
}

}  // namespace

Messages messages_of(const Schedule& s) {
  Messages m;
  const int boundaries = s.stages() - 1;
  for (int b = 0; b < boundaries; ++b) m.links.push_back({b, b + 1, {}});
  for (int b = 0; b < boundaries; ++b) m.links.push_back({b + 1, b, {}});
  std::map<std::pair<int, int>, std::vector<int>> pairs;
  m.taken.resize(s.actions.size());
  m.given.resize(s.actions.size());

  for (int r = 0; r < s.ranks(); ++r) {
    const auto& actions = s.actions[index(r)];
    m.taken[index(r)].assign(actions.size(), Messages::kNone);
    m.given[index(r)].assign(actions.size(), Messages::kNone);
    for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
      const int link = ends_of(actions[index(a)], s.stages()).given;
      if (link == kNoLink) continue;
      StageLink& l = m.links[index(link)];
      const int i = static_cast<int>(m.all.size());
      m.all.push_back({link, static_cast<int>(l.messages.size()), {r, a}, {}});
      l.messages.push_back(i);
      m.given[index(r)][index(a)] = i;
      const int to = s.rank_of(l.to);
      if (to != r) pairs[{r, to}].push_back(i);
    }
  }
  std::vector<std::size_t> next(m.links.size());
  for (int r = 0; r < s.ranks(); ++r) {
    const auto& actions = s.actions[index(r)];
    for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
      const int link = ends_of(actions[index(a)], s.stages()).taken;
      if (link == kNoLink) continue;
      const int i = m.links[index(link)].messages[next[index(link)]++];
      m.all[index(i)].receiver = {r, a};
      m.taken[index(r)][index(a)] = i;
    }
  }
  for (auto& [ranks, messages] : pairs) {
    m.pairs.push_back({ranks.first, ranks.second, std::move(messages)});
  }
  return m;
}

std::string describe(const Schedule& s, const Messages& messages, int message) {
  const StageMessage& m = messages[message];
  const StageLink& l = messages.link_of(m);
  const Action& a = s.actions[index(m.sender.rank)][index(m.sender.action)];
  return fmt::format("the {} of micro-batch {} from stage {} (rank {}) to stage {} (rank {})",
                     l.gradients() ? "gradient" : "activation", a.micro_batch, l.from,
                     m.sender.rank, l.to, m.receiver.rank);
}

}  // namespace tutti::parallel::pipeline
