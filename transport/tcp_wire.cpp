#include "transport/tcp_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/tcp_socket.h"

namespace tutti {

void TcpWire::attach(Stream stream, Stream apart, bool sends_apart) {
  const std::lock_guard lock(mutex_);
  first_.stream = std::move(stream);
  apart_.stream = std::move(apart);
  sends_apart_ = apart_.stream && sends_apart;
  hears_apart_ = apart_.stream && !sends_apart;
  push();
  if (settle()) owner_.on_moved();
}

void TcpWire::shut() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  first_.stream = {};
  apart_.stream = {};
  if (settle()) owner_.on_moved();
}

bool TcpWire::waits_for_room(std::size_t which) {
  const std::lock_guard lock(mutex_);
  return (which == 0 ? first_ : apart_).has_unsent();
}

bool TcpWire::is_delivered() {
  const std::lock_guard lock(mutex_);
  return has_delivered(first_.stream.fd()) && has_delivered(apart_.stream.fd());
}

void TcpWire::close_after(int error) {
  // So it is too where a process has died, which the control stream knows.
  const bool gone = error == 0 || error == ECONNRESET || error == EPIPE;
  close_with(gone               ? "the connection for data broke"
             : error == EBADMSG ? kAltered
                                : std::strerror(error));
}

void TcpWire::close_with(const std::string& why) {
  if (closed_) return;
  closed_ = true;
  owner_.on_closed(why);
}

// --- Sending -------------------------------------------------------------------------------------

void TcpWire::announce(OutLink& link, const Opening& opening) {
  said_.push_back({{Frame::open, link.number(), 0, sizeof(Opening), 0, 0}, opening});
}

void TcpWire::say_left(std::uint64_t group) {
  // After all that is published: so the messages have to be in front of it.
  push();
  said_.push_back({{Frame::left, 0, 0, 0, group, 0}, {}});
}

void TcpWire::say_bye() {
  const std::lock_guard lock(mutex_);
  said_.push_back({{Frame::bye, 0, 0, 0, 0, 0}, {}});
  if (!closed_) push();
  settle();
}

void TcpWire::Outlet::begin() {
  copied.clear();
  parts = next = 0;
}

void TcpWire::Outlet::add(const void* data, std::size_t bytes, const Payload& payload) {
  payloads[parts] = payload;
  io[parts++] = {const_cast<void*>(data), bytes};
}

void TcpWire::add(const Frame& frame, const void* payload, const Payload& of) {
  Head& kept = frames_[used_frames_++];
  kept.frame = frame;
  if (frame.bytes <= kept.payload.size()) {
    if (frame.bytes > 0) std::memcpy(kept.payload.data(), payload, frame.bytes);
    return first_.add(&kept, sizeof(Frame) + frame.bytes, of);
  }
  first_.add(&kept.frame, sizeof(Frame), {});
  const bool apart = sends_apart_ && frame.kind == Frame::data && goes_apart(frame.bytes);
  (apart ? apart_ : first_).add(payload, frame.bytes, of);
}

bool TcpWire::fill() {
  first_.begin();
  used_frames_ = 0;
  while (!said_.empty() && used_frames_ < kFrames) {
    add(said_.front().frame, &said_.front().opening, {});
    said_.pop_front();
  }
  while (!owing_.empty() && used_frames_ < kFrames) {
    InLink& link = *owing_.back();
    owing_.pop_back();
    link.listed = false;
    const InLink::Credit credit = link.credit();
    if (!link.owes()) continue;
    add({Frame::credit, link.number(), 0, 0, credit.consumed, credit.freed}, nullptr, {});
    link.told(credit);
  }
  fill_with_messages();
  return first_.parts > 0;
}

void TcpWire::fill_with_messages() {
  const bool is_apart_free = apart_.next == apart_.parts;
  if (is_apart_free) apart_.begin();
  std::size_t bytes = 0;
  std::size_t passed_over = 0;  // links in a row whose long message has to wait
  // In turn, so that none waits for another's long messages.
  for (std::size_t l = 0;
       passed_over < sending_.size() && used_frames_ < kFrames && bytes < kBatchBytes;) {
    if (l >= sending_.size()) l = 0;
    OutLink& link = *sending_[l];
    if (!link.ready()) {
      link.listed = false;
      sending_[l] = sending_.back();
      sending_.pop_back();
      continue;
    }
    const OutLink::Message m = link.next();
    const bool is_long = goes_apart(m.header->bytes);
    ++l;
    if (is_long && sends_apart_ && !is_apart_free) {
      ++passed_over;
      continue;
    }
    passed_over = 0;
    add({Frame::data, link.number(), m.header->tag, m.header->bytes, m.number, m.at}, m.payload,
        {&link, m.number, m.header->bytes});
    bytes += m.header->bytes;
    link.pass();
  }
}

void TcpWire::send_batch(Outlet& o) {
  while (o.next < o.parts && !closed_) {
    ssize_t sent = o.stream.send(std::span(o.io).subspan(o.next, o.parts - o.next));
    if (sent < 0) {
      if (errno != EAGAIN) close_after(errno);
      return;
    }
    while (sent > 0) {
      iovec& part = o.io[o.next];
      const auto gone = std::min(static_cast<std::size_t>(sent), part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + gone;
      part.iov_len -= gone;
      sent -= static_cast<ssize_t>(gone);
      if (part.iov_len > 0) continue;
      const Payload& payload = o.payloads[o.next++];
      if (payload.link != nullptr) payload.link->sent(payload.number, payload.bytes);
    }
  }
  if (!closed_ && !o.stream.flush() && errno != EAGAIN) close_after(errno);
}

void TcpWire::push() {
  if (!first_.stream) return;
  do {
    send_batch(first_);
    send_batch(apart_);
  } while (!closed_ && first_.next == first_.parts && fill());
}

template <class Wanted>
void TcpWire::Outlet::copy(Wanted&& wanted) {
  for (std::size_t p = next; p < parts; ++p) {
    if (payloads[p].link == nullptr || !wanted(payloads[p], io[p])) continue;
    const auto* const begin = static_cast<const std::byte*>(io[p].iov_base);
    copied.emplace_back(begin, begin + io[p].iov_len);
    io[p].iov_base = copied.back().data();
  }
}

void TcpWire::drop(OutLink& link) {
  for (Outlet* o : {&first_, &apart_}) {
    // What is left of its messages in a batch must still be sent, or what is behind them could not
    // be told from them.
    if (!closed_) o->copy([&](const Payload& p, const iovec&) { return p.link == &link; });
    for (Payload& p : o->payloads) {
      if (p.link == &link) p = {};
    }
  }
}

bool TcpWire::keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) {
  for (Outlet* o : {&first_, &apart_}) {
    o->copy([&](const Payload& p, const iovec& part) {
      const auto* const at = static_cast<const std::byte*>(part.iov_base);
      return p.link == &link && at < end && begin < at + part.iov_len;
    });
  }
  return true;
}

// --- Receiving -----------------------------------------------------------------------------------

void TcpWire::take() {
  if (!first_.stream) return;
  // Not all that there may be: so what has come is used while it is in the cache.
  const std::size_t most = first_.stream.is_sealed() ? SIZE_MAX : kTaken;
  taken_ = 0;
  while (!closed_ && !heard_bye_ && taken_ < most && receive()) {
  }
  while (!closed_ && !coming_.empty() && taken_ < most && receive_apart()) {
  }
}

bool TcpWire::receive() {
  constexpr std::size_t kBehind = 2048;  // what is read behind a payload, not to ask twice
  // A link that was dropped meanwhile has no memory any more.
  const bool direct = missing_ > 0 && to_ != nullptr;
  if (missing_ > 0 && !direct) waste_.resize(65536);
  iovec parts[2];
  std::size_t asked = 0;
  std::size_t count = 0;
  if (missing_ > 0) {
    const std::size_t here = direct ? missing_ : std::min(missing_, waste_.size());
    parts[count++] = {direct ? to_ : waste_.data(), here};
    asked += here;
  }
  if (missing_ == 0 || parts[0].iov_len == missing_) {
    const std::size_t room = missing_ > 0 ? kBehind : staged_.size() - end_;
    parts[count++] = {staged_.data() + end_, room};
    asked += room;
  }
  const ssize_t got = first_.stream.receive(std::span(parts).first(count));
  if (got < 0) {
    if (errno != EAGAIN) close_after(errno);
    return false;
  }
  if (got == 0) {
    while (!coming_.empty() && !closed_ && receive_apart()) {
    }
    if (!closed_) close_after(0);
    return false;
  }
  taken_ += static_cast<std::size_t>(got);
  auto came = static_cast<std::size_t>(got);
  if (missing_ > 0) {
    const std::size_t payload = std::min(came, parts[0].iov_len);
    if (direct) to_ += payload;
    missing_ -= payload;
    came -= payload;
    if (missing_ == 0 && !finish()) {
      close_with("it has sent what cannot be");
      return false;
    }
  }
  end_ += came;
  if (!parse()) {
    close_with("it has sent what cannot be");
    return false;
  }
  return static_cast<std::size_t>(got) == asked;
}

bool TcpWire::parse() {
  while (!closed_ && !heard_bye_) {
    if (!in_frame_) {
      if (end_ - begin_ < sizeof(Frame)) break;
      std::memcpy(&frame_, staged_.data() + begin_, sizeof frame_);
      begin_ += sizeof frame_;
      if (!begin(frame_)) return false;
      if (!in_frame_) continue;
    }
    const std::size_t here = std::min(missing_, end_ - begin_);
    if (here > 0) {
      if (to_ != nullptr) {
        std::memcpy(to_, staged_.data() + begin_, here);
        to_ += here;
      }
      begin_ += here;
      missing_ -= here;
    }
    if (missing_ > 0) break;
    if (!finish()) return false;
  }
  // What is left, less than a frame's header, moves to the front.
  if (begin_ > 0) {
    std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return true;
}

bool TcpWire::begin(const Frame& f) {
  in_frame_ = true;
  missing_ = f.bytes;
  to_ = nullptr;
  link_ = nullptr;
  switch (f.kind) {
    case Frame::data: {
      const Found found = find_in(f.link);
      if (!found.known) return false;
      link_ = found.link;
      if (link_ != nullptr) to_ = link_->place(f.number, f.bytes, f.at);
      if (link_ != nullptr && to_ == nullptr) return false;
      if (goes_apart(f.bytes) && hears_apart_) {
        coming_.push_back({f, link_, nullptr, f.bytes});
        in_frame_ = false;
        missing_ = 0;
      } else if (link_ != nullptr) {
        if (std::byte* const there = link_->land(f.number, f.tag, f.bytes)) to_ = there;
      }
      return true;
    }
    case Frame::open:
      to_ = reinterpret_cast<std::byte*>(&opening_);
      return f.bytes == sizeof opening_;
    case Frame::credit:
    case Frame::left:
    case Frame::bye:
      return f.bytes == 0;
    default:
      return false;
  }
}

bool TcpWire::finish() {
  in_frame_ = false;
  switch (frame_.kind) {
    case Frame::data:
      return link_ == nullptr || link_->arrived(frame_.number, frame_.tag, frame_.bytes, frame_.at);
    case Frame::open:
      return opened(frame_.link, opening_);
    case Frame::credit: {
      OutLink* const link = find_out(frame_.link);
      return link == nullptr || link->credit(frame_.number, frame_.at);
    }
    default:  // left, bye
      heard_bye_ = frame_.kind == Frame::bye;
      if (heard_bye_) acknowledge(first_.stream.fd());
      if (coming_.empty()) {
        take_leave(frame_);
      } else {
        coming_.push_back({frame_});
      }
      return true;
  }
}

void TcpWire::take_leave(const Frame& frame) {
  if (frame.kind == Frame::left) {
    peer_left_.push_back(frame.number);
  } else {
    close_with("");
  }
}

bool TcpWire::receive_apart() {
  constexpr std::size_t kAtOnce = 4;
  std::array<iovec, kAtOnce> parts;
  std::size_t asked = 0, count = 0;
  for (Coming& c : coming_) {
    if (count == kAtOnce || c.frame.kind != Frame::data) break;
    std::size_t bytes = c.missing;
    if (c.link == nullptr) {
      waste_.resize(65536);
      bytes = std::min(bytes, waste_.size());
    } else if (c.to == nullptr) {
      c.to = c.link->land(c.frame.number, c.frame.tag, c.frame.bytes);
      if (c.to == nullptr) c.to = c.link->place(c.frame.number, c.frame.bytes, c.frame.at);
    }
    parts[count++] = {c.link == nullptr ? waste_.data() : c.to, bytes};
    asked += bytes;
    if (bytes < c.missing) break;
  }
  const ssize_t got = apart_.stream.receive(std::span(parts).first(count));
  if (got <= 0) {
    if (got == 0 || errno != EAGAIN) close_after(got == 0 ? 0 : errno);
    return false;
  }
  taken_ += static_cast<std::size_t>(got);
  for (auto left = static_cast<std::size_t>(got); left > 0;) {
    Coming& c = coming_.front();
    const std::size_t here = std::min(left, c.missing);
    if (c.link != nullptr) c.to += here;
    c.missing -= here;
    left -= here;
    if (c.missing > 0) break;
    const Coming done = c;
    coming_.pop_front();
    const Frame& f = done.frame;
    if (done.link != nullptr && !done.link->arrived(f.number, f.tag, f.bytes, f.at)) {
      close_with("it has sent what cannot be");
      return false;
    }
  }
  while (!coming_.empty() && coming_.front().frame.kind != Frame::data) {
    take_leave(coming_.front().frame);
    coming_.pop_front();
  }
  return static_cast<std::size_t>(got) == asked;
}

void TcpWire::drop(InLink& link) {
  for (Coming& c : coming_) {
    if (c.link != &link) continue;
    c.link = nullptr;
    c.to = nullptr;
  }
  if (link_ != &link) return;
  link_ = nullptr;
  to_ = nullptr;
}

bool TcpWire::stop_landing(InLink& link) {
  // The rank has left the call: what has landed already, nobody will look for.
  const auto go_on = [&](const Frame& f, std::byte*& to, std::size_t missing) {
    if (to != nullptr) to = link.place(f.number, f.bytes, f.at) + (f.bytes - missing);
  };
  for (Coming& c : coming_) {
    if (c.link == &link) go_on(c.frame, c.to, c.missing);
  }
  if (link_ == &link && in_frame_) go_on(frame_, to_, missing_);
  return true;
}

}  // namespace tutti
