// See rendezvous_connection.h.
#include "bootstrap/rendezvous_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/background.h"
#include "core/error.h"
#include "transport/sockets/introduction.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kRefusedFor = 1s;       // an id exists while its server does, so this is generous
constexpr int kMostByServer = 6;       // rejections, and for kRefusedFor
constexpr auto kLongestPause = 100ms;  // between two attempts

constexpr std::string_view kGone =
    "the process that made the unique id has ended, the ranks of this id have met already, or the "
    "id timed out; make a new one, and keep its process alive until all ranks have joined";

}  // namespace

RendezvousConnection::RendezvousConnection(const protocol::Ticket& ticket, std::string who,
                                           const Reunion* reunion)
    : ticket_(ticket), where_(to_string(ticket.address)), who_(std::move(who)), reunion_(reunion) {}

void RendezvousConnection::open(Deadline deadline) {
  while (!introduce(deadline)) {
    pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
    pause_for(pause_);
  }
}

bool RendezvousConnection::introduce(Deadline deadline) {
  if (Clock::now() >= deadline) throw_timed_out("no connection came about");
  Introduction attempt(ticket_.address, ticket_.secret);
  while (!attempt.ended()) {
    if (!wait_for(attempt.descriptor(), attempt.events(), deadline)) {
      throw_timed_out(attempt.state() == Introduction::State::connecting
                          ? "the connection was not made"
                      : attempt.state() == Introduction::State::greeting
                          ? "the server accepted, but said nothing"
                          : "the server did not answer this rank's proof");
    }
    attempt.step();
  }
  switch (attempt.reason()) {
    case Introduction::Reason::none:
      socket_ = std::move(attempt.socket());
      session_ = attempt.session();
      return true;
    case Introduction::Reason::unreachable:
      return may_come_back(attempt.error());
    case Introduction::Reason::turned_away:
      return false;
    case Introduction::Reason::stranger:
      if (reunion_ != nullptr) throw_first_gone("what listens there now is no rank of Tutti");
      throw Error(ErrorCode::system,
                  fmt::format("{}: what answers at {} is not a rendezvous of Tutti: {}{}", who_,
                              where_, kGone, protocol::loopback_remark(ticket_.address)));
    case Introduction::Reason::other_version:
      throw Error(ErrorCode::mismatch,
                  fmt::format("{}: the server at {} speaks version {} of the protocol, this rank "
                              "version {}: all ranks need the same Tutti",
                              who_, where_, attempt.version(), protocol::kVersion));
    case Introduction::Reason::rejected:
      // A busy server may close an honest rank's connection.
      if (++rejections_ == 1) rejected_since_ = Clock::now();
      if (rejections_ < kMostByServer || Clock::now() - rejected_since_ < kRefusedFor) {
        return false;
      }
      break;
    case Introduction::Reason::wrong_answer:
      break;
  }
  if (reunion_ != nullptr) {
    throw_first_gone("what listens there now is another rank, or the handle was made up");
  }
  throw Error(ErrorCode::system,
              fmt::format("{}: the server at {} does not share the secret of this rank's unique "
                          "id: the id belongs to another job ({}{})",
                          who_, where_, kGone, protocol::loopback_remark(ticket_.address)));
}

bool RendezvousConnection::may_come_back(int error) {
  if (error == ECONNREFUSED && reunion_ != nullptr) throw_first_gone("nothing listens there");
  if (error == ECONNREFUSED) {
    if (refused_since_ == Clock::time_point{}) refused_since_ = Clock::now();
    if (Clock::now() - refused_since_ < kRefusedFor) return false;
    throw Error(ErrorCode::system, fmt::format("{}: nothing listens at {}: {}{}", who_, where_,
                                               kGone, protocol::loopback_remark(ticket_.address)));
  }
  refused_since_ = {};
  // The way there may come back.
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ECONNRESET ||
      error == ECONNABORTED || error == EAGAIN || error == EADDRNOTAVAIL) {
    return false;
  }
  const bool descriptors = error == EMFILE || error == ENFILE;
  throw_system_error(fmt::format("{} cannot connect to {}{}", who_, where_,
                                 descriptors ? " (`ulimit -n` says how many descriptors a "
                                               "process may have)"
                                             : ""),
                     error);
}

void RendezvousConnection::say(const protocol::Buffer& frame, Deadline deadline) const {
  check(write_exactly(socket_, *frame, deadline));
}

void RendezvousConnection::check(IoResult result) const {
  if (result == IoResult::timed_out) throw_timed_out("the server stopped answering");
  if (result == IoResult::closed && reunion_ != nullptr) {
    throw_first_gone("it closed the connection before all ranks had met");
  }
  if (result == IoResult::closed) {
    throw Error(ErrorCode::system,
                fmt::format("{}: the server at {} closed the connection before all ranks had "
                            "met: the process that made the unique id has ended",
                            who_, where_));
  }
}

void RendezvousConnection::throw_first_gone(std::string_view why) const {
  throw Error(ErrorCode::peer_lost,
              fmt::format("rank 0 ({}), at which the ranks meet, is gone: {} ({})",
                          reunion_->list().front().process(), why, where_),
              0);
}

void RendezvousConnection::throw_garbled() const {
  throw Error(ErrorCode::system,
              fmt::format("{}: the answer from {} was altered on its way", who_, where_));
}

void RendezvousConnection::throw_timed_out(std::string_view what) const {
  if (reunion_ != nullptr) {
    throw Error(ErrorCode::timed_out,
                fmt::format("rank 0 ({}), at which the ranks meet, does not answer: {} ({}) before "
                            "the deadline",
                            reunion_->list().front().process(), what, where_),
                0);
  }
  throw Error(ErrorCode::timed_out,
              fmt::format("{}: {} ({}) before the deadline; is the process that made the unique "
                          "id alive, and its address reachable from here?",
                          who_, what, where_));
}

}  // namespace tutti
