// Work: a started operation, as PyTorch sees it.
#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <optional>
#include <string>

#include "operation.h"

namespace tutti::pytorch {

class Work final : public ::c10d::Work {
 public:
  /// It is over after `parts` calls of end().
  Work(Operation operation, int rank, std::uint64_t sequence, int parts,
       std::chrono::milliseconds timeout);

  /// A part is over. The last one finishes the operation.
  void end(const std::optional<Error>& why);
  /// The end of this counts as the end of a part of `other`.
  void then_end(const c10::intrusive_ptr<Work>& other);
  /// For a recv from any source: the sender of its message.
  void set_source(int rank) { source_ = rank; }
  /// wait() calls this now and then.
  void look(std::function<void()> function) { look_ = std::move(function); }
  /// On a GPU: the operations are over when the current stream has reached this point.
  void record_event();

  const Operation& operation() const { return operation_; }

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return operation_.results; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const { return timeout_; }  // not virtual in 2.11

 private:
  void complete(std::exception_ptr why);
  void fulfil(c10::ivalue::Future& future) const;

  Operation operation_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point ended_{};
  std::atomic<int> left_;
  std::atomic<int> source_{-1};
  std::optional<c10::Event> event_;
  std::function<void()> look_;
  // Under the lock of the base class:
  std::optional<Error> error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // once somebody has asked for it
  std::vector<c10::intrusive_ptr<Work>> others_;
};

/// Runs `job` soon, on a thread that may block, not on the thread of Tutti's engine. Callbacks of
/// futures are the user's, and may wait for other futures.
void run_elsewhere(std::function<void()> job);

}  // namespace tutti::pytorch
