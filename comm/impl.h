// What a communicator consists of.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/execute/host/wait.h"
#include "comm/bind.h"
#include "comm/communicator.h"
#include "comm/progress.h"
#include "comm/session.h"

namespace tutti {

struct Communicator::Impl {
  Impl(Session session, const Options& options);
  ~Impl();

  /// Runs one call now, on this thread.
  void run_now(const Call& call);
  /// Throws if the communicator has failed, or the call is wrong. Starts nothing.
  void check(const Call& call) const;
  /// Waits until the progress thread is idle, so that the order of the calls is kept.
  void wait_for_started() {
    if (progress) progress->drain();
  }
  /// Makes `error`, thrown while an operation ran, everybody's failure and throws that.
  [[noreturn]] void fail_with(const std::string& text, ErrorCode code, int culprit);

  /// Binds `call` and numbers it; false when there is nothing to move (the call is over then).
  bool prepare(const Call& call, Binding& binding, Tables& tables);
  /// Whether `call` differs from the newest one in nothing but addresses.
  bool repeats(const Call& call) const;
  Operation& point_to_point(int peer, bool sends);

  Options options;
  Geometry geometry;
  std::unique_ptr<LocalGroup> group;
  Plans plans;
  WaitPolicy policy;
  Workspace workspace;
  Operation operation;  // of the collective at hand
  Tables tables;
  std::map<std::pair<int, bool>, std::unique_ptr<Operation>> point_to_points;
  std::uint64_t sequence = 0;
  // The newest collective with even blocks, so that a loop that repeats it binds addresses alone.
  Call newest;
  Binding newest_binding;
  std::unique_ptr<ProgressThread> progress;
};

/// Whether a group() is open on this thread.
bool group_is_open();
/// Keeps a checked call for the end of the open group.
void keep_for_group(Communicator::Impl& impl, const Call& call);

}  // namespace tutti
