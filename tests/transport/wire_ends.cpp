#include "tests/transport/wire_ends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <utility>

namespace tutti::test {
namespace {

std::array<Stream, 2> tcp_pair() {
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  FileDescriptor first(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.fd(), any, length) != 0 || ::listen(listener.fd(), 1) != 0 ||
      ::getsockname(listener.fd(), any, &length) != 0 || ::connect(first.fd(), any, length) != 0) {
    throw_system_error("a TCP connection over loopback");
  }
  FileDescriptor second(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  return {Stream(std::move(first), Protection::none, {}, true),
          Stream(std::move(second), Protection::none, {}, false)};
}

}  // namespace

TcpStreams::TcpStreams(bool two) {
  auto one = tcp_pair();
  for (int side = 0; side < 2; ++side) first[side] = std::move(one[side]);
  if (!two) return;
  auto other = tcp_pair();
  for (int side = 0; side < 2; ++side) second[side] = std::move(other[side]);
}

void connect(Wire& a, Wire& b, bool two_streams, int stripes) {
  if (a.abilities().streams > 0) {
    TcpStreams streams(two_streams);
    a.attach(std::move(streams.first[0]), std::move(streams.second[0]), true);
    b.attach(std::move(streams.first[1]), std::move(streams.second[1]), false);
    for (int s = 0; s < stripes; ++s) {
      TcpStreams stripe(false);
      a.add_stripe(std::move(stripe.first[0]));
      b.add_stripe(std::move(stripe.first[1]));
    }
    return;
  }
  a.connect(b.address());
  b.connect(a.address());
  a.start();
  b.start();
}

}  // namespace tutti::test
