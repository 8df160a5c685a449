// The server of a rendezvous: one thread, one epoll loop, any number of ranks at once.
//
// Whoever has not proved that it knows the id's secret can take one of 64 places for at most 5 s
// and is read at most 64 bytes from; nothing is allocated for it, and it is closed without an
// answer when its proof is wrong. When all places are taken, the one that has been there longest
// makes room.
#pragma once

#include <cstdint>

#include "comm/unique_id.h"

namespace tutti {

enum class Rounds : std::uint8_t {
  one,   // the ranks meet once; the server ends then, or when nobody came in time
  many,  // as often as they like, until this process ends (`tutti run`)
};

/// Starts a server at the address of the setting TUTTI_ADDRESS.
UniqueId serve_rendezvous(Rounds rounds);

}  // namespace tutti
