// See remote_rank.h. How its connections come about: dialled from here, accepted from there, or
// both.
#include <fmt/format.h>
#include <sys/epoll.h>

#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "transport/remote_rank.h"
#include "transport/tcp_socket.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void RemoteRank::connect() {
  const std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_relaxed) != State::idle) return;
  state_.store(State::connecting, std::memory_order_release);
  wire::fill_random(wire::writable_bytes_of(connection_));
  connecting_since_ = dialled_ = Clock::now();
  dialler_ = true;
  for (std::uint32_t s = 0; s < streams(); ++s) dial(s);
  reactor_.keep_awake(*this);
}

void RemoteRank::dial(std::uint32_t stream) {
  Dial& d = dials_[stream];
  d = Dial{};
  d.attempt.emplace(begin_to_connect(where_.address, where_.from), secret_);
  if (d.attempt->ended()) {  // on_tick() tries again
    d = Dial{};
  } else {
    reactor_.watch(d.fd(), EPOLLOUT, *this);
  }
}

void RemoteRank::drop(Dial& d) {
  if (d.fd() >= 0) reactor_.unwatch(d.fd());
  d = Dial{};
}

void RemoteRank::drop_streams() {
  for (Stream& s : streams_) {
    if (s) reactor_.unwatch(s.fd());
    s = {};
  }
}

void RemoteRank::dial_failed(const std::string& why) {
  for (Dial& d : dials_) drop(d);
  ended_ = Clock::now() - kLastData;
  why_ended_ = why;
}

void RemoteRank::advance(std::uint32_t stream) {
  Dial& d = dials_[stream];
  if (!d.asked) {
    // Where it fails, it closes the socket, whose number may be another one's at once.
    reactor_.unwatch(d.fd());
    if (d.attempt->step() == Introduction::State::failed) {
      const Introduction failed = std::move(*d.attempt);
      d = Dial{};
      return introduction_failed(failed);
    }
    reactor_.watch(d.fd(), EPOLLIN, *this);
    if (!d.attempt->ended()) return;
    const SignedStreamHello hello = SignedStreamHello::of(
        {self_, where_.member, stream, StreamHello::asks, connection_}, d.attempt->session());
    // A fresh socket has room for so little.
    if (write_exactly(d.attempt->socket(), wire::bytes_of(hello), Clock::now()) != IoResult::done) {
      return drop(d);
    }
    d.asked = true;
  }
  take_verdict(stream);
}

void RemoteRank::introduction_failed(const Introduction& attempt) {
  using Reason = Introduction::Reason;
  switch (attempt.reason()) {
    case Reason::unreachable:
      if (attempt.error() == ECONNREFUSED) {
        return dial_failed(fmt::format("died (nothing listens at {})", place()));
      }
      why_ended_ = std::strerror(attempt.error());
      return;
    case Reason::stranger:
    case Reason::other_version:
      return dial_failed(
          fmt::format("is lost (what answers at {} is no rank of this version of Tutti)", place()));
    case Reason::wrong_answer:
      return dial_failed(
          fmt::format("is lost (what answers at {} does not know this job's secret)", place()));
    default:  // its places for strangers were wanted, or it is about to go: on_tick() tries again
      return;
  }
}

void RemoteRank::take_verdict(std::uint32_t stream) {
  Dial& d = dials_[stream];
  switch (read_more(d.attempt->socket(), wire::writable_bytes_of(d.answer), d.answered)) {
    case ReadResult::more:
      return;
    case ReadResult::closed:
      return drop(d);
    case ReadResult::whole:
      break;
  }
  const SignedStreamHello answer = d.answer;
  if (!answer.is_genuine(d.attempt->session()) || answer.hello.from != where_.member ||
      answer.hello.to != self_) {
    return dial_failed(fmt::format("is lost (the answer from {} was altered on its way)", place()));
  }
  if (answer.hello.verdict == StreamHello::use_mine) {
    // It connects to this rank at the same time, and has the lower number.
    for (Dial& other : dials_) drop(other);
    return;
  }
  if (answer.hello.verdict != StreamHello::accepted) {
    return dial_failed(fmt::format("is lost (it refuses the connection at {})", place()));
  }
  reactor_.unwatch(d.fd());
  use(stream, std::move(d.attempt->socket()), d.attempt->session(), true);
}

void RemoteRank::accept(FileDescriptor socket, const StreamHello& hello,
                        const wire::Session& session) {
  const std::lock_guard lock(mutex_);
  StreamHello answer{self_, where_.member, hello.stream, StreamHello::accepted, hello.connection};
  const State state = state_.load(std::memory_order_relaxed);
  const bool dialling =
      std::ranges::any_of(dials_, [](const Dial& d) { return d.attempt.has_value(); });
  const bool other = connection_ != hello.connection;
  if (state == State::lost || state == State::up || hello.stream >= streams()) {
    answer.verdict = StreamHello::refused;
  } else if (dialling && self_ < where_.member) {
    answer.verdict = StreamHello::use_mine;
  }
  const SignedStreamHello reply = SignedStreamHello::of(answer, session);
  if (write_exactly(socket, wire::bytes_of(reply), Clock::now()) != IoResult::done ||
      answer.verdict != StreamHello::accepted) {
    return;
  }
  for (Dial& d : dials_) drop(d);
  if (other) {
    drop_streams();
    connection_ = hello.connection;
    dialler_ = false;
  }
  if (state == State::idle) {
    state_.store(State::connecting, std::memory_order_release);
    connecting_since_ = dialled_ = Clock::now();
    reactor_.keep_awake(*this);
  }
  tune_socket(socket);
  use(hello.stream, std::move(socket), session, false);
}

void RemoteRank::use(std::uint32_t stream, FileDescriptor socket, const wire::Session& session,
                     bool connector) {
  if (streams_[stream]) reactor_.unwatch(streams_[stream].fd());
  streams_[stream] = Stream(std::move(socket), protection_, session, connector);
  for (std::uint32_t s = 0; s < streams(); ++s) {
    if (streams_[s]) continue;
    // The peer may die before the other one is there.
    reactor_.watch(streams_[stream].fd(), EPOLLRDHUP, *this);
    return;
  }
  for (Dial& d : dials_) d = Dial{};
  why_ended_.clear();
  for (const Stream& s : streams_) {
    if (s) reactor_.unwatch(s.fd());
  }
  watch_over(streams_[kControl].fd());
  reactor_.watch(streams_[kControl].fd(), EPOLLIN, *this);
  if (wire_->needs_stream()) {
    watch_data(0, streams_[kData].fd());
    if (streams_[kApart]) watch_data(1, streams_[kApart].fd());
    wire_->attach(std::move(streams_[kData]), std::move(streams_[kApart]), self_ > where_.member);
  } else {
    if (const int fd = wire_->descriptor(); fd >= 0) watch_data(0, fd);
    notes_.push_front(framed(Frame::hello, 0, 0, wire_->hello()));
  }
  state_.store(State::up, std::memory_order_release);
  log().debug("rank {} of the job is connected to rank {} at {}{}, data go over {}", self_,
              where_.member, place(),
              protection_ == Protection::encryption ? ", encrypted"
              : protection_ == Protection::checksum ? ", with checksums"
                                                    : "",
              wire_->carrier());
  flush_notes();
  owner_.on_connected();
}

void RemoteRank::connect_anew() {
  for (Dial& d : dials_) drop(d);
  drop_streams();
  wire::fill_random(wire::writable_bytes_of(connection_));
  dialler_ = true;
  dialled_ = Clock::now();
  for (std::uint32_t s = 0; s < streams(); ++s) dial(s);
}

}  // namespace tutti
