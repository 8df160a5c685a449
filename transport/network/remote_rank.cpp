#include "transport/network/remote_rank.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/as_error.h"
#include "core/background.h"
#include "core/error.h"
#include "core/settings.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

}  // namespace

RemoteRank::RemoteRank(Owner& owner, std::uint64_t self, Where where, Protection protection,
                       std::uint32_t most_streams, const FileDescriptor& data_set,
                       const Wire::MakeEndpoint& make_endpoint, std::mutex* wire_lock)
    : owner_(owner),
      self_(self),
      where_(std::move(where)),
      protection_(protection),
      most_streams_(most_streams),
      data_set_(data_set),
      reactor_(Reactor::instance()),
      wire_(static_cast<Wire::Owner&>(*this), make_endpoint, wire_lock) {
  data_fds_.fill(-1);
}

RemoteRank::~RemoteRank() { reactor_.forget(*this); }

std::vector<std::byte> RemoteRank::framed(Frame::Kind kind, std::uint32_t type,
                                          std::uint64_t communicator,
                                          std::span<const std::byte> bytes) {
  Frame frame;
  frame.kind = kind;
  frame.type = type;
  frame.bytes = static_cast<std::uint32_t>(std::min(bytes.size(), kMostNote));
  frame.communicator = communicator;
  std::vector<std::byte> all(sizeof frame + frame.bytes);
  std::memcpy(all.data(), &frame, sizeof frame);
  if (frame.bytes > 0) std::memcpy(all.data() + sizeof frame, bytes.data(), frame.bytes);
  return all;
}

std::string RemoteRank::place() const { return to_string(where_.address); }

// --- Data ----------------------------------------------------------------------------------------

void RemoteRank::watch_data(std::size_t which, int fd) {
  // The reactor has it for children of fork() and for errors, which it hears of once.
  reactor_.watch(fd, EPOLLONESHOT, *this);
  data_fds_[which] = fd;
  listen_for_data(EPOLL_CTL_ADD, which, EPOLLIN | EPOLLRDHUP);
}

void RemoteRank::listen_for_data(int operation, std::size_t which, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(where_.member) * kDataSockets + which;
  if (epoll_ctl(data_set_.fd(), operation, data_fds_[which], &event) != 0 &&
      operation == EPOLL_CTL_ADD) {
    throw_system_error("watching a socket for data from another host");
  }
}

void RemoteRank::on_data(std::size_t which, std::uint32_t events) {
  wire_.drive();
  wire_.arm();
  if ((events & ~std::uint32_t{EPOLLIN | EPOLLOUT}) == 0 &&
      !wire_closed_.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const int fd = data_fds_[which];
  if (fd < 0 || wire_.abilities().streams == 0) return;
  // It would be ready for ever.
  if (wire_closed_.load(std::memory_order_acquire) || has_ended(fd)) {
    listen_for_data(EPOLL_CTL_DEL, which, 0);
    note_end_of_data(fd);
  }
}

void RemoteRank::note_end_of_data(int fd) {
  if (data_ended_ || !is_up() || !has_ended(fd)) return;
  data_ended_ = Clock::now();
  if (!leaving_.load(std::memory_order_acquire)) reactor_.keep_awake(*this);
}

bool RemoteRank::prepare_to_sleep() {
  if (!is_up()) return true;
  if (!wire_.arm()) return false;
  if (!wire_.has_work()) return true;
  const std::lock_guard lock(mutex_);
  for (std::size_t which = 0; which < data_fds_.size(); ++which) {
    if (data_fds_[which] < 0 || !wire_.wants_room(which)) continue;
    listen_for_data(EPOLL_CTL_MOD, which, EPOLLIN | EPOLLRDHUP | EPOLLOUT);
    wants_room_.store(true, std::memory_order_relaxed);
  }
  return true;
}

void RemoteRank::after_sleep() {
  if (!wants_room_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  wants_room_.store(false, std::memory_order_relaxed);
  for (std::size_t which = 0; which < data_fds_.size(); ++which) {
    if (data_fds_[which] >= 0) listen_for_data(EPOLL_CTL_MOD, which, EPOLLIN | EPOLLRDHUP);
  }
}

// --- Notes ---------------------------------------------------------------------------------------

void RemoteRank::tell(std::uint64_t communicator, std::uint32_t type,
                      std::span<const std::byte> bytes) {
  std::vector<std::byte> note = framed(Frame::note, type, communicator, bytes);
  {
    const std::lock_guard lock(mutex_);
    if (is_gone()) return;
    notes_.push_back(std::move(note));
    if (is_up()) flush_notes();
  }
  connect();
}

bool RemoteRank::has_hung_up() {
  const std::lock_guard lock(mutex_);
  return is_gone() || (is_up() && tutti::has_hung_up(streams_[kControl].fd()));
}

bool RemoteRank::is_to_be_awaited() {
  const std::lock_guard lock(mutex_);
  if (is_up() || is_gone()) return false;
  return is_ready(ours_) || is_ready(theirs_) || (!notes_.empty() && !turned_away_);
}

void RemoteRank::flush_notes() {
  while (!notes_.empty() && streams_[kControl]) {
    std::vector<std::byte>& note = notes_.front();
    const iovec rest{note.data() + note_sent_, note.size() - note_sent_};
    const ssize_t sent = streams_[kControl].send({&rest, 1});
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) {  // why, the reactor hears by itself
      notes_.clear();
      note_sent_ = 0;
      return;
    }
    note_sent_ += static_cast<std::size_t>(sent);
    if (note_sent_ < note.size()) continue;
    notes_.pop_front();
    note_sent_ = 0;
  }
  if (streams_[kControl]) streams_[kControl].flush();
  if (!notes_are_out() && !leaving_.load(std::memory_order_relaxed)) {
    reactor_.change(streams_[kControl].fd(), EPOLLIN | EPOLLOUT);
  }
}

void RemoteRank::read_control() {
  struct Heard {
    Frame frame;
    std::vector<std::byte> bytes;
  };
  std::vector<Heard> notes;
  {
    const std::lock_guard lock(mutex_);
    std::array<std::byte, 16384> piece;
    std::optional<int> end;  // an errno
    for (;;) {
      const iovec room{piece.data(), piece.size()};
      const ssize_t got = streams_[kControl].receive({&room, 1});
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) {
        end = got < 0 ? errno : 0;
        break;
      }
      heard_.insert(heard_.end(), piece.begin(), piece.begin() + got);
    }
    std::size_t at = 0;
    while (heard_.size() - at >= sizeof(Frame)) {
      Frame frame;
      std::memcpy(&frame, heard_.data() + at, sizeof frame);
      const bool meets = wire_.abilities().streams == 0;
      const bool hello = frame.kind == Frame::hello && meets;
      const bool ready = frame.kind == Frame::ready && meets && frame.bytes == 0;
      if ((frame.kind != Frame::note && frame.kind != Frame::bye && !hello && !ready) ||
          frame.bytes > kMostNote) {
        end_ = {Departure::cut_off, kNonsense};
        end = EPROTO;
        break;
      }
      if (heard_.size() - at < sizeof frame + frame.bytes) break;
      const auto first = heard_.begin() + static_cast<std::ptrdiff_t>(at + sizeof frame);
      if (frame.kind == Frame::bye) {
        heard_bye_ = true;
        acknowledge(streams_[kControl].fd());
        if (frame.bytes > 0) {
          const std::string said(reinterpret_cast<const char*>(&*first), frame.bytes);
          end_ = {Departure::cut_off,
                  fmt::format("has hung up on this rank, which, it says, {}", said)};
        }
      } else {
        notes.push_back({frame, {first, first + frame.bytes}});
      }
      at += sizeof frame + frame.bytes;
    }
    heard_.erase(heard_.begin(), heard_.begin() + static_cast<std::ptrdiff_t>(at));
    // Its last words have been read by now.
    if (end) control_ended(*end);
  }
  for (const Heard& n : notes) {
    if (n.frame.kind == Frame::hello) {
      wire_.connect(n.bytes);
      const std::lock_guard lock(mutex_);
      notes_.push_back(framed(Frame::ready, 0, 0, {}));
      flush_notes();
      continue;
    }
    if (n.frame.kind == Frame::ready) {
      wire_.start();
      continue;
    }
    owner_.on_note(where_.member, n.frame.communicator, n.frame.type, n.bytes);
  }
}

// --- The end -------------------------------------------------------------------------------------

void RemoteRank::control_ended(int error) {
  if (ended_) return;
  reactor_.unwatch(streams_[kControl].fd());
  ended_ = Clock::now();
  if (error == 0 || error == ECONNRESET || error == EPIPE) {
    if (!heard_bye_ && end_.why.empty()) end_ = {Departure::died, "died"};
    wire_.peer_ended();
  } else {
    // There is nothing to wait for.
    *ended_ -= kLastData;
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
      end_.why = fmt::format(
          "is out of reach (its host at {} has been silent for longer than {:.1f} s, "
          "TUTTI_PEER_TIMEOUT)",
          place(), std::chrono::duration<double>(setting_seconds("TUTTI_PEER_TIMEOUT")).count());
    } else {
      end_.why = fmt::format("is lost ({})", !end_.why.empty()  ? end_.why
                                             : error == EBADMSG ? kAltered
                                                                : std::strerror(error));
    }
    end_.how = Departure::cut_off;
  }
  reactor_.keep_awake(*this);
}

void RemoteRank::on_left(std::uint64_t communicator) {
  if (!leaving_.load(std::memory_order_acquire)) owner_.on_left(where_.member, communicator);
}

void RemoteRank::on_closed(const std::string& why, bool refused_here) {
  {
    const std::lock_guard lock(wire_mutex_);
    why_wire_closed_ = why;
    wire_refused_here_ = refused_here;
    wire_closed_at_ = Clock::now();
  }
  wire_closed_.store(true, std::memory_order_release);
  if (!leaving_.load(std::memory_order_acquire)) reactor_.keep_awake(*this);
}

void RemoteRank::end(Departure how, const std::string& why, bool may_live) {
  {
    const std::lock_guard lock(mutex_);
    if (is_gone()) return;
    if (is_up() && may_live) {
      // The peer is to know why this rank hangs up.
      try {
        notes_.push_back(framed(Frame::bye, 0, 0, std::as_bytes(std::span(why))));
        flush_notes();
      } catch (const std::bad_alloc&) {  // then it hears that the connection broke
      }
    }
    cut();
  }
  wire_.shut();
  owner_.on_gone(where_.member, how, why);
}

void RemoteRank::cut() {
  state_.store(State::gone, std::memory_order_release);
  drop(ours_);
  drop(theirs_);
  drop_streams();
  for (StreamCandidate& c : stripes_) {
    if (c) reactor_.unwatch(c.fd());
    c = {};
  }
  for (std::size_t which = 0; which < data_fds_.size(); ++which) {
    if (data_fds_[which] < 0) continue;
    reactor_.unwatch(data_fds_[which]);
    listen_for_data(EPOLL_CTL_DEL, which, 0);
    data_fds_[which] = -1;
  }
}

void RemoteRank::say_bye() {
  leaving_.store(true, std::memory_order_release);
  reactor_.forget(*this);
  const std::lock_guard lock(mutex_);
  if (!is_up()) return;
  wire_.say_bye();
  notes_.push_back(framed(Frame::bye, 0, 0, {}));
}

bool RemoteRank::is_delivered() {
  wire_.poll();  // without the lock: it may have something to tell
  const std::lock_guard lock(mutex_);
  if (!is_up()) return true;
  const int control_fd = streams_[kControl].fd();
  if (tutti::has_hung_up(control_fd)) return true;
  flush_notes();
  if (!wire_.is_flushed() || !notes_are_out()) return false;
  // What the kernel has not delivered when a socket is closed with data unread, it drops.
  return has_delivered(control_fd) && wire_.is_delivered();
}

void RemoteRank::close() {
  reactor_.forget(*this);
  {
    const std::lock_guard lock(mutex_);
    cut();
  }
  wire_.shut();
}

// --- The reactor's calls -------------------------------------------------------------------------

void RemoteRank::on_events(int fd, std::uint32_t events) try {
  bool control = false, data = false;
  {
    const std::lock_guard lock(mutex_);
    for (Attempt* const attempt : {&ours_, &theirs_}) {
      for (std::uint32_t s = 0; s < kStreams; ++s) {
        if (attempt->streams[s].fd() == fd) return advance(*attempt, s);
      }
    }
    for (std::uint32_t s = 0; s < kMostStripes; ++s) {
      if (stripes_[s].fd() == fd) return advance_stripe(s);
    }
    if (!is_up()) return;
    control = streams_[kControl].fd() == fd;
    data = std::ranges::count(data_fds_, fd) > 0;
    if (control && (events & EPOLLOUT) != 0) {
      reactor_.change(fd, EPOLLIN);
      flush_notes();
    }
  }
  if (control) read_control();
  if (!data) return;
  wire_.drive();
  const std::lock_guard lock(mutex_);
  if (wire_.abilities().streams > 0) note_end_of_data(fd);
} catch (const std::exception& e) {
  const Error error = as_error(e);
  if (error.code() != ErrorCode::system) throw;
  // What has come is lost, and nothing can follow it.
  end(Departure::refused, error.what(), true);
}

std::optional<Reactor::Time> RemoteRank::on_tick(Reactor::Time now) {
  std::string why;
  std::optional<Departure> how;
  std::optional<Reactor::Time> again;
  bool asks = false, is_last_look = false, may_live = false;
  {
    const std::lock_guard lock(mutex_);
    is_last_look = ended_ && now - *ended_ >= kLastData;
  }
  // This thread may come late, so messages that came in time may lie there unread.
  if (is_last_look) wire_.take_last();
  {
    const std::lock_guard lock(mutex_);
    if (is_gone()) return std::nullopt;
    if (state_.load(std::memory_order_relaxed) == State::connecting && !ended_) {
      again = keep_dialling(now, asks);
    }
    const bool closed = wire_closed_.load(std::memory_order_acquire);
    if (closed && !ended_) {
      const std::lock_guard wire_lock(wire_mutex_);
      // Where the peer has closed it or is gone, the control stream ends too, and knows better why.
      if (!why_wire_closed_.empty() && now - wire_closed_at_ >= kLastData &&
          !tutti::has_hung_up(streams_[kControl].fd())) {
        how = wire_refused_here_ ? Departure::refused : Departure::cut_off;
        why = wire_refused_here_ ? why_wire_closed_ : fmt::format("is lost ({})", why_wire_closed_);
      }
    }
    if (data_ended_ && !closed && !ended_ && !heard_bye_) {
      // Where the peer is gone, the control stream ends too.
      if (now < *data_ended_ + kLastData) {
        again = std::min(again.value_or(*data_ended_ + kLastData), *data_ended_ + kLastData);
      } else if (!tutti::has_hung_up(streams_[kControl].fd())) {
        how = Departure::cut_off;
        why = "is lost (the connection for data broke)";
      }
    }
    if (ended_ && (closed || now - *ended_ >= kLastData)) {
      // The control stream has ended, and what the peer sent last has come, or had its time. Of a
      // process that has died, all connections end. Where those for data have not ended, the peer
      // may live, and the text says no more than that a connection broke. But this rank may only
      // not have read them to their ends yet, so the loss still counts as a death.
      how = end_.how;
      why = end_.why;
      if (how == Departure::died && is_up() && !closed && wire_.abilities().streams > 0) {
        why = "is lost (the connection to it broke)";
        may_live = true;
      }
    }
  }
  if (how) {
    end(*how, why, may_live || *how == Departure::cut_off || *how == Departure::refused);
    return std::nullopt;
  }
  if (asks) owner_.on_unanswered(where_.member);
  if (again) return again;
  if (ended_ || wire_closed_.load(std::memory_order_acquire)) return now;
  return std::nullopt;
}

void RemoteRank::on_polled() {
  if (!leaving_.load(std::memory_order_acquire)) owner_.on_polled();
}

bool RemoteRank::on_exit() {
  if (is_to_be_awaited()) return false;
  wire_.poll();
  const std::lock_guard lock(mutex_);
  if (is_up()) flush_notes();
  return !is_up() || (wire_.is_flushed() && notes_are_out());
}

}  // namespace tutti
