// The long part of every wait of a rank for another rank: now and then the waiting rank looks
// around. It hears what the other ranks say, and ends the wait where it must not go on: after a
// failure, when a process has died or a rank has left, when calls do not match, and at the user's
// deadline. Operations wait so (wait.h), and so do calls on GPU memory that need another process of
// the host.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "execute/signature.h"
#include "transport/rank_group.h"

namespace tutti {

struct WaitPolicy {
  int spins = 0;                             // looks before the core is given away
  bool crowded = false;                      // there are more ranks than cores
  int ranks_of_a_core = 1;                   // of this host, rounded up
  std::chrono::nanoseconds timeout{0};       // 0: none
  std::chrono::nanoseconds report_after{0};  // log a wait that is this long; 0: never
};

/// How often a rank that has waited for long looks around.
inline constexpr auto kLateLookEvery = std::chrono::milliseconds(50);

/// Since when a rank waits, and what it has done about it.
struct Standstill {
  using Time = std::chrono::steady_clock::time_point;
  Time began{};  // not known yet, or it moves
  Time next_look{};
  Time next_question{};  // to peers on other hosts
  Time left{};           // when the awaited rank was first seen to have left
  bool reported = false;
  bool excused = false;  // from the time for which this process was stopped

  /// Whether a look around is due; `seldom`: so many times less often. `timeout`: of the wait.
  bool is_due(Time now, std::chrono::nanoseconds timeout, int seldom = 1);
};

/// What a rank waits for.
struct Awaited {
  int peer = -1;
  std::string what;                  // "send one"
  std::string where = {};            // "in step 3 (lane 0, tile 0) of all_reduce #1"
  std::string call = {};             // "all_reduce #1 (float32 x 8, sum)"; "": what is awaited
  std::function<bool()> still = {};  // whether `peer` has not done it yet
  CallsOn calls = CallsOn::host;     // those at hand
  bool alone = true;                 // nothing else of this rank waits on the communicator
  bool started = false;              // the call; nobody may wait for it
};

/// A look around. Records what ends the wait as the failure of the communicator, unless there is
/// one already, and throws that.
void look_around(RankGroup& group, const Awaited& awaited, Standstill& still,
                 const WaitPolicy& policy, std::chrono::nanoseconds timeout, Standstill::Time now);

/// A wait of a thread for other processes of its host that have nothing to wake it with, before a
/// call on GPU memory. `policy` outlives it.
class PeerWait {
 public:
  /// `what`: is waited for, as in "rank 2 has waited for rank 3 to <what>".
  PeerWait(RankGroup& group, const WaitPolicy& policy, std::string what)
      : group_(group), policy_(policy), what_(std::move(what)) {}

  /// Returns when `done()`, which rank `rank` sees to. Throws Error: peer_lost, timed_out,
  /// mismatch, or what has failed the communicator.
  template <class Done>
  void until(int rank, Done&& done) {
    while (!done()) pause(rank, [&] { return !done(); });
  }

 private:
  void pause(int rank, const std::function<bool()>& still);

  RankGroup& group_;
  const WaitPolicy& policy_;
  std::string what_;
  Standstill standstill_;
  std::uint32_t pauses_ = 0;
};

}  // namespace tutti
