#include "transport/tcp_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/tcp_socket.h"

namespace tutti {

void TcpWire::attach(Stream stream) {
  const std::lock_guard lock(mutex_);
  stream_ = std::move(stream);
  push();
}

void TcpWire::shut() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  stream_ = {};
}

bool TcpWire::is_delivered() {
  const std::lock_guard lock(mutex_);
  return has_delivered(stream_.fd());
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
}

void TcpWire::add(const Frame& frame, const void* payload) {
  Said& kept = frames_[used_frames_++];
  kept.frame = frame;
  payloads_[parts_] = {};
  io_[parts_++] = {&kept.frame, sizeof(Frame)};
  if (frame.bytes == 0) return;
  payloads_[parts_] = {};
  io_[parts_++] = {const_cast<void*>(payload), frame.bytes};
}

bool TcpWire::fill() {
  copied_.clear();
  parts_ = next_part_ = used_frames_ = 0;
  while (!said_.empty() && used_frames_ < kFrames) {
    frames_[used_frames_].opening = said_.front().opening;
    add(said_.front().frame, &frames_[used_frames_].opening);
    said_.pop_front();
  }
  while (!owing_.empty() && used_frames_ < kFrames) {
    InLink& link = *owing_.back();
    owing_.pop_back();
    link.listed = false;
    const InLink::Credit credit = link.credit();
    if (!link.owes()) continue;
    add({Frame::credit, link.number(), 0, 0, credit.consumed, credit.freed}, nullptr);
    link.told(credit);
  }
  std::size_t bytes = 0;
  // In turn, so that none waits for another's long messages.
  for (std::size_t l = 0; l < sending_.size() && used_frames_ < kFrames && bytes < kBatchBytes;) {
    OutLink& link = *sending_[l];
    if (!link.ready()) {
      link.listed = false;
      sending_[l] = sending_.back();
      sending_.pop_back();
      continue;
    }
    const OutLink::Message m = link.next();
    add({Frame::data, link.number(), m.header->tag, m.header->bytes, m.number, m.at}, m.payload);
    if (m.header->bytes > 0) payloads_[parts_ - 1] = {&link, m.number};
    bytes += m.header->bytes;
    link.pass();
    if (++l >= sending_.size()) l = 0;
  }
  return parts_ > 0;
}

void TcpWire::push() {
  while (stream_ && (next_part_ < parts_ || fill())) {
    ssize_t sent = stream_.send(std::span(io_).subspan(next_part_, parts_ - next_part_));
    if (sent < 0) {
      if (errno != EAGAIN) close_after(errno);
      return;
    }
    while (sent > 0) {
      iovec& part = io_[next_part_];
      const auto gone = std::min(static_cast<std::size_t>(sent), part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + gone;
      part.iov_len -= gone;
      sent -= static_cast<ssize_t>(gone);
      if (part.iov_len > 0) continue;
      const Payload& payload = payloads_[next_part_++];
      if (payload.link != nullptr) payload.link->sent(payload.number);
    }
  }
  if (stream_ && !stream_.flush() && errno != EAGAIN) close_after(errno);
}

template <class Wanted>
void TcpWire::copy_parts(Wanted&& wanted) {
  if (closed_) return;
  for (std::size_t p = next_part_; p < parts_; ++p) {
    iovec& part = io_[p];
    if (payloads_[p].link == nullptr || !wanted(payloads_[p], part)) continue;
    const auto* const begin = static_cast<const std::byte*>(part.iov_base);
    copied_.emplace_back(begin, begin + part.iov_len);
    part.iov_base = copied_.back().data();
  }
}

void TcpWire::drop(OutLink& link) {
  // What is left of its messages in the batch must still be sent, or the frames behind could not be
  // told from it.
  copy_parts([&](const Payload& p, const iovec&) { return p.link == &link; });
  for (Payload& p : payloads_) {
    if (p.link == &link) p = {};
  }
}

void TcpWire::keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) {
  copy_parts([&](const Payload& p, const iovec& part) {
    const auto* const at = static_cast<const std::byte*>(part.iov_base);
    return p.link == &link && at < end && begin < at + part.iov_len;
  });
}

// --- Receiving -----------------------------------------------------------------------------------

void TcpWire::take() {
  while (stream_ && !closed_ && receive()) {
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
  const ssize_t got = stream_.receive(std::span(parts).first(count));
  if (got < 0) {
    if (errno != EAGAIN) close_after(errno);
    return false;
  }
  if (got == 0) {
    close_after(0);
    return false;
  }
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
  while (!closed_) {
    if (!in_frame_) {
      if (end_ - begin_ < sizeof(Frame)) break;
      std::memcpy(&frame_, staged_.data() + begin_, sizeof frame_);
      begin_ += sizeof frame_;
      if (!begin(frame_)) return false;
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
      if (link_ == nullptr) return true;  // this rank has left
      to_ = link_->place(f.number, f.bytes, f.at);
      if (to_ == nullptr) return false;
      if (std::byte* const there = link_->land(f.number, f.tag, f.bytes)) to_ = there;
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
    case Frame::left:
      peer_left_.push_back(frame_.number);
      return true;
    default:  // bye
      close_with("");
      return true;
  }
}

void TcpWire::drop(InLink& link) {
  if (link_ != &link) return;
  link_ = nullptr;
  to_ = nullptr;
}

void TcpWire::stop_landing(InLink& link) {
  if (link_ != &link || !in_frame_ || to_ == nullptr) return;
  // The rank has left the call: what has landed already, nobody will look for.
  to_ = link.place(frame_.number, frame_.bytes, frame_.at) + (frame_.bytes - missing_);
}

}  // namespace tutti
