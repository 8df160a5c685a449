#include "transport/sockets/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr std::size_t kHeader = sizeof(Seal::Header);
constexpr std::size_t kRecord = kHeader + Seal::kMost;
constexpr std::size_t kTaken = 16 * Seal::kMost;  // at once

ssize_t send_now(int fd, std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  for (;;) {
    // The kernel has less to look at where there is one part.
    const ssize_t sent = parts.size() == 1 ? ::send(fd, parts[0].iov_base, parts[0].iov_len, kFlags)
                                           : ::sendmsg(fd, &message, kFlags);
    if (sent >= 0 || errno != EINTR) return sent;
  }
}

ssize_t receive_now(int fd, std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  for (;;) {
    const ssize_t got = parts.size() == 1
                            ? ::recv(fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT)
                            : ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (got >= 0 || errno != EINTR) return got;
  }
}

/// Parts, byte by byte.
class Walk {
 public:
  explicit Walk(std::span<const iovec> parts) : parts_(parts) {}
  bool ended() const { return parts_.empty(); }
  /// What lies next, at most so much; and goes behind it.
  std::span<std::byte> take(std::size_t most) {
    const iovec& part = parts_.front();
    const std::size_t bytes = std::min(most, part.iov_len - at_);
    const std::span piece(static_cast<std::byte*>(part.iov_base) + at_, bytes);
    at_ += bytes;
    if (at_ == part.iov_len) {
      parts_ = parts_.subspan(1);
      at_ = 0;
    }
    return piece;
  }

 private:
  std::span<const iovec> parts_;
  std::size_t at_ = 0;
};

}  // namespace

struct Stream::Sealed {
  Seal to, from;
  std::vector<std::byte> out;  // sealed records
  std::size_t sent = 0;        // bytes of them
  std::vector<std::byte> in = std::vector<std::byte>(4 * kRecord);
  std::size_t begin = 0, end = 0;                // of what has come
  std::size_t opened_begin = 0, opened_end = 0;  // of what may be handed out

  /// Opens the next record; false: it has not come, or (altered) cannot be opened.
  bool open_next() {
    if (end - begin < kHeader) return false;
    Seal::Header header;
    std::memcpy(&header, in.data() + begin, kHeader);
    altered = !Seal::is_right(header);
    if (altered || end - begin < kHeader + header.bytes) return false;
    opened_begin = begin + kHeader;
    opened_end = begin = opened_begin + header.bytes;
    altered = !from.open(header, std::span(in).subspan(opened_begin, header.bytes));
    return !altered;
  }
  bool altered = false;
};

Stream::Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

Stream::Stream(FileDescriptor socket, Protection protection, const protocol::Session& session,
               bool connector)
    : socket_(std::move(socket)) {
  if (protection == Protection::none) return;
  sealed_ = std::make_unique<Sealed>();
  // Fresh for each connection, as the nonces in the session are.
  const Seal of_connector(protection, session.mac("seal of the connector", {}));
  const Seal of_acceptor(protection, session.mac("seal of the acceptor", {}));
  sealed_->to = connector ? of_connector : of_acceptor;
  sealed_->from = connector ? of_acceptor : of_connector;
}

bool Stream::has_unsent() const { return sealed_ && sealed_->sent < sealed_->out.size(); }

bool Stream::flush() {
  if (!sealed_) return true;
  std::vector<std::byte>& out = sealed_->out;
  while (sealed_->sent < out.size()) {
    const iovec rest{out.data() + sealed_->sent, out.size() - sealed_->sent};
    const ssize_t sent = send_now(socket_.fd(), {&rest, 1});
    if (sent < 0) return false;
    sealed_->sent += static_cast<std::size_t>(sent);
  }
  out.clear();
  sealed_->sent = 0;
  return true;
}

ssize_t Stream::send(std::span<const iovec> parts) {
  if (!sealed_) return send_now(socket_.fd(), parts);
  if (!flush()) return -1;
  std::vector<std::byte>& out = sealed_->out;
  std::size_t taken = 0;
  for (Walk walk(parts); !walk.ended() && taken < kTaken;) {
    const std::size_t header_at = out.size();
    out.resize(header_at + kHeader);
    std::size_t bytes = 0;
    while (!walk.ended() && bytes < Seal::kMost) {
      const auto piece = walk.take(Seal::kMost - bytes);
      out.insert(out.end(), piece.begin(), piece.end());
      bytes += piece.size();
    }
    const Seal::Header header =
        sealed_->to.close(std::span(out).subspan(header_at + kHeader, bytes));
    std::memcpy(out.data() + header_at, &header, kHeader);
    taken += bytes;
  }
  if (!flush() && errno != EAGAIN) return -1;
  return static_cast<ssize_t>(taken);
}

ssize_t Stream::receive(std::span<const iovec> parts) {
  if (!sealed_) return receive_now(socket_.fd(), parts);
  Sealed& s = *sealed_;
  std::size_t handed_out = 0;
  Walk walk(parts);
  while (!walk.ended()) {
    if (s.opened_begin < s.opened_end) {
      const auto piece = walk.take(s.opened_end - s.opened_begin);
      std::memcpy(piece.data(), s.in.data() + s.opened_begin, piece.size());
      s.opened_begin += piece.size();
      handed_out += piece.size();
      continue;
    }
    if (s.open_next()) continue;
    if (s.altered) {
      errno = EBADMSG;
      return -1;
    }
    std::memmove(s.in.data(), s.in.data() + s.begin, s.end - s.begin);
    s.end -= s.begin;
    s.begin = s.opened_begin = s.opened_end = 0;
    const iovec room{s.in.data() + s.end, s.in.size() - s.end};
    const ssize_t got = receive_now(socket_.fd(), {&room, 1});
    if (got <= 0) return handed_out > 0 ? static_cast<ssize_t>(handed_out) : got;
    s.end += static_cast<std::size_t>(got);
  }
  return static_cast<ssize_t>(handed_out);
}

}  // namespace tutti
