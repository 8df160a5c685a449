// Rendezvous: every rank hands in a card and gets everybody's. The server runs in the process that
// made the UniqueId; it accepts in parallel, authenticates each peer with the secret in the id
// (mutual, HMAC from libsodium, compared in constant time), reads at most 64 bytes before that, and
// gives up at its deadline.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bootstrap/unique_id.h"

namespace tutti {

/// What a rank tells the others about itself. Opaque to the rendezvous; fixed size on the wire.
struct Card {
  std::array<std::byte, 640> bytes{};
};

struct Roster {
  std::vector<Card> cards;                     // by rank
  std::array<std::byte, 32> session_secret{};  // fresh, known to these ranks alone
};

/// Joins as `rank` of `size`. Throws mismatch where ranks disagree about the size or two claim one
/// rank (on every rank, naming both), timed_out naming the ranks that are missing, system when the
/// server cannot be reached.
Roster rendezvous(const UniqueId& id, int rank, int size, const Card& mine,
                  std::chrono::nanoseconds timeout);

}  // namespace tutti
