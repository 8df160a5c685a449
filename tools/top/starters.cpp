// Ranks that keep the others waiting at the start: they have not come to where the ranks meet.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/top/culprits.h"

namespace tutti::top {

// A start takes a moment.
static constexpr double kLate = 0.3;

std::vector<Culprit> late_starters(const std::vector<View>& views) {
  // Those that meet, by place, with what they know of the others.
  struct Meeting {
    int size = 0;
    double seconds = 0;
    std::set<int> there;
    std::set<std::uint64_t> jobs;
  };
  std::map<std::uint64_t, Meeting> meetings;
  for (const View& view : views) {
    for (const Start& s : view.starts) {
      if (s.place == 0) continue;
      Meeting& m = meetings[s.place];
      m.size = std::max(m.size, s.size);
      m.seconds = std::max(m.seconds, s.seconds);
      m.there.insert(s.rank);
      if (s.job != 0) m.jobs.insert(s.job);
    }
  }
  std::vector<Culprit> found;
  for (const auto& [place, m] : meetings) {
    if (m.seconds < kLate || static_cast<int>(m.there.size()) >= m.size) continue;
    Culprit culprit;
    std::string processes;
    for (int r = 0; r < m.size; ++r) {
      if (m.there.contains(r)) continue;
      culprit.ranks.push_back(r);
      for (const View& view : views) {
        for (const Start& s : view.starts) {
          if (s.place != 0 || s.rank != r || !m.jobs.contains(s.job)) continue;
          culprit.pids.push_back(s.pid);
          processes = fmt::format(". Process {} of that rank has not called Tutti yet", s.pid);
        }
      }
    }
    const std::vector<int> there(m.there.begin(), m.there.end());
    culprit.sentence = fmt::format(
        "{} of {} {} not come to the start yet: {} {} waited there for {:.1f} s, in the meeting of "
        "a new communicator{}",
        capitalized(ranks_text(culprit.ranks)), m.size, culprit.ranks.size() == 1 ? "has" : "have",
        ranks_text(there), there.size() == 1 ? "has" : "have", m.seconds,
        processes.empty() ? ". No process of that rank is seen here" : processes);
    found.push_back(std::move(culprit));
  }
  return found;
}

}  // namespace tutti::top
