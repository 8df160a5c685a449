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
  bool late = false;
  while (!attempt.ended() && !late) {
    late = !wait_for(attempt.descriptor(), attempt.events(), deadline);
    attempt.step();
  }
  if (attempt.state() == Introduction::State::done) return "";
  const bool reached = attempt.ended() && attempt.reason() != Introduction::Reason::unreachable;
  return fmt::format("the rendezvous that it names, at {}, is not {}{}", to_string(ticket.address),
                     reached ? "there: another server has its port" : "reached",
                     protocol::loopback_remark(ticket.address));
}

}  // namespace tutti
