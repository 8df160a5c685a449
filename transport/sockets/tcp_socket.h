// TCP sockets between hosts: which address of this host the others reach, and how sockets behave.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

/// The address, with port 0, at which other hosts reach this one: that of the interface that
/// `interfaces` names (in the form of TUTTI_SOCKET_IFNAME), or else, where it is empty, of the one
/// by which `towards` is reached. Throws Error(invalid_argument) where it names none that is up,
/// Error(system) where there is no way to `towards`.
SocketAddress own_address(const SocketAddress& towards, const std::string& interfaces);

/// The same where nobody is known yet: of the interface that TUTTI_SOCKET_IFNAME names, or by the
/// default route, or else of any interface but the loopback one; 127.0.0.1 where there is none.
SocketAddress address_for_others();

/// The name of the interface that has `address`; "" where none has.
std::string interface_of(const SocketAddress& address);

/// An address of this host.
struct NetworkInterface {
  std::string name;
  SocketAddress address;
  std::uint32_t megabits = 0;  // its speed; 0: not known
  std::uint32_t prefix = 0;    // bits of the address that its network has in common
  bool bridge = false;         // it joins others: of containers, say
  bool loopback = false;
  bool carrier = true;  // something is connected to it
};
/// For people: ", 10 Gbit/s", "".
std::string speed_text(const NetworkInterface& interface);
/// Whether `list`, in the form of TUTTI_SOCKET_IFNAME, names `interface`.
bool names_interface(std::string_view list, std::string_view interface);
/// Of interfaces that are up. Throws Error(system).
std::vector<NetworkInterface> network_interfaces();
/// Its addresses, for people: "10.0.0.1 (eth0), 127.0.0.1 (lo)".
std::string own_addresses_text();

/// What tune_socket() comes to here.
std::string congestion_control_in_use();
/// Throws Error(invalid_argument), with what there is, where this host's kernel cannot do, or does
/// not allow, what TUTTI_TCP_CONGESTION asks for.
void check_congestion_control();

/// No delays; the congestion control that TUTTI_TCP_CONGESTION asks for. Best effort.
void tune_socket(const FileDescriptor& socket);
/// How long nothing has to come from another host for its ranks to be lost: longer than
/// TUTTI_PEER_TIMEOUT, by as much as TCP may take to ask once more, so that an outage of that
/// length is survived. 0: for ever.
std::chrono::milliseconds silence_limit();
/// From now on the connection ends when the other host has not answered for silence_limit(). Not
/// for a socket with a reader that may be slow: a full window counts as no answer.
void watch_over(int fd);
void stop_watching_over(int fd);
/// The same, but an idle connection goes on to ask: for one that takes a way of its own, whose end
/// no other connection notices.
void watch_over_idle(int fd);

/// Acknowledges now what has come: a peer that leaves waits for that alone, and the kernel, with
/// nothing to send it along with, waits 40 ms.
void acknowledge(int fd);
/// Whether the other end's system has all that was sent, or never will have it.
bool has_delivered(int fd);
/// Whether nothing more comes from the other end.
bool has_hung_up(int fd);
/// The same, and all that came has been read.
bool has_ended(int fd);

/// Begins to connect from `from` (its port is ignored); an empty socket, with errno, where that
/// fails at once. Writable when it is decided. Watched over.
FileDescriptor begin_to_connect(const SocketAddress& address, const SocketAddress& from);

}  // namespace tutti
