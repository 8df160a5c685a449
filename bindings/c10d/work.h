// Work: a started operation, as PyTorch sees it.
#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <optional>
#include <string>

#include "ledger.h"
#include "operation.h"
#include "process.h"

namespace tutti::pytorch {

inline float milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<float, std::milli>(time).count();
}
/// What a Work's getDuration() says; throws where the group did not time it.
float duration_of(const std::optional<float>& took);

class Work final : public ::c10d::Work {
 public:
  /// The work is over after `parts` calls of end().
  Work(Operation operation, int rank, std::uint64_t sequence, int parts,
       std::chrono::milliseconds timeout, std::shared_ptr<Ledger> ledger);
  ~Work() override;

  /// A part is over. The last one finishes the operation.
  void end(const std::optional<Error>& why);
  /// The end of this counts as the end of a part of `other`.
  void then_end(const c10::intrusive_ptr<Work>& other);
  /// For a recv from any source: the sender of its message.
  void set_source(int rank) { source_ = rank; }
  /// wait() waits for `future` first, and so runs what has been started (Future::wait()): the last
  /// one whose end ends a part.
  void awaits(const Future& future) { awaited_ = future; }
  /// wait() calls this now and then.
  void look(std::function<void()> function) { look_ = std::move(function); }
  /// On a GPU, before the last end(), when all steps are on the current stream: puts there what
  /// finishes the operation, which is over when the stream has reached that point.
  void record_event();

  const Operation& operation() const { return operation_; }

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return operation_.results; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  // Virtual since 2.15:
  std::chrono::milliseconds getTimeout() const { return timeout_; }
  std::uint64_t getCompletionKey() const { return number_; }

 private:
  using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;
  void complete(std::exception_ptr why);
  void fulfil(c10::ivalue::Future& future) const;
  void fulfil_result(c10::ivalue::Future& future) const;
  /// The future in `slot`, made of `made` if there is none; fulfilled, now or by complete().
  FuturePointer future_in(FuturePointer& slot, const std::function<FuturePointer()>& make,
                          void (Work::*fulfils)(c10::ivalue::Future&) const);
  std::optional<float> took() const;

  Operation operation_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Ledger> ledger_;
  const std::uint64_t number_ = Ledger::next_number();
  const bool says_duration_;  // to a caller that asks
  const bool measured_;
  std::chrono::steady_clock::time_point began_{}, ended_{};  // if measured
  std::atomic<int> left_;
  const pid_t process_ = process_id();
  std::atomic<int> source_{-1};
  std::optional<c10::Event> event_;
  Future awaited_;
  std::function<void()> look_;
  // Under the lock of the base class:
  std::optional<Error> error_;
  FuturePointer future_, result_future_;  // once somebody has asked for them
  std::vector<c10::intrusive_ptr<Work>> others_;
};

}  // namespace tutti::pytorch
