// See stream_candidate.h.
#include "transport/sockets/stream_candidate.h"

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/sockets/stream.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

std::string text_of(const Introduction& attempt) {
  using Reason = Introduction::Reason;
  switch (attempt.reason()) {
    case Reason::unreachable:
      return std::strerror(attempt.error());
    case Reason::stranger:
    case Reason::other_version:
      return "what answers there is no rank of this version of Tutti";
    case Reason::wrong_answer:
      return "what answers there does not know this job's secret";
    default:  // its places for strangers were wanted, or it is about to go
      return "what answers there hangs up";
  }
}

}  // namespace

StreamCandidate::StreamCandidate(FileDescriptor socket, const protocol::Bytes32& secret,
                                 const StreamHello& hello, bool hears_choice)
    : state_(State::introducing),
      attempt_(std::move(socket), secret),
      own_(hello),
      hears_choice_(hears_choice) {
  if (!attempt_.ended()) return;
  error_ = attempt_.error();
  fail(text_of(attempt_));
}

StreamCandidate::StreamCandidate(FileDescriptor socket, const protocol::Session& session,
                                 const StreamHello& answer, bool hears_choice)
    : state_(State::ready),
      socket_(std::move(socket)),
      session_(session),
      own_(answer),
      hears_choice_(hears_choice) {
  if (!say(own_) || answer.verdict != StreamHello::accepted) fail("it was refused here");
}

StreamCandidate::State StreamCandidate::fail(std::string why) {
  state_ = State::failed;
  why_ = std::move(why);
  attempt_ = Introduction();
  socket_.reset();
  return state_;
}

bool StreamCandidate::say(const StreamHello& hello) {
  const SignedStreamHello said = SignedStreamHello::of(hello, session_);
  // A fresh socket has room for so little.
  return write_exactly(socket_, protocol::bytes_of(said), std::chrono::steady_clock::now()) ==
         IoResult::done;
}

StreamCandidate::State StreamCandidate::step() {
  if (state_ == State::introducing && !introduce()) return state_;
  if (state_ == State::asked && !read_answer()) return state_;
  if (state_ == State::ready && hears_choice_) read_choice();
  return state_;
}

bool StreamCandidate::introduce() {
  if (attempt_.step() == Introduction::State::failed) {
    error_ = attempt_.error();
    fail(text_of(attempt_));
    return false;
  }
  if (!attempt_.ended()) return false;
  socket_ = std::move(attempt_.socket());
  session_ = attempt_.session();
  if (!say(own_)) {
    fail("what answers there hangs up");
    return false;
  }
  state_ = State::asked;
  return true;
}

bool StreamCandidate::read_hello() {
  switch (read_more(socket_, protocol::writable_bytes_of(heard_), got_)) {
    case ReadResult::more:
      return false;
    case ReadResult::closed:
      fail("it hangs up");
      return false;
    case ReadResult::whole:
      break;
  }
  got_ = 0;
  const StreamHello& hello = heard_.hello;
  if (heard_.is_genuine(session_) && hello.from == own_.to && hello.to == own_.from &&
      hello.stream == own_.stream && hello.connection == own_.connection) {
    return true;
  }
  fail("what it says was altered on its way");
  return false;
}

bool StreamCandidate::read_answer() {
  if (!read_hello()) return false;
  if (heard_.hello.verdict == StreamHello::accepted) {
    state_ = State::ready;
    return true;
  }
  refused_ = heard_.hello.verdict == StreamHello::refused;
  fail("it refuses the connection");
  return false;
}

void StreamCandidate::read_choice() {
  if (!read_hello()) return;
  if (heard_.hello.verdict != StreamHello::chosen) {
    fail(kNonsense);
    return;
  }
  state_ = State::chosen;
}

bool StreamCandidate::choose() {
  StreamHello choice = own_;
  choice.verdict = StreamHello::chosen;
  return say(choice);
}

bool StreamCandidate::is_answered() const {
  if (!*this) return false;
  if (attempt_.state() != Introduction::State::connecting) return true;
  pollfd entry{fd(), POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLERR | POLLHUP)) == 0;
}

bool StreamCandidate::is_over() const { return is_ready() && has_hung_up(fd()); }

std::uint32_t StreamCandidate::events() const {
  switch (state_) {
    case State::introducing:
      return attempt_.events() == POLLOUT ? EPOLLOUT : EPOLLIN;
    case State::asked:
      return EPOLLIN;
    default:
      // What the peer sends behind a choice stays in the socket for the user of the stream.
      return state_ == State::ready && hears_choice_ ? EPOLLIN | EPOLLRDHUP : EPOLLRDHUP;
  }
}

}  // namespace tutti
