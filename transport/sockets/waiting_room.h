// The side of a handshake that accepts (transport/sockets/handshake.h), without waiting:
// unauthenticated peers hold a place here until they have proved that they know the listener's
// secret. A place is held for at most 5 s, and at most 64 bytes are read from it. Nothing is
// allocated for an unauthenticated peer, and a wrong proof is not answered. When all places are
// taken, the one held longest makes room.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// Adds `socket` to `epoll` (EPOLL_CTL_ADD), or changes it there; its events carry `number`.
void watch(const FileDescriptor& epoll, int operation, const FileDescriptor& socket,
           std::uint64_t number, std::uint32_t events);

class WaitingRoom {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A silent peer holds a place for 20 ms when others want it (waiting_room.cpp), so this many
  // let 12,800 a second through. With 64, a flood of 50,000 made ranks wait for a second.
  static constexpr std::size_t kPlaces = 256;

  struct Admitted {
    FileDescriptor socket;
    protocol::Session session;
  };

  /// `name` begins its log lines.
  WaitingRoom(std::string_view name, const protocol::Bytes32& secret)
      : name_(name), secret_(secret) {}

  /// Accepts connections from `listener`; `epoll` watches each under the number of its place.
  /// False: there is no room before next_wake().
  bool accept(const FileDescriptor& listener, const FileDescriptor& epoll, Time now);
  /// Place `index` can be read from. A peer that has proved the secret leaves its place.
  std::optional<Admitted> read(std::size_t index, Time now);
  void expire(Time now);
  void clear();
  /// Why connections could not be accepted for a while; "": that has not happened.
  const std::string& trouble() const { return trouble_; }
  /// Whether one waits that could not be accepted last time, for lack of descriptors or memory.
  bool is_in_trouble() const { return in_trouble_; }

  /// When accept() or expire() has something to do by itself.
  Time next_wake(Time now) const;

 private:
  struct Place {
    FileDescriptor socket;
    Time since;
    protocol::Bytes32 nonce{};
    protocol::Proof proof;
    std::size_t received = 0;
  };

  Place* free_place(Time now);
  void drop(Place& place, std::string_view why, Time now);

  const std::string name_;
  const protocol::Bytes32 secret_;
  std::vector<Place> places_ = std::vector<Place>(kPlaces);
  Time accept_again_{};
  Time last_log_{};
  std::string trouble_;
  bool in_trouble_ = false;
  std::uint64_t dropped_ = 0;
};

}  // namespace tutti
