// See rank_talk.h.
#include "tools/run/rank_talk.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "comm/elastic_message.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr int kFirstNumber = 64;  // shells use small ones for files of their own

}  // namespace

FileDescriptor RankTalk::open() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw_system_error("making a socket for a rank of an elastic job");
  }
  socket_ = FileDescriptor(ends[0]);
  const FileDescriptor low(ends[1]);
  FileDescriptor its(::fcntl(low.fd(), F_DUPFD_CLOEXEC, kFirstNumber));
  if (!its) throw_system_error("making a socket for a rank of an elastic job (see `ulimit -n`)");
  return its;
}

void RankTalk::say(std::string message) {
  if (!socket_) return;
  unsent_.push_back(std::move(message));
  write();
}

void RankTalk::write() {
  while (socket_ && !unsent_.empty()) {
    const std::string& next = unsent_.front();
    const ssize_t sent =
        ::send(socket_.fd(), next.data(), next.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return close();  // the rank has closed it
    unsent_.pop_front();
  }
}

std::optional<std::string> RankTalk::read() {
  if (!socket_) return std::nullopt;
  std::array<char, 4096> packet;
  ssize_t got = 0;
  do {
    got = ::recv(socket_.fd(), packet.data(), packet.size(), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return std::string(packet.data(), static_cast<std::size_t>(got));
  if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) close();
  return std::nullopt;
}

void RankTalk::add_polls(std::vector<pollfd>& polls) const {
  if (!socket_) return;
  polls.push_back(
      {socket_.fd(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0});
}

}  // namespace tutti
