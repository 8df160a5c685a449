// The 128 bytes that bring the ranks of a communicator together: where rank 0's rendezvous listens,
// and the secret that proves membership. A process that knows the bytes may join, so carry them
// privately.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

struct UniqueId {
  std::array<std::byte, 128> bytes{};
  friend bool operator==(const UniqueId&, const UniqueId&) = default;
};

/// Where and for how long the ranks can meet. The defaults come from the settings TUTTI_ADDRESS and
/// TUTTI_RENDEZVOUS_TIMEOUT.
struct MeetingPlace {
  MeetingPlace();  // reads the environment
  /// A place for ranks of several hosts: the address of this host by which others reach it, unless
  /// TUTTI_ADDRESS is set. That is the one that leads to the job's launcher (TUTTI_UNIQUE_ID) or to
  /// MASTER_ADDR, if they are known, or else by the default route. Throws Error where this host has
  /// no address, or TUTTI_SOCKET_IFNAME names no interface that has one.
  static MeetingPlace among_hosts();

  std::string address;               // of this host, IPv4 or IPv6; "": for ranks of this host alone
  std::chrono::nanoseconds timeout;  // for the first rank to appear
};

/// A fresh id. Starts its rendezvous server in this process (a thread that ends when all ranks have
/// met, or when no rank came in time). So the process that makes the id must live until then.
UniqueId make_unique_id(const MeetingPlace& place = {});

/// 256 hexadecimal digits, and back; throws Error(invalid_argument) for anything else.
std::string to_string(const UniqueId& id);
UniqueId unique_id_from_string(std::string_view text);

}  // namespace tutti
