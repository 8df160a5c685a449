// See introduction.h.
#include "transport/sockets/introduction.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace tutti {

Introduction::Introduction(FileDescriptor socket, const protocol::Bytes32& secret)
    : state_(State::connecting), secret_(secret), socket_(std::move(socket)) {
  if (!socket_) fail(Reason::unreachable, errno);
}

short Introduction::events() const { return state_ == State::connecting ? POLLOUT : POLLIN; }

Introduction::State Introduction::fail(Reason reason, int error) {
  state_ = State::failed;
  reason_ = reason;
  error_ = error;
  socket_.reset();
  return state_;
}

Introduction::State Introduction::step() {
  if (state_ == State::connecting) {
    pollfd entry{socket_.fd(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) <= 0) return state_;
    if (const int error = connecting_error(socket_)) return fail(Reason::unreachable, error);
    state_ = State::greeting;
  }
  if (state_ == State::greeting) {
    switch (read_more(socket_, protocol::writable_bytes_of(greeting_), received_)) {
      case ReadResult::more:
        return state_;
      case ReadResult::closed:
        return fail(Reason::turned_away);
      case ReadResult::whole:
        break;
    }
    if (greeting_.magic != protocol::kMagic) return fail(Reason::stranger);
    if (greeting_.version != protocol::kVersion) return fail(Reason::other_version);
    protocol::Proof proof;
    protocol::fill_random(proof.nonce);
    session_ = protocol::Session(secret_, greeting_.nonce, proof.nonce);
    proof.mac = session_.connector_proof();
    // Nothing was sent before, so there is room for 64 bytes: this does not wait.
    if (write_exactly(socket_, protocol::bytes_of(proof), Deadline{}) != IoResult::done) {
      return fail(Reason::turned_away);
    }
    received_ = 0;
    state_ = State::answer;
  }
  if (state_ == State::answer) {
    switch (read_more(socket_, answer_, received_)) {
      case ReadResult::more:
        return state_;
      case ReadResult::closed:
        return fail(Reason::rejected);
      case ReadResult::whole:
        break;
    }
    if (!protocol::equal(answer_, session_.acceptor_proof())) return fail(Reason::wrong_answer);
    state_ = State::done;
  }
  return state_;
}

}  // namespace tutti
