#include "parallel/pipeline/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "parallel/pipeline/agree.h"
#include "parallel/pipeline/buffers.h"
#include "parallel/pipeline/messages.h"

namespace tutti::parallel::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

class Executor::Impl {
 public:
  Impl(Axis& axis, const Schedule& schedule, const std::vector<std::size_t>& bytes, Stages stages)
      : axis_(axis),
        rank_(axis.rank()),
        s_(schedule),
        stages_(std::move(stages)),
        messages_(messages_of(s_)),
        buffers_(s_, messages_, rank_, bytes, axis.device()) {
    for (const RankPair& wire : messages_.pairs) {
      if (wire.to == rank_) incoming_.push_back({wire, 0});
    }
  }

  std::uint64_t bytes_of_buffers() const { return buffers_.total(); }
  void label_messages() { label_ = axis_.new_label("pipeline"); }
  void allocate() {
    buffers_.allocate();
    statistics.buffers = static_cast<std::size_t>(buffers_.total());
  }

  ~Impl() {
    // After a failure: the buffers belong to what was started until that has ended, too.
    buffers_.for_each_pending([](Pending& p) {
      try {
        p.wait();
      } catch (...) {  // step() has thrown it, or what caused it
      }
    });
  }

  void step() {
    if (failed_) {
      throw Error(ErrorCode::invalid_usage,
                  "this pipeline has failed before; make a new one on a new axis");
    }
    failed_ = true;  // until the step is over
    int action = 0;
    try {
      run(action);
    } catch (const Error& e) {
      fail(action, e.what(), e.code(), e.rank());
    } catch (const std::exception& e) {
      fail(action, e.what());
    } catch (...) {
      fail(action, "an exception that is no std::exception");
    }
    failed_ = false;
    ++statistics.steps;
  }

  Statistics statistics;
  std::function<void(const Ran&)> observer;

 private:
  struct Incoming {
    const RankPair& wire;
    std::size_t next;  // the first message with a receive that is not started
  };

  void run(int& action) {
    const auto& actions = s_.actions[index(rank_)];
    done_ = -1;
    live_ = 0;
    for (Incoming& in : incoming_) in.next = 0;
    start_receives();
    for (action = 0; action < static_cast<int>(actions.size()); ++action) {
      const int taken = messages_.taken[index(rank_)][index(action)];
      const int given = messages_.given[index(rank_)][index(action)];
      const auto waited_from = Clock::now();
      if (taken != Messages::kNone) arrive(messages_[taken]);
      if (given != Messages::kNone) make_room(messages_[given]);
      const auto from = Clock::now();
      compute(actions[index(action)], buffer_of(taken), buffer_of(given));
      const auto to = Clock::now();
      done_ = action;
      if (given != Messages::kNone) send(messages_[given]);
      start_receives();
      statistics.waited += from - waited_from;
      statistics.computed += to - from;
      ++statistics.actions;
      if (observer) observer({actions[index(action)], waited_from, from, to});
      if (const auto& trace = axis_.trace()) {
        trace->span("pipeline", to_string(actions[index(action)]), from, to);
      }
    }
    // What is left under way are sends.
    const auto waited_from = Clock::now();
    where_ = Where::sending;
    buffers_.for_each_pending([](Pending& p) { p.wait(); });
    statistics.waited += Clock::now() - waited_from;
  }

  std::span<std::byte> buffer_of(int message) {
    return message == Messages::kNone ? std::span<std::byte>{} : buffers_.of(messages_[message]);
  }

  /// Starts all receives that have room, in the order in which the messages are sent.
  void start_receives() {
    for (Incoming& in : incoming_) {
      for (; in.next < in.wire.messages.size(); ++in.next) {
        const StageMessage& m = messages_[in.wire.messages[in.next]];
        const int before = messages_.before(m, s_.buffers);
        if (before != Messages::kNone && messages_[before].receiver.action > done_) break;
        const std::span<std::byte> buffer = buffers_.of(m);
        buffers_.pending(m) =
            axis_.recv(buffer.data(), buffer.size(), DataType::uint8, m.sender.rank, label_);
        count(statistics.received, buffer);
      }
    }
  }

  void arrive(const StageMessage& m) {
    if (m.local()) return;
    where_ = Where::taking;
    message_ = &m;
    buffers_.pending(m).wait();
  }
  /// Waits until the message that had the buffer before is gone. (Inside of a rank it was read.)
  void make_room(const StageMessage& m) {
    if (m.local()) return;
    where_ = Where::giving;
    message_ = &m;
    buffers_.pending(m).wait();
  }
  void send(const StageMessage& m) {
    if (m.local()) return;
    const std::span<std::byte> buffer = buffers_.of(m);
    buffers_.pending(m) =
        axis_.send(buffer.data(), buffer.size(), DataType::uint8, m.receiver.rank, label_);
    count(statistics.sent, buffer);
  }
  static void count(Statistics::Count& c, std::span<std::byte> buffer) {
    ++c.messages;
    c.bytes += buffer.size();
  }

  void compute(const Action& a, std::span<const std::byte> in, std::span<std::byte> out) {
    where_ = Where::computing;
    switch (a.work) {
      case Work::forward:
        statistics.live = std::max(statistics.live, ++live_);
        stages_.forward(a.stage, a.micro_batch, in, out);
        break;
      case Work::backward:
        if (stages_.backward) {
          stages_.backward(a.stage, a.micro_batch, in, out);
          break;
        }
        stages_.backward_inputs(a.stage, a.micro_batch, in, out);
        stages_.backward_weights(a.stage, a.micro_batch);
        break;
      case Work::backward_inputs:
        stages_.backward_inputs(a.stage, a.micro_batch, in, out);
        break;
      case Work::backward_weights:
        stages_.backward_weights(a.stage, a.micro_batch);
        break;
    }
    if (ends_backward(a.work)) --live_;
    where_ = Where::starting;
  }

  /// Makes the others fail too, and throws what happened, with the exception that is caught nested.
  [[noreturn]] void fail(int action, std::string_view what, ErrorCode code = ErrorCode::aborted,
                         int culprit = -1) {
    const int world_rank = axis_.world_rank(rank_);
    std::string at = fmt::format("rank {}", world_rank);
    if (action < static_cast<int>(s_.actions[index(rank_)].size())) {
      const std::string place = describe(s_, {rank_, action});
      at = world_rank == rank_ ? place : fmt::format("{}, of the schedule {}", at, place);
    }
    const std::string message =
        fmt::format("pipeline {}, {}: {}{}", s_.name, at, what_failed(), what);
    axis_.abort(message);
    // If a stage failed, this is the rank to look at.
    std::throw_with_nested(Error(code, message, where_ == Where::computing ? world_rank : culprit));
  }
  std::string what_failed() const {
    switch (where_) {
      case Where::taking:
        return fmt::format(
            "waiting for {} from stage {} on rank {} failed: ",
            messages_.link_of(*message_).gradients() ? "the gradient" : "the activation",
            messages_.link_of(*message_).from, axis_.world_rank(message_->sender.rank));
      case Where::giving:
        return fmt::format(
            "waiting for a buffer to stage {} on rank {} failed: ", messages_.link_of(*message_).to,
            axis_.world_rank(message_->receiver.rank));
      case Where::computing:
        return "the stage's function failed: ";
      case Where::sending:
        return "sending the last results failed: ";
      case Where::starting:
        break;
    }
    return "";
  }

  /// What was going on, for errors.
  enum class Where : std::uint8_t { starting, taking, giving, computing, sending };

  Axis& axis_;
  const int rank_;
  std::uint16_t label_ = 0;
  const Schedule s_;
  const Stages stages_;
  const Messages messages_;
  Buffers buffers_;
  std::vector<Incoming> incoming_;  // by peer
  int done_ = -1;                   // the last action that has ended
  int live_ = 0;
  Where where_ = Where::starting;
  const StageMessage* message_ = nullptr;  // that is waited for
  bool failed_ = false;
};

Executor::Executor(Axis& axis, const Schedule& schedule, std::vector<std::size_t> bytes,
                   Stages stages) {
  agree(
      axis, schedule, bytes, stages,
      [&] {
        impl_ = std::make_unique<Impl>(axis, schedule, bytes, stages);
        return impl_->bytes_of_buffers();
      },
      [&] { impl_->allocate(); });
  impl_->label_messages();  // where all ranks have made one
}
Executor::Executor(Executor&&) noexcept = default;
Executor::~Executor() = default;

void Executor::step() { impl_->step(); }
const Statistics& Executor::statistics() const { return impl_->statistics; }
void Executor::observe(std::function<void(const Ran&)> observer) {
  impl_->observer = std::move(observer);
}

}  // namespace tutti::parallel::pipeline
