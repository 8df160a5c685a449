// See tcp_endpoint.h: connecting, and sending.
#include "transport/tcp/tcp_endpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/network/wire_choice.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {

std::size_t TcpEndpoint::end_of(std::size_t part, std::size_t parts, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t each = (bytes / parts + kLine - 1) / kLine * kLine;
  return part + 1 == parts ? bytes : std::min(bytes, (part + 1) * each);
}

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

void TcpEndpoint::add_stripe(Stream stripe) {
  if (stripes_ < kMostStripes) outlets_[kFirstStripe + stripes_++].stream = std::move(stripe);
}

void TcpEndpoint::close(bool) {
  for (Outlet& o : outlets_) o.stream = {};
}

bool TcpEndpoint::is_delivered() {
  return std::ranges::all_of(outlets(),
                             [](const Outlet& o) { return has_delivered(o.stream.fd()); });
}

bool TcpEndpoint::is_hang_up(int error) {
  return error == 0 || error == ECONNRESET || error == EPIPE;
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
  for (Outlet& o : outlets()) o.drop();
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
    const auto others = outlets().subspan(1);
    are_others_free_ = std::ranges::all_of(others, [](const Outlet& o) { return o.is_sent(); });
    if (are_others_free_) std::ranges::for_each(others, [](Outlet& o) { o.begin(); });
    batch_stripes_ = stripes_;
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
  const std::size_t parts = 1 + stripes_for(header.bytes);
  head.header.stripes = static_cast<std::uint32_t>(parts - 1);
  const bool on_second = sends_on_second_ && is_long_message(header.bytes);
  const auto* const data = static_cast<const std::byte*>(payload);
  std::size_t begin = 0;
  for (std::size_t p = 0; p < parts; ++p) {
    const std::size_t end = end_of(p, parts, header.bytes);
    Outlet& o = outlets_[p > 0 ? kFirstStripe + p - 1 : on_second ? 1 : 0];
    o.add(data + begin, end - begin, put, keeps);
    begin = end;
  }
}

Endpoint::Room TcpEndpoint::room(std::size_t bytes) {
  if (!may_add()) return Room::none;
  const bool needs_others = is_long_message(bytes) && (sends_on_second_ || batch_stripes_ > 0);
  return needs_others && !are_others_free_ ? Room::not_for_long : Room::yes;
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
  for (Outlet& o : outlets()) send_batch(o);
  return !failed_ && first_.is_sent();
}

std::uint64_t TcpEndpoint::completed() const {
  std::uint64_t completed = appended_;
  for (const Outlet& o : outlets()) {
    for (std::size_t p = o.next; p < o.parts; ++p) {
      if (o.payloads[p].put == 0) continue;
      completed = std::min(completed, o.payloads[p].put - 1);
      break;
    }
  }
  return completed;
}

void TcpEndpoint::take_back(const std::byte* begin, const std::byte* end) {
  for (Outlet& o : outlets()) {
    for (std::size_t p = o.next; p < o.parts; ++p) {
      const auto* const at = static_cast<const std::byte*>(o.io[p].iov_base);
      if (at >= end || begin >= at + o.io[p].iov_len) continue;
      o.copied.emplace_back(at, at + o.io[p].iov_len);
      o.io[p].iov_base = o.copied.back().data();
      o.payloads[p].keeps.reset();
    }
  }
}

namespace {

class TcpEndpoints final : public EndpointMaker {
 public:
  std::unique_ptr<Endpoint> make(Endpoint::Sink& sink, int, int) override {
    return std::make_unique<TcpEndpoint>(sink);
  }
  bool uses_streams() const override { return true; }
};

}  // namespace

std::shared_ptr<EndpointMaker> make_tcp_endpoints() { return std::make_shared<TcpEndpoints>(); }

}  // namespace tutti
