// The server of a rendezvous: one thread, one epoll loop, any number of ranks at once. Peers prove
// themselves in the waiting room (waiting_room.h); the round (rendezvous_round.h) judges their
// messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bootstrap/appointments.h"
#include "bootstrap/unique_id.h"

namespace tutti {

enum class Rounds : std::uint8_t {
  one,   // the ranks meet once; the server ends then, or when no rank came in time
  many,  // as often as they like, until this process ends (`tutti run`)
};

/// Starts a server at `place`.
UniqueId serve_rendezvous(Rounds rounds, const MeetingPlace& place = {});
/// Starts one at `address` where ranks meet by handles, until `appointments` is closed.
UniqueId serve_appointments(const std::shared_ptr<Appointments>& appointments,
                            const std::string& address);

}  // namespace tutti
