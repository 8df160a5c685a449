#include "tools/top/jobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tools/top/culprits.h"

namespace tutti::top {
namespace {

/// Identities that belong together.
class Together {
 public:
  std::uint64_t of(std::uint64_t a) {
    auto& up = up_.try_emplace(a, a).first->second;
    return up == a ? a : up = of(up);
  }
  void join(std::uint64_t a, std::uint64_t b) { up_[of(a)] = of(b); }

 private:
  std::map<std::uint64_t, std::uint64_t> up_;
};

void describe(Rank& rank) {
  const char process_state = rank.process == nullptr ? '?' : rank.process->state;
  bool all_failed = true;
  for (const Member* m : rank.members) {
    rank.calls_a_second += m->calls_a_second;
    rank.bytes_a_second += m->bytes_a_second;
    rank.waiting_share = std::max(rank.waiting_share, m->waiting_share);
    if (rank.error.empty()) rank.error = m->error.empty() ? m->refused : m->error;
    const bool failed = !m->error.empty();
    all_failed = all_failed && failed;
    for (const Wait& w : m->waits) {
      if (failed) continue;
      const bool blocks = !w.started || m->futures > 0;
      rank.blocked = rank.blocked || (blocks && w.fresh);
      if (rank.wait != nullptr && !comes_before(w, *rank.wait)) continue;
      rank.wait = &w;
      rank.at = m;
    }
  }
  if (process_state == 'T' || process_state == 't') {
    rank.state = RankState::stopped;
  } else if (rank.wait != nullptr && rank.wait->fresh) {
    rank.state = RankState::waiting;
  } else if (all_failed) {
    rank.state = RankState::failed;
  }
  if (rank.at == nullptr) {
    // Its last call: nobody knows which of several communicators' that was; the busiest's, then.
    rank.at = *std::ranges::max_element(rank.members, {}, [](const Member* m) { return m->calls; });
  }
  rank.call = rank.wait != nullptr ? rank.wait->call : rank.at->newest;
}

Job job_of(const std::vector<const Member*>& members, const std::vector<View>& views) {
  Job job;
  std::map<std::uint64_t, Rank> ranks;
  const Member& largest = **std::ranges::max_element(
      members, {}, [](const Member* m) { return std::pair(m->size, m->age); });
  job.size = largest.size;
  std::set<std::string> hosts;
  for (const Member* m : members) {
    Rank& rank = ranks[m->identity];
    rank.identity = m->identity;
    rank.members.push_back(m);
    job.age = std::max(job.age, m->age);
    const bool first = rank.members.size() == 1;
    if (first || m->communicator == largest.communicator) {
      rank.number = m->communicator == largest.communicator ? m->rank
                    : m->job_rank >= 0                      ? m->job_rank
                                                            : m->rank;
    }
    for (const View& view : views) {
      const bool here = !view.members.empty() && m >= view.members.data() &&
                        m < view.members.data() + view.members.size();
      if (here) rank.process = view.process(m->pid);
    }
    if (rank.process != nullptr) {
      hosts.insert(rank.process->host);
      if (job.command.empty()) job.command = rank.process->command;
    }
  }
  job.hosts.assign(hosts.begin(), hosts.end());
  for (auto& [identity, rank] : ranks) {
    describe(rank);
    job.ranks.push_back(std::move(rank));
  }
  std::ranges::stable_sort(job.ranks, {}, &Rank::number);
  job.culprits = culprits_of(job);
  return job;
}

}  // namespace

bool comes_before(const Wait& a, const Wait& b) {
  const auto rank = [](const Wait& w) {
    return std::tuple(!w.started, w.call.find('#') != std::string::npos, w.seconds);
  };
  return rank(a) > rank(b);
}

int number_of(const Job& job, std::uint64_t communicator, int rank) {
  for (const Rank& r : job.ranks) {
    for (const Member* m : r.members) {
      if (m->communicator == communicator && m->rank == rank) return r.number;
    }
  }
  return -1;
}

std::string ranges(std::vector<int> numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i > 2 ? "-" : ",", numbers[end - 1]);
    i = end;
  }
  return text;
}

std::string ranks_text(const std::vector<int>& numbers) {
  return fmt::format("{} {}", numbers.size() == 1 ? "rank" : "ranks", ranges(numbers));
}

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

std::vector<Job> jobs_in(const std::vector<View>& views) {
  Together together;
  std::map<std::uint64_t, std::uint64_t> someone;  // by communicator
  for (const View& view : views) {
    for (const Member& m : view.members) {
      together.join(m.identity, someone.try_emplace(m.communicator, m.identity).first->second);
    }
  }
  std::map<std::uint64_t, std::vector<const Member*>> by_job;
  for (const View& view : views) {
    for (const Member& m : view.members) by_job[together.of(m.identity)].push_back(&m);
  }
  std::vector<Job> jobs;
  for (const auto& [first, members] : by_job) jobs.push_back(job_of(members, views));
  std::ranges::stable_sort(jobs, std::greater(), &Job::age);
  return jobs;
}

}  // namespace tutti::top
