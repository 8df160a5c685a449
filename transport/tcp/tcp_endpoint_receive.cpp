// See tcp_endpoint.h: receiving.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/sockets/tcp_socket.h"
#include "transport/tcp/tcp_endpoint.h"

namespace tutti {
namespace {

constexpr std::size_t kWaste = 65536;

}  // namespace

void TcpEndpoint::poll() {
  if (!first_.stream) return;
  // Not all that there may be: so what has come is used while it is in the cache.
  const std::size_t most = first_.stream.is_sealed() ? SIZE_MAX : kTaken;
  taken_ = 0;
  while (!failed_ && !heard_last_ && taken_ < most && receive()) {
  }
  receive_all_payloads(most);
}

void TcpEndpoint::receive_all_payloads(std::size_t most) {
  // In turn, as all parts of a message are wanted.
  for (bool more = true; more && !failed_ && taken_ < most;) {
    more = false;
    for (std::size_t o = 1; o < outlets().size() && !failed_; ++o) {
      if (!coming_[o].empty() && receive_payloads(o)) more = true;
    }
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
    if (is_hang_up(error)) receive_all_payloads(SIZE_MAX);
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
  now_.end = now_.missing;
  now_.whole = nullptr;
  // While parts of a message are on their way, its place must not be given to another one.
  const auto is_same = [&](const Striped& s) {
    return s.header.link == now_.header.link && s.header.number == now_.header.number;
  };
  if (std::ranges::any_of(striped_, is_same)) return false;
  if (now_.header.stripes > 0) return begin_striped();
  if (is_long_message(now_.missing) && receives_on_second_) {
    coming_[1].push_back(now_);
    return true;
  }
  in_message_ = place(now_);
  return in_message_;
}

bool TcpEndpoint::begin_striped() {
  const std::size_t stripes = std::exchange(now_.header.stripes, 0);
  const std::size_t bytes = now_.missing;
  if (stripes > kMostStripes || !is_long_message(bytes) || !place(now_)) return false;
  Striped& whole =
      striped_.emplace_back(Striped{now_.header, now_.to, std::move(now_.keeps), stripes + 1});
  std::byte* const to = now_.to;
  std::size_t begin = 0;
  for (std::size_t p = 0; p <= stripes; ++p) {
    const std::size_t end = end_of(p, stripes + 1, bytes);
    Coming part{now_.header, true,  to == nullptr ? nullptr : to + begin, end - begin, {},
                end,         &whole};
    begin = end;
    if (p > 0) {
      coming_[kFirstStripe + p - 1].push_back(std::move(part));
    } else if (receives_on_second_) {
      coming_[1].push_back(std::move(part));
    } else {
      now_ = std::move(part);
      in_message_ = true;
    }
  }
  return true;
}

bool TcpEndpoint::has_come(const Coming& coming) {
  const MessageHeader header = coming.header;
  if (Striped* const whole = coming.whole; whole != nullptr) {
    if (--whole->parts > 0) return true;
    striped_.remove_if([&](const Striped& s) { return &s == whole; });
  }
  return heard(sink_.on_message(header));
}

bool TcpEndpoint::finish_message() {
  in_message_ = false;
  now_.keeps.reset();
  if (now_.header.kind == MessageHeader::control) {
    return heard(sink_.on_control(now_.header, control_.data()));
  }
  return has_come(now_);
}

bool TcpEndpoint::heard(Heard heard) {
  if (heard == Heard::last) {
    heard_last_ = true;
    acknowledge(first_.stream.fd());
  }
  return heard != Heard::wrong;
}

bool TcpEndpoint::receive_payloads(std::size_t which) {
  Stream& stream = outlets_[which].stream;
  constexpr std::size_t kAtOnce = 4;
  std::array<iovec, kAtOnce> parts;
  std::size_t asked = 0, count = 0;
  for (Coming& c : coming_[which]) {
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
  const ssize_t got = stream.receive(std::span(parts).first(count));
  if (got <= 0) {
    if (got == 0 || errno != EAGAIN) fail_after(got == 0 ? 0 : errno);
    return false;
  }
  taken_ += static_cast<std::size_t>(got);
  for (auto left = static_cast<std::size_t>(got); left > 0;) {
    Coming& c = coming_[which].front();
    const std::size_t here = std::min(left, c.missing);
    if (c.to != nullptr) c.to += here;
    c.missing -= here;
    left -= here;
    if (c.missing > 0) break;
    const Coming come = std::move(c);
    coming_[which].pop_front();
    if (!has_come(come)) {
      fail(kNonsense);
      return false;
    }
  }
  return !failed_ && static_cast<std::size_t>(got) == asked;
}

void TcpEndpoint::redirect(std::uint32_t link) {
  for (Striped& s : striped_) {
    if (s.header.link != link) continue;
    Coming first{s.header, true, s.to, 0, {}, 0, nullptr};
    if (!place(first)) continue;
    s.to = first.to;
    s.keeps = std::move(first.keeps);
  }
  const auto go_on = [&](Coming& c) {
    if (!c.placed || c.header.link != link) return;
    if (c.whole != nullptr) {
      c.to = c.whole->to;
    } else if (!place(c)) {
      return;
    }
    if (c.to != nullptr) c.to += c.end - c.missing;
  };
  for (auto& coming : coming_) std::ranges::for_each(coming, go_on);
  if (in_message_ && now_.header.kind == MessageHeader::message) go_on(now_);
}

}  // namespace tutti
