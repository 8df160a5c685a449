// The launcher's side of an elastic job: it starts a new process for each that fails, and says
// which of them form the next communicator.
//
// Each host has room for some processes, and each such place has a number, TUTTI_RANK, host by
// host. The job begins with the processes of the first places. A process that fails is started
// again at its place; one that is lost with its host, at a free place of another host.
//
// The job goes by rounds, which have numbers. The launcher tells all processes that it wants the
// next round, whenever a member of the newest has ended, or another process is there. Each process
// offers itself for that round, with its handle, when its program is ready. When all that have ever
// offered themselves have done so, the launcher closes the round: it sends them the list of
// handles, and they meet. A process that was started and has not offered itself yet holds up no
// round. When a round fails (another process has died meanwhile), its members offer themselves for
// the next.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/elastic_message.h"
#include "tools/run/agent_messages.h"

namespace tutti {

struct ElasticLimits {
  int least = 0;  // ranks, or the job cannot go on; 0: the job is not elastic
  int most = 0;   // ranks at a time
  int restarts = 100;
};

class ElasticRun {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `host_of`: by place, at least as many places as there may be ranks. `command` carries commands
  /// out.
  ElasticRun(ElasticLimits limits, std::vector<int> host_of,
             std::function<void(const Message&)> command);

  /// Starts the first processes.
  void start();
  /// A process of `rank` runs.
  void started(int rank);
  /// It has said something; throws Error(mismatch) for nonsense.
  void said(int rank, std::string_view text);
  /// What follows an end.
  struct Then {
    std::vector<int> starts;  // places where a process is started instead
    bool too_few = false;     // the job has to end
  };
  /// It has ended, with status 0 or not.
  Then ended(int rank, bool failed);
  /// A process of `rank` runs, or will.
  bool lives(int rank) const { return processes_[static_cast<std::size_t>(rank)].lives; }
  /// A host is lost, and its processes with it, which lost() says before.
  std::vector<int> living_on(int host) const;
  Then lost(int host);
  /// No process is there any more, or will be started.
  bool over() const { return living() == 0; }
  /// The others have ended with status 0, and those that are left have never met them: they have
  /// nothing of the work, and would begin it anew.
  bool is_done_without_the_rest() const { return done_without_the_rest_; }
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
    int position = kNewcomer;  // in the newest list
    Time began;
  };
  static constexpr int kNewcomer = kMostElasticRanks;

  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  Process& at(int rank) { return processes_[static_cast<std::size_t>(rank)]; }
  void tell(int rank, const ElasticMessage& message);
  void want(std::uint64_t number);
  void close_if_ready();
  int living() const;
  Then end(std::span<const int> ranks, bool failed);
  /// Where a process is started instead of this one; -1: nowhere.
  int next_place(int rank, const Process& before);
  void start(int rank, std::chrono::milliseconds pause);

  const ElasticLimits limits_;
  const std::vector<int> host_of_;  // by place
  const std::function<void(const Message&)> command_;
  std::vector<Process> processes_;  // by place
  std::vector<int> lost_hosts_;
  std::uint64_t wanted_ = 1;
  bool closed_ = false;     // the wanted round: its members know each other
  bool has_begun_ = false;  // some round was closed
  bool finishing_ = false;  // a rank has ended with status 0
  bool done_without_the_rest_ = false;
  int restarts_ = 0;
  int never_there_ = 0;  // processes that failed before they offered themselves, in a row
  Time first_offer_ = Time::max();
  std::string why_not_;
};

}  // namespace tutti
