// See id_check.h.
#include "bootstrap/id_check.h"

#include <fmt/format.h>

#include "bootstrap/rendezvous_protocol.h"
#include "transport/sockets/introduction.h"
#include "transport/sockets/socket.h"

namespace tutti {

std::string why_not_there(const UniqueId& id, Deadline deadline) {
  const protocol::Ticket ticket = protocol::decode(id);
  Introduction attempt(ticket.address, ticket.secret);
  for (bool late = false; !attempt.ended() && !late; attempt.step()) {
    late = !wait_for(attempt.descriptor(), attempt.events(), deadline);
  }
  if (attempt.state() == Introduction::State::done) return "";
  const bool reached = attempt.ended() && attempt.reason() != Introduction::Reason::unreachable;
  const bool other = reached && attempt.reason() == Introduction::Reason::other_version;
  return fmt::format("the rendezvous that it names, at {}, is {}{}", to_string(ticket.address),
                     other     ? "of another version of Tutti: all ranks need the same one"
                     : reached ? "not there: another server has its port"
                               : "not reached",
                     protocol::loopback_remark(ticket.address));
}

}  // namespace tutti
