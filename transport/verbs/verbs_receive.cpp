// A wire over RDMA: what comes.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/error.h"
#include "transport/verbs/verbs_ring.h"

namespace tutti {

void VerbsWire::take() {
  try {
    for (const VerbsEvent& event : channel_.poll()) {
      ++came_;
      if (!understand(event)) return close_with("it has sent what cannot be");
      if (closed_) return;
    }
    if (!lent_.empty()) end_loans();
    if (!kept_.empty()) free_kept();
  } catch (const Error& error) {
    close_with(error.what());
  }
}

bool VerbsWire::understand(const VerbsEvent& event) {
  if (!event.message.empty()) {
    Said said;
    if (event.message.size() != sizeof said) return false;
    std::memcpy(&said, event.message.data(), sizeof said);
    return understand(said);
  }
  const std::uint32_t number = event.notice & kLinkNumber;
  if ((event.notice & kCredit) != 0) {
    OutLink* const link = find_out(number);
    return link == nullptr || take_credit(*link);  // null: closed here
  }
  const Found found = find_in(number);
  return found.known &&
         (found.link == nullptr || take_message(*found.link, (event.notice & kAsBefore) != 0,
                                                (event.notice & kLanded) != 0));
}

bool VerbsWire::understand(const Said& said) {
  switch (said.kind) {
    case Said::open: {
      if ((said.link & ~kLinkNumber) != 0 || !opened(said.link, said.opening)) return false;
      Said answer;
      answer.link = said.link;
      InLink* const link = find_in(said.link).link;
      if (link == nullptr) {
        answer.kind = Said::gone;
      } else {
        Registration& ring = Registration::of(link->memory());
        ring.peer_address = said.address;
        ring.peer_key = said.key;
        ring.group = said.opening.name.group;
        ring.open = true;
        answer.kind = Said::place;
        answer.address = reinterpret_cast<std::uintptr_t>(link->memory()->data());
        answer.key = ring.region.remote_key();
      }
      said_.push_back(answer);
      return true;
    }
    case Said::place:
    case Said::gone: {
      OutLink* const link = find_out(said.link);
      if (link == nullptr) return true;  // closed here
      Registration& ring = Registration::of(link->memory());
      if (ring.open || ring.gone) return false;
      ring.peer_address = said.address;
      ring.peer_key = said.key;
      (said.kind == Said::place ? ring.open : ring.gone) = true;
      return true;
    }
    case Said::expects: {
      OutLink* const link = find_out(said.link);
      if (link == nullptr) return true;
      Registration& ring = Registration::of(link->memory());
      for (const Landing& landing : said.landings) {
        if (landing.number != 0) ring.landings[landing.number % ring.landings.size()] = landing;
      }
      return true;
    }
    case Said::forget: {
      if (OutLink* const link = find_out(said.link)) {
        Registration::of(link->memory()).landings = {};
      }
      Said answer;
      answer.kind = Said::forgotten;
      answer.link = said.link;
      said_.push_back(answer);
      return true;
    }
    case Said::forgotten: {
      InLink* const link = find_in(said.link).link;
      if (link == nullptr) return true;
      Registration& ring = Registration::of(link->memory());
      ring.takes_back = false;
      ring.told_up_to = 0;
      return true;
    }
    case Said::left:
      groups_left_.push_back(said.opening.name.group);
      peer_left_.push_back(said.opening.name.group);
      return true;
    case Said::bye:
      close_with("");
      return true;
    default:
      return false;
  }
}

bool VerbsWire::take_message(InLink& link, bool as_before, bool landed) {
  Registration& ring = Registration::of(link.memory());
  const detail::ConnectionView view(link.memory()->data(), link.shape());
  // Of a link, the notices come in the messages' order.
  const std::uint64_t number = ++ring.came;
  if (!as_before) {
    const SlotHeader& header = view.headers[(number - 1) % view.shape.slots];
    ring.tag = header.tag;
    ring.bytes = header.bytes;
  }
  if (ring.bytes > view.shape.slot_bytes) return false;
  const std::size_t at = ring.bytes > kInlineBytes ? ring.cursor.of(ring.bytes, view) : 0;
  ring.cursor.pass(ring.bytes, view);
  if (landed) {
    if (link.land(number, ring.tag, ring.bytes) == nullptr) return false;
  } else {
    link.came_into_slot(number);
  }
  return link.place(number, ring.bytes, at) != nullptr &&
         link.arrived(number, ring.tag, ring.bytes, at);
}

bool VerbsWire::take_credit(OutLink& link) {
  // A later one may be there by now; each word by itself is always one that was sent.
  const CreditLine& line = passing_credit(*link.memory());
  return link.credit(line.consumed.load(std::memory_order_relaxed),
                     line.freed.load(std::memory_order_relaxed));
}

}  // namespace tutti
