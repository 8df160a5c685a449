// Sockets of the simulated system (calls.h); and read() and write(), also of event counters.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <utility>

#include "tests/simulator/calls.h"

namespace {

using namespace tutti::simulator;

Address address_from(const sockaddr* from) {
  sockaddr_in in{};
  std::memcpy(&in, from, sizeof in);
  return {ntohl(in.sin_addr.s_addr), ntohs(in.sin_port)};
}

void write_address(const Address& address, sockaddr* to, socklen_t* length) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address.ip);
  in.sin_port = htons(address.port);
  std::memcpy(to, &in, std::min<std::size_t>(*length, sizeof in));
  *length = sizeof in;
}

std::string local_name(const sockaddr* from, socklen_t length) {
  return std::string(reinterpret_cast<const char*>(from) + offsetof(sockaddr_un, sun_path),
                     length - offsetof(sockaddr_un, sun_path));
}

long answer(long result) { return result >= 0 ? result : failed<long>(static_cast<int>(-result)); }

long send_local(Local& socket, const iovec* parts, std::size_t count, const msghdr* message) {
  if (!socket.connected || socket.fin_sent) return -ENOTCONN;
  if (socket.fin_came || socket.peer->references == 0) {
    if (socket.fin_came) return -EPIPE;
  }
  Local::Packet packet;
  for (std::size_t p = 0; p < count; ++p) {
    packet.data.append(static_cast<const char*>(parts[p].iov_base), parts[p].iov_len);
  }
  for (cmsghdr* c = message == nullptr ? nullptr : CMSG_FIRSTHDR(message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(message), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (Object* const object = file(*caller()->process, fd)) {
      ++object->references;
      packet.objects.push_back(object);
    } else {
      packet.real_files.push_back(REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0));
    }
  }
  const auto sent = static_cast<long>(packet.data.size());
  socket.peer->packets.push_back(std::move(packet));
  socket.peer->changed();
  return sent;
}

long receive_local(Local& socket, const iovec* parts, std::size_t count, int flags,
                   msghdr* message) {
  if (!socket.connected) return -ENOTCONN;
  if (socket.packets.empty()) return socket.fin_came ? 0 : -EAGAIN;
  Local::Packet& packet = socket.packets.front();
  std::size_t done = 0;
  for (std::size_t p = 0; p < count && done < packet.data.size(); ++p) {
    const std::size_t here = std::min(parts[p].iov_len, packet.data.size() - done);
    std::memcpy(parts[p].iov_base, packet.data.data() + done, here);
    done += here;
  }
  const auto whole = static_cast<long>(packet.data.size());
  if ((flags & MSG_PEEK) != 0) return static_cast<long>(done);
  if (message != nullptr) message->msg_flags = 0;
  int fd = -1;
  if (!packet.objects.empty()) {
    fd = add_file(*caller()->process, *packet.objects.front());
    --packet.objects.front()->references;
  } else if (!packet.real_files.empty()) {
    fd = packet.real_files.front();
    caller()->process->real_files.push_back(fd);
  }
  if (fd >= 0 && message != nullptr && message->msg_controllen >= CMSG_SPACE(sizeof fd)) {
    cmsghdr* const c = CMSG_FIRSTHDR(message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    message->msg_controllen = CMSG_SPACE(sizeof fd);
  } else if (message != nullptr) {
    message->msg_controllen = 0;
  }
  socket.packets.pop_front();
  return (flags & MSG_TRUNC) != 0 ? whole : static_cast<long>(done);
}

long send_to(Object& object, const iovec* parts, std::size_t count, int flags,
             const msghdr* message) {
  begin_call(kMicrosecond);
  for (;;) {
    const long sent = object.kind == Object::Kind::tcp
                          ? tcp_send(static_cast<Tcp&>(object), parts, count)
                      : object.kind == Object::Kind::local
                          ? send_local(static_cast<Local&>(object), parts, count, message)
                          : -ENOTSOCK;
    if (sent != -EAGAIN || !object.blocks || (flags & MSG_DONTWAIT) != 0) return answer(sent);
    world().wait_until(is_writable, &object, kNever);
  }
}

long receive_from(Object& object, const iovec* parts, std::size_t count, int flags,
                  msghdr* message) {
  begin_call(kMicrosecond);
  for (;;) {
    const long got =
        object.kind == Object::Kind::tcp
            ? tcp_receive(static_cast<Tcp&>(object), parts, count, (flags & MSG_PEEK) != 0)
        : object.kind == Object::Kind::local
            ? receive_local(static_cast<Local&>(object), parts, count, flags, message)
            : -ENOTSOCK;
    if (got > 0) world().trace(20, static_cast<std::uint64_t>(got));
    if (got != -EAGAIN || !object.blocks || (flags & MSG_DONTWAIT) != 0) return answer(got);
    world().wait_until(is_readable, &object, kNever);
  }
}

}  // namespace

extern "C" {

int socket(int family, int type, int protocol) {
  if (caller() == nullptr) return REAL(socket)(family, type, protocol);
  begin_call(kMicrosecond);
  Process& process = *caller()->process;
  const int kind = type & 0xf;
  Object* made = nullptr;
  if (family == AF_INET && kind == SOCK_STREAM) made = new Tcp(process);
  if (family == AF_INET && kind == SOCK_DGRAM) made = new Datagram(process);
  if (family == AF_UNIX && kind == SOCK_SEQPACKET) made = new Local(process);
  if (made == nullptr) return failed(EAFNOSUPPORT);
  made->blocks = (type & SOCK_NONBLOCK) == 0;
  return add_file(process, *made);
}

int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(bind)(fd, address, length);
  const int error = object->kind == Object::Kind::tcp
                        ? tcp_bind(static_cast<Tcp&>(*object), address_from(address))
                    : object->kind == Object::Kind::local
                        ? local_bind(static_cast<Local&>(*object), local_name(address, length))
                        : 0;
  return error == 0 ? 0 : failed(error);
}

int listen(int fd, int backlog) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(listen)(fd, backlog);
  if (object->kind == Object::Kind::local) {
    static_cast<Local&>(*object).listens = true;
    return 0;
  }
  const int error = tcp_listen(static_cast<Tcp&>(*object));
  return error == 0 ? 0 : failed(error);
}

int connect(int fd, const sockaddr* address, socklen_t length) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(connect)(fd, address, length);
  begin_call(2 * kMicrosecond);
  if (object->kind == Object::Kind::local) {
    const int error = local_connect(static_cast<Local&>(*object), local_name(address, length));
    return error == 0 ? 0 : failed(error);
  }
  if (address->sa_family != AF_INET) return failed(ENETUNREACH);
  const Address to = address_from(address);
  if (object->kind == Object::Kind::datagram) {
    static_cast<Datagram&>(*object).local =
        (to.ip >> 24) == 127 ? Address{0x7f000001, 0} : address_of_host(caller()->process->host);
    return 0;
  }
  Tcp& tcp = static_cast<Tcp&>(*object);
  const int error = tcp_connect(tcp, to);
  if (error != EINPROGRESS || !tcp.blocks) return error == 0 ? 0 : failed(error);
  world().wait_until(is_writable, &tcp, kNever);
  return tcp.error == 0 ? 0 : failed(std::exchange(tcp.error, 0));
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(accept4)(fd, address, length, flags);
  begin_call(kMicrosecond);
  Process& process = *caller()->process;
  Object* came = nullptr;
  if (object->kind == Object::Kind::local) {
    auto& backlog = static_cast<Local&>(*object).backlog;
    if (!backlog.empty()) {
      came = backlog.front();
      backlog.pop_front();
    }
  } else {
    came = tcp_accept(static_cast<Tcp&>(*object));
  }
  if (came == nullptr) return failed(EAGAIN);
  came->blocks = (flags & SOCK_NONBLOCK) == 0;
  return add_file(process, *came);
}

int shutdown(int fd, int how) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(shutdown)(fd, how);
  if (object->kind == Object::Kind::tcp) {
    tcp_shutdown(static_cast<Tcp&>(*object), how);
  } else if (object->kind == Object::Kind::local) {
    Local& local = static_cast<Local&>(*object);
    if (local.connected && !local.fin_sent) {
      local.fin_sent = true;
      local.peer->fin_came = true;
      local.peer->changed();
    }
    if (how != SHUT_WR) local.fin_came = true;
    local.changed();
  }
  return 0;
}

int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(getsockname)(fd, address, length);
  write_address(object->kind == Object::Kind::tcp ? static_cast<Tcp&>(*object).local
                                                  : static_cast<Datagram&>(*object).local,
                address, length);
  return 0;
}

int getpeername(int fd, sockaddr* address, socklen_t* length) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(getpeername)(fd, address, length);
  if (object->kind != Object::Kind::tcp) return failed(ENOTCONN);
  write_address(static_cast<Tcp&>(*object).remote, address, length);
  return 0;
}

int getsockopt(int fd, int level, int option, void* value, socklen_t* length) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(getsockopt)(fd, level, option, value, length);
  if (level == SOL_SOCKET && option == SO_PEERCRED) {
    const Local& local = static_cast<Local&>(*object);
    if (object->kind != Object::Kind::local || local.peer == nullptr) return failed(ENOTCONN);
    const ucred who{static_cast<pid_t>(local.peer->process->id()), 1000, 1000};
    std::memcpy(value, &who, sizeof who);
    *length = sizeof who;
    return 0;
  }
  int result = 0;
  if (level == SOL_SOCKET && option == SO_ERROR && object->kind == Object::Kind::tcp) {
    result = std::exchange(static_cast<Tcp&>(*object).error, 0);
  }
  std::memset(value, 0, *length);
  std::memcpy(value, &result, std::min<std::size_t>(*length, sizeof result));
  return 0;
}

int setsockopt(int fd, int level, int option, const void* value, socklen_t length) noexcept {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(setsockopt)(fd, level, option, value, length);
  if (object->kind != Object::Kind::tcp) return 0;
  Tcp& tcp = static_cast<Tcp&>(*object);
  int number = 0;
  std::memcpy(&number, value, std::min<std::size_t>(length, sizeof number));
  if (level == SOL_SOCKET && option == SO_KEEPALIVE) tcp.keepalive = number != 0;
  if (level == IPPROTO_TCP && option == TCP_SYNCNT) tcp.syn_retries = number;
  if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT) {
    tcp.user_timeout = static_cast<Time>(number) * kMillisecond;
  }
  return 0;
}

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(send)(fd, data, bytes, flags);
  const iovec part{const_cast<void*>(data), bytes};
  return send_to(*object, &part, 1, flags, nullptr);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(sendmsg)(fd, message, flags);
  return send_to(*object, message->msg_iov, message->msg_iovlen, flags, message);
}

ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(recv)(fd, data, bytes, flags);
  const iovec part{data, bytes};
  return receive_from(*object, &part, 1, flags, nullptr);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(recvmsg)(fd, message, flags);
  return receive_from(*object, message->msg_iov, message->msg_iovlen, flags, message);
}

ssize_t read(int fd, void* data, size_t bytes) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(read)(fd, data, bytes);
  if (object->kind != Object::Kind::counter) {
    const iovec part{data, bytes};
    return receive_from(*object, &part, 1, 0, nullptr);
  }
  begin_call();
  Counter& counter = static_cast<Counter&>(*object);
  while (counter.value == 0) {
    if (!counter.blocks) return failed<ssize_t>(EAGAIN);
    world().wait_until(is_readable, &counter, kNever);
  }
  std::memcpy(data, &counter.value, sizeof counter.value);
  counter.value = 0;
  return sizeof counter.value;
}

ssize_t write(int fd, const void* data, size_t bytes) {
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(write)(fd, data, bytes);
  if (object->kind != Object::Kind::counter) {
    const iovec part{const_cast<void*>(data), bytes};
    return send_to(*object, &part, 1, 0, nullptr);
  }
  Counter& counter = static_cast<Counter&>(*object);
  std::uint64_t more = 0;
  std::memcpy(&more, data, sizeof more);
  counter.value += more;
  counter.changed();
  begin_call();
  return sizeof more;
}

int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  Object* const object = simulated(fd);
  if (object == nullptr) return REAL(ioctl)(fd, request, argument);
  if (request == SIOCOUTQ && object->kind == Object::Kind::tcp) {
    const auto unsent = static_cast<int>(static_cast<Tcp&>(*object).under_way);
    std::memcpy(argument, &unsent, sizeof unsent);
    return 0;
  }
  return failed(EINVAL);
}

}  // extern "C"
