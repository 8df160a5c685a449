// What calls of a window wait for.
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "comm/window_impl.h"
#include "transport/far_windows.h"

namespace tutti {
namespace {

// What made a rank of another host end its part may reach this rank a moment later, by another way.
constexpr auto kNewsOfAnEnd = std::chrono::milliseconds(300);

/// That a peer has given so many signals.
class SignalsAreThere final : public Condition {
 public:
  SignalsAreThere(std::shared_ptr<Window::Impl> window, const WindowCall& call,
                  std::uint64_t target)
      : window_(std::move(window)),
        liveness_(window_->comm->group->liveness()),
        counter_(window_->signals_of(call.peer, call.index)),
        peer_(call.peer),
        index_(call.index),
        count_(call.count),
        target_(target) {}

  bool holds() override {
    if (counter_.load(std::memory_order_acquire) >= target_) return true;
    if (!window_->ended && !window_->has_closed(peer_)) return false;
    // What the peer gave before it ended its part is there by now.
    if (counter_.load(std::memory_order_acquire) >= target_) return true;
    // A failure is the better explanation; the thread that waits throws it.
    return in_vain_ = !liveness_.failed() && is_settled();
  }
  std::optional<Error> error() const override {
    if (!in_vain_) return std::nullopt;
    if (window_->ended) {
      return Error(ErrorCode::invalid_usage,
                   fmt::format("rank {} has ended window {} while it waited there for a signal",
                               window_->rank, window_->number));
    }
    return window_->closed_by(peer_);
  }
  void poll() override {
    if (FarWriter* const far = window_->peers[static_cast<std::size_t>(peer_)].far) far->poll();
  }
  int peer() const override { return peer_; }
  std::string what() const override { return "give a signal"; }
  std::string where() const override {
    const std::uint64_t before = target_ - count_, now = counter_.load(std::memory_order_relaxed);
    return fmt::format("in wait_signal of window {} (signal {}, {} of {} there)", window_->number,
                       index_, now > before ? now - before : 0, count_);
  }

 private:
  bool is_settled() {
    Window::Impl::Peer& peer = window_->peers[static_cast<std::size_t>(peer_)];
    if (peer.far == nullptr || peer.explained) return true;
    const auto now = std::chrono::steady_clock::now();
    if (seen_closed_ == std::chrono::steady_clock::time_point{}) seen_closed_ = now;
    return peer.explained = now - seen_closed_ >= kNewsOfAnEnd;
  }

  const std::shared_ptr<Window::Impl> window_;
  const Liveness& liveness_;
  const SignalBoard::Counter& counter_;
  const int peer_;
  const int index_;
  const std::uint64_t count_;
  const std::uint64_t target_;
  std::chrono::steady_clock::time_point seen_closed_{};
  bool in_vain_ = false;
};

/// That the network has taken a put.
class PutIsTaken final : public Condition {
 public:
  PutIsTaken(std::shared_ptr<Window::Impl> window, const WindowCall& call, std::uint64_t number)
      : window_(std::move(window)),
        writer_(*window_->peers[static_cast<std::size_t>(call.peer)].far),
        peer_(call.peer),
        number_(number),
        call_(fmt::format("{} of window {} ({} bytes)", name_of(call.kind), window_->number,
                          call.bytes)) {}

  // A call that is given up before it waits, say as the next one of its group is refused.
  ~PutIsTaken() override {
    if (!over_ && !window_->ended) abandon();
  }
  PutIsTaken(const PutIsTaken&) = delete;
  PutIsTaken& operator=(const PutIsTaken&) = delete;

  bool holds() override { return over_ = over_ || writer_.is_done(number_); }
  void poll() override { writer_.poll(); }
  void abandon() override {
    if (!holds()) writer_.abandon(number_);
    over_ = true;
  }
  int peer() const override { return peer_; }
  std::string what() const override { return "take the data"; }
  std::string where() const override { return "in " + call_; }

 private:
  const std::shared_ptr<Window::Impl> window_;
  FarWriter& writer_;
  const int peer_;
  const std::uint64_t number_;
  const std::string call_;
  bool over_ = false;
};

}  // namespace

std::string_view name_of(WindowCall::Kind kind) {
  switch (kind) {
    case WindowCall::Kind::put:
      return "put";
    case WindowCall::Kind::signal:
      return "signal";
    default:
      return "wait_signal";
  }
}

std::unique_ptr<Condition> signals_are_there(std::shared_ptr<Window::Impl> window,
                                             const WindowCall& call, std::uint64_t target) {
  return std::make_unique<SignalsAreThere>(std::move(window), call, target);
}

std::unique_ptr<Condition> put_is_taken(std::shared_ptr<Window::Impl> window,
                                        const WindowCall& call, std::uint64_t number) {
  return std::make_unique<PutIsTaken>(std::move(window), call, number);
}

}  // namespace tutti
