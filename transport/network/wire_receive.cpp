// See wire.h: what comes, and when it counts.
#include <algorithm>
#include <cstring>

#include "transport/network/wire.h"

namespace tutti {
namespace {

// The most that an honest peer can have (core/settings.cpp says the same of its settings).
constexpr std::uint64_t kMostSlots = 4096;
constexpr std::uint64_t kMostSlotBytes = std::uint64_t{1} << 30;

constexpr std::size_t kMostEarly = 65536;  // more than a network can have under way

}  // namespace

Wire::Found Wire::find_in(std::uint32_t number) const {
  const auto found = ins_by_number_.find(number);
  return found == ins_by_number_.end() ? Found{} : Found{true, found->second.link};
}

OutLink* Wire::find_out(std::uint32_t number) const {
  const auto found = outs_by_number_.find(number);
  return found == outs_by_number_.end() ? nullptr : found->second;
}

// --- Messages ------------------------------------------------------------------------------------

Wire::Target Wire::on_header(const MessageHeader& h) {
  const Found found = find_in(h.link);
  if (!found.known || found.link == nullptr) return {found.known, nullptr, nullptr, nullptr};
  InLink& link = *found.link;
  std::byte* const slot = link.place(h.number, h.bytes, h.at);
  if (slot == nullptr) return {};
  link.begun = std::max(link.begun, h.number + h.more);
  if (h.more > 0) {
    // If the first and the last have their places in one piece of the ring, so have all between.
    const MessageHeader last = h.in_run(h.more);
    if (h.bytes <= kInlineBytes || last.bytes <= kInlineBytes || h.more >= link.shape().slots ||
        link.place(last.number, last.bytes, last.at) != slot + (last.at - h.at)) {
      return {};
    }
  }
  std::byte* const posted = posted_place(link, h);
  if (posted == nullptr) return {true, slot, link.memory(), link.memory()->region.get()};
  ++link.receiving_in_place;
  return {true, posted, nullptr, nullptr};
}

std::byte* Wire::posted_place(InLink& link, const MessageHeader& h) {
  std::byte* const first = link.take_posted(h.number, h.tag, h.bytes);
  bool all = first != nullptr;
  for (std::uint32_t i = 1; i <= h.more; ++i) {
    const MessageHeader m = h.in_run(i);
    const std::byte* const to = link.take_posted(m.number, m.tag, m.bytes);
    all = all && to == first + (m.at - h.at);
  }
  if (all) return first;
  for (std::uint32_t i = 0; i <= h.more; ++i) link.comes_into_slot(h.number + i);
  return nullptr;
}

bool Wire::is_in_place(InLink& link, const MessageHeader& h) {
  if (h.number != link.published() + 1 || link.place(h.number, h.bytes, h.at) == nullptr) {
    return false;
  }
  if (h.kind == MessageHeader::placed) return link.comes_into_exposed(h.number);
  if (h.kind == MessageHeader::posted) return link.take_posted(h.number, h.tag, h.bytes) != nullptr;
  link.comes_into_slot(h.number);
  return true;
}

Endpoint::Heard Wire::on_message(const MessageHeader& h) {
  const Found found = find_in(h.link);
  if (!found.known || !take_credit(h.credit)) return Heard::wrong;
  if (found.link != nullptr) {
    InLink& link = *found.link;
    if (!abilities().one_sided) {
      if (link.is_in_place(h.number) && link.receiving_in_place > 0) --link.receiving_in_place;
    } else if (h.bytes > kInlineBytes && !is_in_place(link, h)) {
      return Heard::wrong;
    }
  }
  return has_come(h, found.link);
}

Endpoint::Heard Wire::on_notice(std::uint32_t notice) {
  const Found found = find_in(notice & kLinkNumber);
  if (!found.known || (notice & kSameAsLast) == 0) return Heard::wrong;
  if (found.link == nullptr) return Heard::fine;
  MessageHeader h = found.link->same_as_last();
  if ((notice & kPosted) != 0) h.kind = MessageHeader::posted;
  if (h.bytes <= kInlineBytes || !is_in_place(*found.link, h)) return Heard::wrong;
  return has_come(h, found.link);
}

Endpoint::Heard Wire::has_come(const MessageHeader& h, InLink* link) {
  ++events_;
  owes_more_ = true;  // what was freed before may be what the sender lacks by now
  for (std::uint32_t i = 0; link != nullptr && i <= h.more; ++i) {
    const MessageHeader m = h.in_run(i);
    if (!link->arrived(m.number, m.tag, m.bytes, m.at)) return Heard::wrong;
  }
  note_sequence(h.sequence);
  return Heard::fine;
}

void Wire::note_sequence(std::uint32_t sequence) {
  if (abilities().one_sided) return;
  if (sequence != came_ + 1) {
    came_early_.insert(sequence);
    if (came_early_.size() > kMostEarly) close_with(kNonsense);
    return;
  }
  do {
    ++came_;
  } while (!came_early_.empty() && came_early_.erase(came_ + 1) > 0);
  if (!ends_.empty()) settle_ends();
}

bool Wire::take_credit(const Credit& credit) {
  if (credit.link == 0) return true;
  OutLink* const link = find_out(credit.link);
  // Null: closed here. A later one may have come before it.
  return link == nullptr || link->knows(credit.consumed, credit.freed) ||
         link->credit(credit.consumed, credit.freed);
}

// --- Control messages ----------------------------------------------------------------------------

Endpoint::Heard Wire::on_control(const MessageHeader& header, const std::byte* bytes) {
  Control c;
  if (header.bytes != sizeof c) return Heard::wrong;
  std::memcpy(&c, bytes, sizeof c);
  ++events_;
  bool fine = true;
  OutLink* const out = find_out(c.link);  // null: closed here
  switch (c.kind) {
    case Control::open:
      fine = opened(c.link, c);
      break;
    case Control::opened:
    case Control::gone:
      fine = out == nullptr || take_opened(c);
      break;
    case Control::credits:
      fine = std::ranges::all_of(c.credit, [&](const Credit& k) { return take_credit(k); });
      break;
    case Control::post:
      if (out == nullptr) break;
      for (const PostedPlace& p : c.posts) {
        if (p.number != 0) out->peer.posted[p.number % out->peer.posted.size()] = p;
      }
      break;
    case Control::withdraw:
      if (out != nullptr) out->peer.posted = {};
      say(Control::withdrawn, c.link);
      break;
    case Control::withdrawn:
      if (InLink* const in = find_in(c.link).link) {
        in->withdraws = false;
        in->told_posted_up_to = 0;
      }
      break;
    case Control::expose:
      fine = c.exposed.key != 0 && c.exposed.bytes <= UINT64_MAX - c.exposed.place.address;
      if (fine && !left_.contains(c.communicator))
        peer_exposes_[c.exposed.key] = {c.exposed, c.communicator};
      break;
    case Control::hide:
      // Earlier writes go before the answer. The rest goes into slots.
      peer_exposes_.erase(c.exposed.key);
      say(Control::hidden, 0).exposed = {c.exposed.key, 0, {}};
      break;
    case Control::hidden:
      fine = exposed_.contains(c.exposed.key) && exposed_[c.exposed.key].hides;
      exposed_.erase(c.exposed.key);
      break;
    case Control::left:
    case Control::bye:
      ends_.push_back({c.communicator, header.sequence, c.kind == Control::bye});
      settle_ends();
      break;
    case Control::all_came:
      acknowledged_ = true;
      if (peer_bye_) close_with("");
      break;
    default:
      fine = false;
  }
  if (!fine) return Heard::wrong;
  note_sequence(header.sequence);
  return c.kind == Control::bye ? Heard::last : Heard::fine;
}

bool Wire::opened(std::uint32_t number, const Control& c) {
  const Control::Opening& o = c.opening;
  if (number == 0 || (number & ~kLinkNumber) != 0 || ins_by_number_.contains(number) ||
      o.slots < 2 || o.slots > kMostSlots || o.slot_bytes < kCacheLine ||
      o.slot_bytes > kMostSlotBytes || o.slot_bytes % kCacheLine != 0 || o.most_full > o.slots) {
    return false;
  }
  if (left_.contains(o.name.communicator)) {
    ins_by_number_[number] = {nullptr, o.name.communicator};
    if (needs_answer()) say(Control::gone, number);
    return true;
  }
  const ConnectionShape shape{o.slots, o.slot_bytes, o.most_full};
  // The peer may be ahead of this rank, which asks for it later.
  auto known = ins_.find(o.name);
  if (known == ins_.end()) {
    known = ins_.emplace(o.name, std::make_unique<InLink>(*this, shape)).first;
  }
  InLink& link = *known->second;
  if (link.number() != 0 || link.shape() != shape) return false;
  ins_by_number_[number] = {&link, o.name.communicator};
  link.opened_as(number);
  if (needs_answer()) {
    Control& answer = say(Control::opened, number);
    answer.place = {};
    if (const MemoryRegion* const region = link.memory()->region.get()) {
      answer.place.address = reinterpret_cast<std::uintptr_t>(link.memory()->data());
      answer.place.key = region->remote_key();
    }
  }
  return true;
}

bool Wire::take_opened(const Control& c) {
  OutLink::Peer& peer = find_out(c.link)->peer;
  if (peer.open || peer.gone) return false;
  peer.ring = c.kind == Control::opened ? c.place : RemotePlace{};
  (c.kind == Control::opened ? peer.open : peer.gone) = true;
  return true;
}

// --- The end -------------------------------------------------------------------------------------

void Wire::settle_ends() {
  if (!started_) return;
  bool bye = false;
  std::erase_if(ends_, [&](const End& e) {
    const auto missing = static_cast<std::int32_t>(e.sequence - 1 - came_);
    const bool all_came = abilities().one_sided || missing <= 0;
    // A rank may still wait for its own messages to leave. It must not hear first that the peer,
    // which has them, has left.
    if (!all_came || (!e.bye && !endpoint_->is_flushed())) return false;
    if (e.bye) {
      bye = true;
    } else {
      peer_has_left(e.communicator);
    }
    return true;
  });
  if (!bye) return;
  peer_bye_ = true;
  if (abilities().confirms) return close_with("");
  say(Control::all_came, 0);
  push_controls();
  endpoint_->submit();
  if (!said_bye_ || acknowledged_) close_with("");
}

void Wire::peer_has_left(std::uint64_t communicator) {
  heard_left_.push_back(communicator);
  kept_.erase(communicator);
  if (left_.erase(communicator) == 0) {
    peer_left_.insert(communicator);
    return;
  }
  std::erase_if(ins_by_number_,
                [&](const auto& n) { return n.second.communicator == communicator; });
}

void Wire::on_room() {
  if (closed_) return;
  push();
  if (settle()) owner_.on_moved();
}

void Wire::on_closed(const std::string& why) {
  const bool over = said_bye_ || peer_bye_;
  close_with(over && !abilities().confirms ? "" : why);
}

void Wire::close_with(const std::string& why, bool refused_here) {
  if (closed_) return;
  closed_ = true;
  owner_.on_closed(why, refused_here);
}

}  // namespace tutti
