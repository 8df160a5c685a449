// See named_host.h.
#include "transport/sockets/named_host.h"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>

#include "core/error.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kForOneAddress = 5s;  // of several; one may lead nowhere

}  // namespace

std::vector<SocketAddress> addresses_of(const std::string& host, std::uint16_t port) {
  if (const auto literal = parse_address(host, port)) return {*literal};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    throw Error(ErrorCode::system, fmt::format("this host does not know the name {}: {}", host,
                                               ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    if (i->ai_family != AF_INET && i->ai_family != AF_INET6) continue;
    SocketAddress address;
    address.length = i->ai_addrlen;
    std::memcpy(&address.storage, i->ai_addr, i->ai_addrlen);
    addresses.push_back(with_port(address, port));
  }
  return addresses;
}

FileDescriptor connect_to_host(const std::string& host, std::uint16_t port, Deadline deadline) {
  std::string why = "it has no address";
  FileDescriptor socket;
  const auto is_connected = [&] {
    try {
      for (const SocketAddress& address : addresses_of(host, port)) {
        socket = connect_to(address, std::min<Deadline>(deadline, Clock::now() + kForOneAddress));
        if (socket) return true;
        why = fmt::format("{}: {}", to_string(address), std::generic_category().message(errno));
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::system) throw;
      why = error.what();
    }
    return false;
  };
  if (wait_until(deadline, is_connected)) return socket;
  throw Error(ErrorCode::timed_out,
              fmt::format("{}:{} was not reached in time ({})", host, port, why));
}

}  // namespace tutti
