// The launcher's side of an elastic job: it starts a new process for each that fails, and says
// which of them form the next communicator.
//
// That goes by rounds, which have numbers. The launcher says to all which round it wants, the next
// one, whenever a member of the newest has ended, or another process is there. Each process offers
// itself for that round, with its handle, when its program is ready. When all that have ever
// offered themselves have done so, the launcher closes the round: it sends them the list of
// handles, and they meet. A process that was started and has not said a word yet holds up nobody.
// When a round fails (another process has died meanwhile), its members offer themselves for the
// next.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/elastic_message.h"
#include "tools/agent_messages.h"

namespace tutti {

struct ElasticLimits {
  int least = 0;  // ranks, or the job cannot go on; 0: the job is not elastic
  int restarts = 100;
};

class ElasticRun {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `command` carries commands out.
  ElasticRun(ElasticLimits limits, int most, std::function<void(const Message&)> command);

  /// A process of `rank` runs.
  void started(int rank);
  /// It has said something; throws Error(mismatch) for nonsense.
  void said(int rank, std::string_view text);
  /// It has ended, with status 0 or not.
  enum class Then {
    goes_on,       // the others do
    starts_again,  // and it is started again
    too_few,       // the job has to end
  };
  Then ended(int rank, bool failed);
  /// Why a process is not started again, for the user.
  const std::string& why_not() const { return why_not_; }

  /// Closes the first round when its time is up.
  void serve();
  Time next_wake() const;

 private:
  struct Process {
    bool lives = false;  // or will be started
    bool is_there = false;
    std::uint64_t offered = 0;  // the newest round
    std::string handle;
    int place = kNewcomer;  // in the newest list
    Time began;
  };
  static constexpr int kNewcomer = kMostElasticRanks;

  Process& at(int rank) { return processes_[static_cast<std::size_t>(rank)]; }
  void tell(int rank, const ElasticMessage& message);
  void want(std::uint64_t number);
  void close_if_ready();
  bool may_start_again(const Process& process);

  const ElasticLimits limits_;
  const std::function<void(const Message&)> command_;
  std::vector<Process> processes_;  // by rank
  std::uint64_t wanted_ = 1;
  bool closed_ = false;     // the wanted round: its members know each other
  bool has_begun_ = false;  // some round was closed
  bool finishing_ = false;  // a rank has ended with status 0
  int restarts_ = 0;
  int never_there_ = 0;  // processes that failed before they offered themselves, in a row
  Time first_offer_ = Time::max();
  std::string why_not_;
};

}  // namespace tutti
