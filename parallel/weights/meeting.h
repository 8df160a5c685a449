// How two jobs that were started apart come to one communicator. The receiving job asks, the
// sending job answers:
//
// 1. The receiving job writes `ask` at the place that both share: a random number, and the handle
//    of each of its ranks (Communicator::handle()).
// 2. The sending job looks there before each version. It writes `answer`: the same number, and its
//    own ranks' handles.
// 3. All ranks call reconfigure() with that number and both lists, the sending job's first.
//
// If that fails, because a rank has died meanwhile, or the text is one that a dead job has left,
// it fails on all ranks; the receiving job asks again, with another number. So nobody waits for
// somebody who waits for something else, and no lock is left behind.
#pragma once

#include <tutti/comm/communicator.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "place.h"

namespace tutti::parallel::weights {

/// What one job tells the other.
struct MeetingCard {
  std::uint64_t number = 0;
  std::vector<std::string> handles;  // by rank

  std::string text() const;
  /// None: `text` is no such card.
  static std::optional<MeetingCard> from(std::string_view text);
};

/// The ranks of both jobs: those of the sending job first.
struct Meeting {
  Communicator joint;
  int senders = 0;
};

/// The meetings of one job. One thread at a time uses it, on all ranks alike.
class Meetings {
 public:
  /// `job` outlives it. `patience`: for one attempt of reconfigure().
  Meetings(Communicator& job, std::shared_ptr<Place> place, std::chrono::nanoseconds patience);

  /// Of a sending job; collective. None: nobody asks, or the meeting has failed.
  std::optional<Meeting> answer();
  /// Of a receiving job; collective. Asks until `deadline`; throws Error(timed_out) then.
  Meeting ask(std::chrono::steady_clock::time_point deadline);
  /// From now on `job` is the communicator of the job.
  void use(Communicator& job) { job_ = &job; }

 private:
  std::optional<Communicator> meet(Communicator& link, const std::vector<std::string>& handles,
                                   std::uint64_t number);
  std::optional<MeetingCard> await_answer(std::uint64_t number,
                                          std::chrono::steady_clock::time_point deadline);
  Options options() const;

  Communicator* job_;
  std::shared_ptr<Place> place_;
  std::chrono::nanoseconds patience_;
  std::uint64_t tried_ = 0;  // the number that the newest answer() has answered
};

/// Collective: what `body` returns on rank `root`, on all ranks. It runs on rank `root` alone; if
/// it throws an Error, all ranks throw it.
std::string from_rank(Communicator& comm, int root, const std::function<std::string()>& body);
/// Collective: the texts of all ranks, of at most 1000 bytes each.
std::vector<std::string> from_all(Communicator& comm, const std::string& text);
/// Collective: whether all ranks say yes.
bool all_say_yes(Communicator& comm, bool yes);

}  // namespace tutti::parallel::weights
