// Out of what was seen: the jobs, what each of their ranks does, and which ranks hold the others
// up.
//
// Ranks that share communicators are one job. A rank waits for the rank that it names; at the end
// of such a line is a rank that does not wait itself, or the line is a circle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/top/view.h"

namespace tutti::top {

enum class RankState : std::uint8_t { running, waiting, stopped, failed };

/// One rank of a job.
struct Rank {
  int number = 0;  // in the job
  std::uint64_t identity = 0;
  const Process* process = nullptr;  // null: unknown
  std::vector<const Member*> members;
  RankState state = RankState::running;
  const Member* at = nullptr;  // where it waits, or has called last; null: nowhere
  const Wait* wait = nullptr;  // its longest, of those that block a caller if there are any
  bool blocked = false;        // a caller is; else at most started calls wait
  std::string call;            // that it waits in, or was its last; "": none
  double calls_a_second = 0, bytes_a_second = 0;
  double waiting_share = 0;
  std::string error;
};

/// Ranks that hold others up, and why one thinks so.
struct Culprit {
  std::vector<int> ranks;
  std::vector<int> pids;
  std::string sentence;
};

struct Job {
  int size = 0;  // of its largest communicator
  double age = 0;
  std::string command;
  std::vector<std::string> hosts;
  std::vector<Rank> ranks;  // that are seen, by number
  std::vector<Culprit> culprits;
};

/// The number in the job of rank `rank` of `communicator`; -1: it is not seen.
int number_of(const Job& job, std::uint64_t communicator, int rank);

/// `views`, one for each host, outlive the result.
std::vector<Job> jobs_in(const std::vector<View>& views);

/// Ranks that have not come to where the others meet.
std::vector<Culprit> late_starters(const std::vector<View>& views);

/// Which of a rank's waits says more: one that certainly blocks it, a collective, the longer one.
bool comes_before(const Wait& a, const Wait& b);

/// "0-2,5".
std::string ranges(std::vector<int> numbers);
/// "rank 2", "ranks 0-2,5".
std::string ranks_text(const std::vector<int>& numbers);
/// The first letter as a sentence has it.
std::string capitalized(std::string text);

}  // namespace tutti::top
