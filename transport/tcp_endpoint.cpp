#include "transport/tcp_endpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp_socket.h"

namespace tutti {
namespace {

constexpr std::size_t kWaste = 65536;

/// Of a socket whose peer has closed it, or died; 0: the end of what it had sent.
bool is_hang_up(int error) { return error == 0 || error == ECONNRESET || error == EPIPE; }

}  // namespace

const Endpoint::Abilities& TcpEndpoint::abilities() const {
  static const Abilities abilities{.streams = 2,
                                   .cancels = true,
                                   .level_triggered = true,
                                   .confirms = true,
                                   .least_direct = kZeroCopyBytes};
  return abilities;
}

void TcpEndpoint::connect(Stream first, Stream second, bool sends_on_second) {
  first_.stream = std::move(first);
  second_.stream = std::move(second);
  sends_on_second_ = second_.stream && sends_on_second;
  receives_on_second_ = second_.stream && !sends_on_second;
}

void TcpEndpoint::close(bool) {
  first_.stream = {};
  second_.stream = {};
}

bool TcpEndpoint::is_delivered() {
  return has_delivered(first_.stream.fd()) && has_delivered(second_.stream.fd());
}

void TcpEndpoint::fail_after(int error) {
  // So it is too where a process has died, which the control stream knows.
  fail(is_hang_up(error)  ? "the connection for data broke"
       : error == EBADMSG ? kAltered
                          : std::strerror(error));
}

void TcpEndpoint::cannot_send(int error) {
  if (!is_hang_up(error)) return fail_after(error);
  hung_up_ = true;
  first_.drop();
  second_.drop();
}

// --- Sending -------------------------------------------------------------------------------------

void TcpEndpoint::Outlet::begin() {
  copied.clear();
  parts = next = 0;
}

void TcpEndpoint::Outlet::drop() {
  for (std::size_t p = next; p < parts; ++p) payloads[p].keeps.reset();
  begin();
}

void TcpEndpoint::Outlet::add(const void* data, std::size_t bytes, std::uint64_t put,
                              std::shared_ptr<void> keeps) {
  payloads[parts] = {put, std::move(keeps)};
  io[parts++] = {const_cast<void*>(data), bytes};
}

bool TcpEndpoint::may_add() {
  if (!filling_) {
    if (!first_.stream || !first_.is_sent()) return false;
    first_.begin();
    is_second_free_ = second_.is_sent();
    if (is_second_free_) second_.begin();
    used_heads_ = batch_bytes_ = 0;
    filling_ = true;
  }
  return used_heads_ < kHeaders && batch_bytes_ < kBatchBytes;
}

void TcpEndpoint::add(const MessageHeader& header, const void* payload, std::uint64_t put,
                      const std::shared_ptr<void>& keeps) {
  Head& head = heads_[used_heads_++];
  head.header = header;
  batch_bytes_ += header.bytes;
  if (header.bytes <= head.payload.size()) {
    if (header.bytes > 0) std::memcpy(head.payload.data(), payload, header.bytes);
    return first_.add(&head, sizeof(MessageHeader) + header.bytes, put, {});
  }
  first_.add(&head, sizeof(MessageHeader), 0, {});
  const bool on_second = sends_on_second_ && is_long_message(header.bytes);
  (on_second ? second_ : first_).add(payload, header.bytes, put, keeps);
}

Endpoint::Room TcpEndpoint::room(std::size_t bytes) {
  if (!may_add()) return Room::none;
  return is_long_message(bytes) && sends_on_second_ && !is_second_free_ ? Room::not_for_long
                                                                        : Room::yes;
}

void TcpEndpoint::put(const Put& p) { add(p.header, p.payload, ++appended_, p.keeps); }

bool TcpEndpoint::send(const MessageHeader& header, const void* control) {
  if (!may_add()) return false;
  add(header, control, 0, {});
  return true;
}

void TcpEndpoint::send_batch(Outlet& o) {
  if (hung_up_) return o.drop();
  while (!o.is_sent() && !failed_) {
    ssize_t sent = o.stream.send(std::span(o.io).subspan(o.next, o.parts - o.next));
    if (sent < 0) {
      if (errno != EAGAIN) cannot_send(errno);
      return;
    }
    while (sent > 0) {
      iovec& part = o.io[o.next];
      const auto gone = std::min(static_cast<std::size_t>(sent), part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + gone;
      part.iov_len -= gone;
      sent -= static_cast<ssize_t>(gone);
      if (part.iov_len > 0) continue;
      o.payloads[o.next++].keeps.reset();
    }
  }
  if (!failed_ && !o.stream.flush() && errno != EAGAIN) cannot_send(errno);
}

bool TcpEndpoint::submit() {
  if (!first_.stream) return false;
  filling_ = false;
  send_batch(first_);
  send_batch(second_);
  return !failed_ && first_.is_sent();
}

std::uint64_t TcpEndpoint::completed() const {
  std::uint64_t completed = appended_;
  for (const Outlet* const o : {&first_, &second_}) {
    for (std::size_t p = o->next; p < o->parts; ++p) {
      if (o->payloads[p].put == 0) continue;
      completed = std::min(completed, o->payloads[p].put - 1);
      break;
    }
  }
  return completed;
}

void TcpEndpoint::take_back(const std::byte* begin, const std::byte* end) {
  for (Outlet* const o : {&first_, &second_}) {
    for (std::size_t p = o->next; p < o->parts; ++p) {
      const auto* const at = static_cast<const std::byte*>(o->io[p].iov_base);
      if (at >= end || begin >= at + o->io[p].iov_len) continue;
      o->copied.emplace_back(at, at + o->io[p].iov_len);
      o->io[p].iov_base = o->copied.back().data();
      o->payloads[p].keeps.reset();
    }
  }
}

// --- Receiving -----------------------------------------------------------------------------------

void TcpEndpoint::poll() {
  if (!first_.stream) return;
  // Not all that there may be: so what has come is used while it is in the cache.
  const std::size_t most = first_.stream.is_sealed() ? SIZE_MAX : kTaken;
  taken_ = 0;
  while (!failed_ && !heard_last_ && taken_ < most && receive()) {
  }
  while (!failed_ && !coming_.empty() && taken_ < most && receive_second()) {
  }
}

std::byte* TcpEndpoint::waste(std::size_t& bytes) {
  waste_.resize(kWaste);
  bytes = std::min(bytes, waste_.size());
  return waste_.data();
}

bool TcpEndpoint::receive() {
  constexpr std::size_t kBehind = 2048;  // what is read behind a payload, not to ask twice
  iovec parts[2];
  std::size_t count = 0, here = in_message_ ? now_.missing : 0;
  if (in_message_) {
    std::byte* const to = now_.to != nullptr ? now_.to : waste(here);
    parts[count++] = {to, here};
  }
  std::size_t asked = here;
  if (!in_message_ || here == now_.missing) {
    const std::size_t room = in_message_ ? kBehind : staged_.size() - end_;
    parts[count++] = {staged_.data() + end_, room};
    asked += room;
  }
  const ssize_t got = first_.stream.receive(std::span(parts).first(count));
  if (got <= 0) {
    const int error = got == 0 ? 0 : errno;
    if (error == EAGAIN) return false;
    while (is_hang_up(error) && !coming_.empty() && !failed_ && receive_second()) {
    }
    fail_after(error);
    return false;
  }
  taken_ += static_cast<std::size_t>(got);
  auto came = static_cast<std::size_t>(got);
  bool right = true;
  if (in_message_) {
    const std::size_t payload = std::min(came, here);
    if (now_.to != nullptr) now_.to += payload;
    now_.missing -= payload;
    came -= payload;
    right = now_.missing > 0 || finish_message();
  }
  end_ += came;
  if (right && parse()) return static_cast<std::size_t>(got) == asked;
  fail(kNonsense);
  return false;
}

bool TcpEndpoint::parse() {
  while (!failed_ && !heard_last_) {
    if (!in_message_) {
      if (end_ - begin_ < sizeof(MessageHeader)) break;
      std::memcpy(&now_.header, staged_.data() + begin_, sizeof(MessageHeader));
      begin_ += sizeof(MessageHeader);
      if (!begin_message()) return false;
      if (!in_message_) continue;
    }
    const std::size_t here = std::min(now_.missing, end_ - begin_);
    if (here > 0 && now_.to != nullptr) {
      std::memcpy(now_.to, staged_.data() + begin_, here);
      now_.to += here;
    }
    begin_ += here;
    now_.missing -= here;
    if (now_.missing > 0) break;
    if (!finish_message()) return false;
  }
  // What is left, less than a header, moves to the front.
  if (begin_ > 0) {
    std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return true;
}

bool TcpEndpoint::place(Coming& c) {
  Sink::Target target = sink_.on_header(c.header);
  if (!target.known) return false;
  c.placed = true;
  c.to = target.to;
  c.keeps = std::move(target.keeps);
  return true;
}

bool TcpEndpoint::begin_message() {
  now_.missing = now_.header.bytes;
  now_.placed = false;
  if (now_.header.kind == MessageHeader::control) {
    now_.to = control_.data();
    in_message_ = true;
    return now_.missing <= control_.size();
  }
  if (now_.header.kind != MessageHeader::message || now_.header.more != 0) return false;
  if (is_long_message(now_.missing) && receives_on_second_) {
    coming_.push_back({now_.header, false, nullptr, now_.missing, {}});
    return true;
  }
  in_message_ = place(now_);
  return in_message_;
}

bool TcpEndpoint::finish_message() {
  in_message_ = false;
  now_.keeps.reset();
  return heard(now_.header.kind == MessageHeader::control
                   ? sink_.on_control(now_.header, control_.data())
                   : sink_.on_message(now_.header));
}

bool TcpEndpoint::heard(Heard heard) {
  if (heard == Heard::last) {
    heard_last_ = true;
    acknowledge(first_.stream.fd());
  }
  return heard != Heard::wrong;
}

bool TcpEndpoint::receive_second() {
  constexpr std::size_t kAtOnce = 4;
  std::array<iovec, kAtOnce> parts;
  std::size_t asked = 0, count = 0;
  for (Coming& c : coming_) {
    if (count == kAtOnce) break;
    if (!c.placed && !place(c)) {
      fail(kNonsense);
      return false;
    }
    std::size_t bytes = c.missing;
    std::byte* const to = c.to != nullptr ? c.to : waste(bytes);
    parts[count++] = {to, bytes};
    asked += bytes;
    if (bytes < c.missing) break;
  }
  const ssize_t got = second_.stream.receive(std::span(parts).first(count));
  if (got <= 0) {
    if (got == 0 || errno != EAGAIN) fail_after(got == 0 ? 0 : errno);
    return false;
  }
  taken_ += static_cast<std::size_t>(got);
  for (auto left = static_cast<std::size_t>(got); left > 0;) {
    Coming& c = coming_.front();
    const std::size_t here = std::min(left, c.missing);
    if (c.to != nullptr) c.to += here;
    c.missing -= here;
    left -= here;
    if (c.missing > 0) break;
    const MessageHeader header = c.header;
    coming_.pop_front();
    if (!heard(sink_.on_message(header))) {
      fail(kNonsense);
      return false;
    }
  }
  return !failed_ && static_cast<std::size_t>(got) == asked;
}

void TcpEndpoint::redirect(std::uint32_t link) {
  const auto go_on = [&](Coming& c) {
    if (!c.placed || c.header.link != link || !place(c)) return;
    if (c.to != nullptr) c.to += c.header.bytes - c.missing;
  };
  for (Coming& c : coming_) go_on(c);
  if (in_message_ && now_.header.kind == MessageHeader::message) go_on(now_);
}

}  // namespace tutti
