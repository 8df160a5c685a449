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
  /// Makes what was thrown while an operation ran everybody's failure, and throws that.
  [[noreturn]] void fail_with(const std::string& text, ErrorCode code, int culprit);

  /// Chooses the plan for a checked call, numbers and binds it; null when there is nothing to move
  /// (the call is over then). Valid until the next prepare(). `alone`: the call is not part of a
  /// group, so ranks may talk about it first.
  const Binding* prepare(const Call& call, bool alone, Tables& tables);
  /// Whether `call` differs from the newest one in nothing but addresses.
  bool repeats(const Call& call) const;
  /// Whether this call may run with a plan that addresses other ranks' memory. The same on all
  /// ranks: they exchange whether their buffers lie in windows.
  bool agree_on_windows(const Call& call);
  Operation& point_to_point(int peer, bool sends);

  Options options;
  Geometry geometry;
  std::unique_ptr<LocalGroup> group;
  Plans plans;
  WaitPolicy policy;
  Workspace workspace;
  Operation operation;  // of the collective at hand
  Operation agreement;  // of agree_on_windows()
  ReadyPlan agreement_plan;
  Tables tables;
  std::map<std::pair<int, bool>, std::unique_ptr<Operation>> point_to_points;
  std::uint64_t sequence = 0;
  // The newest collective with even blocks, so that a loop that repeats it binds addresses alone.
  Call newest;
  BufferSizes newest_sizes;
  Signature newest_signature;
  const ReadyPlan* newest_plan = nullptr;
  std::uint64_t newest_hash = 0;
  std::uint64_t unchanged_calls = 0;  // that repeated the newest one
  Binding newest_binding;
  Binding other_binding;  // of a call that is not remembered
  std::unique_ptr<ProgressThread> progress;
};

/// Whether a group() is open on this thread.
bool group_is_open();
/// Keeps a checked call for the end of the open group.
void keep_for_group(Communicator::Impl& impl, const Call& call);

}  // namespace tutti
