// A measured library, for the ranks of one thread. There are two: Tutti, and the library of --nccl.
// The measuring loop is the same for both, and these functions are the only difference.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/perf/gpu.h"
#include "comm/communicator.h"
#include "core/error.h"

namespace tutti::perf {

class Library {
 public:
  virtual ~Library() = default;

  /// A call of the thread's rank `local` (0, 1, ...). On host memory it is over on return, on GPU
  /// memory it is on that rank's stream. Throws Error, as the others do.
  virtual void run(std::size_t local, const Call& call) = 0;
  /// Calls between the two run together.
  virtual void group_start() = 0;
  virtual void group_end() = 0;
  /// Waits until all calls of this thread are over.
  virtual void finish() = 0;
  /// Throws the error of a GPU, if there is one. Call it after finish().
  virtual void check() = 0;

  /// Runs a step of a measurement, unless an earlier one has failed.
  template <class Step>
  void attempt(Step&& step) {
    if (failure_) return;
    try {
      step();
    } catch (const Error& error) {
      fail(error);
    }
  }
  /// The failure that was not rethrown; after it the library is not used any more.
  const std::optional<std::string>& failure() const { return failure_; }

  /// Each stream of the thread's calls once; none on host memory.
  using Streams = std::vector<std::unique_ptr<gpu::Stream>>;
  const Streams& streams() const { return streams_; }

 protected:
  /// In a catch block: rethrows, or sets failure_.
  virtual void fail(const Error& error) = 0;
  bool streams_are_idle() const;

  Streams streams_;
  std::optional<std::string> failure_;
};

/// Tutti itself: errors are thrown.
class Tutti : public Library {
 public:
  /// `devices`: each rank's GPU; empty: host memory. Ranks on one GPU share one stream, so a group
  /// of their calls is one kernel. The caller keeps `ranks`.
  /// `started`: on host memory, each call is start() and wait().
  Tutti(std::span<Communicator> ranks, std::span<const int> devices, bool started = false);

  void run(std::size_t local, const Call& call) override;
  void group_start() override { tutti::group_start(); }
  void group_end() override { tutti::group_end(); }
  void finish() override;
  void check() override;

 protected:
  [[noreturn]] void fail(const Error&) override { throw; }

 private:
  std::span<Communicator> ranks_;
  const bool started_;
  std::vector<void*> stream_of_;  // of each rank
};

}  // namespace tutti::perf
