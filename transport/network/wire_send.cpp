// See wire.h: what a wire sends, and in which order.
#include <cstddef>

#include "transport/network/wire.h"

namespace tutti {
namespace {

constexpr std::size_t kRunsInRing = 4;  // the longest run has such a part of a ring

}  // namespace

Control& Wire::say(Control::Kind kind, std::uint32_t link) {
  Control& control = controls_.emplace_back();
  control.kind = kind;
  control.link = link;
  return control;
}

void Wire::push() {
  if (!started_ || closed_) return;
  bool has_room = true;
  do {
    has_room = push_controls();
    if (has_room) push_credits(false);
    const std::uint64_t before = endpoint_->appended();
    has_room = has_room && push_messages();
    if (has_room) {
      push_credits(endpoint_->appended() == before);
      has_room = push_controls();
    }
    if (closed_) return;
  } while (endpoint_->submit() && !has_room && !closed_);
  if (!direct_.empty()) end_direct_sends();
}

bool Wire::push_controls() {
  while (!controls_.empty() && !closed_) {
    MessageHeader header;
    header.kind = MessageHeader::control;
    header.bytes = sizeof(Control);
    header.sequence = sent_ + 1;
    if (!endpoint_->send(header, &controls_.front())) return false;
    ++sent_;
    controls_.pop_front();
  }
  return true;
}

bool Wire::push_messages() {
  // In turn, so that none waits for another's long messages.
  for (std::size_t l = 0, passed_over = 0; passed_over < sending_.size() && !closed_;) {
    if (l >= sending_.size()) l = 0;
    OutLink& link = *sending_[l];
    if (!link.ready()) {
      link.listed = false;
      sending_[l] = sending_.back();
      sending_.pop_back();
      continue;
    }
    ++l;
    switch (push_message(link)) {
      case Endpoint::Room::yes:
        passed_over = 0;
        break;
      case Endpoint::Room::not_for_long:
        ++passed_over;
        break;
      case Endpoint::Room::none:
        return false;
    }
  }
  return true;
}

Endpoint::Room Wire::push_message(OutLink& link) {
  if (link.peer.gone) {
    link.pass();
    return Endpoint::Room::yes;
  }
  // Until the peer has said where.
  if (needs_answer() && !link.peer.open) return Endpoint::Room::not_for_long;
  const OutLink::Message m = link.next();
  const std::uint32_t tag = m.header->tag, bytes = m.header->bytes;
  if (const auto room = endpoint_->room(bytes); room != Endpoint::Room::yes) return room;

  Endpoint::Put put;
  put.header.link = link.number();
  put.header.tag = tag;
  put.header.bytes = bytes;
  put.header.number = m.number;
  put.header.at = m.at;
  put.header.sequence = sent_ + 1;
  put.payload = m.payload;
  std::shared_ptr<const MemoryRegion> window;
  if (!m.zero_copy) {
    put.keeps = link.memory();
    put.region = link.memory()->region.get();
  } else if (link.source()) {
    put.region = link.source().get();
  } else if (abilities().registers) {
    window = endpoint_->window_region(m.payload, bytes);
    if (!window) {  // its window has ended, which it must not
      link.copy_unpassed(m.payload, m.payload + bytes);
      return push_message(link);
    }
    put.region = window.get();
  }
  std::uint64_t number = m.number, total = bytes;
  if (abilities().one_sided && bytes > kInlineBytes) {
    OutLink::Peer& peer = link.peer;
    put.to = peer.ring;
    put.to.address += link.data_offset(m.at);
    const PostedPlace& posted = peer.posted[m.number % peer.posted.size()];
    if (posted.number == m.number && posted.tag == tag && posted.bytes == bytes) {
      put.header.kind = MessageHeader::posted;
      put.to = posted.place;
    }
    if (const RemotePlace place = exposed_place(m); place.address != 0) {
      put.header.kind = MessageHeader::placed;
      put.to = place;
    } else if (peer.tag == tag && peer.bytes == bytes) {
      put.notice =
          link.number() | kSameAsLast | (put.header.kind == MessageHeader::posted ? kPosted : 0U);
    }
    peer.tag = tag;
    peer.bytes = bytes;
  } else if (bytes >= abilities().runs_from) {
    extend(put.header, link, m.payload);
    number += put.header.more;
    total = put.header.total_bytes();
  }
  if (put.notice == 0) {
    if (InLink* const owing = next_owing()) {
      put.header.credit = owing->tell();
      owing->listed = false;
      owing_.pop_back();
    }
  }
  endpoint_->put(put);
  ++sent_;
  for (std::uint32_t i = 0; i <= put.header.more; ++i) link.pass();
  if (m.zero_copy) {
    direct_.push_back({&link, number, m.payload, total, endpoint_->appended(), link.source()});
  }
  return Endpoint::Room::yes;
}

RemotePlace Wire::exposed_place(const OutLink::Message& m) const {
  const auto found = m.key != 0 ? peer_exposes_.find(m.key) : peer_exposes_.end();
  if (found == peer_exposes_.end()) return {};
  const ExposedPlace& there = found->second.there;
  if (m.offset > there.bytes || m.header->bytes > there.bytes - m.offset) return {};
  return {there.place.address + m.offset, there.place.key, 0};
}

void Wire::extend(MessageHeader& h, const OutLink& link, const std::byte* payload) const {
  const std::size_t most = link.shape().data_bytes() / kRunsInRing;
  for (OutLink::Ahead ahead = link.ahead();;) {
    ahead.pass();
    if (!ahead.ready()) return;
    const OutLink::Message m = ahead.message();
    const std::size_t before = (std::size_t{h.more} + 1) * h.bytes;
    const std::uint32_t bytes = m.header->bytes;
    // At both ends.
    const bool behind =
        bytes > kInlineBytes && m.at == h.at + before && m.payload == payload + before;
    if (!behind || bytes > h.bytes || is_long_message(bytes) != is_long_message(h.bytes) ||
        m.header->tag != h.tag || before + bytes > most) {
      return;
    }
    ++h.more;
    h.last_bytes = bytes;
    if (bytes < h.bytes) return;
  }
}

InLink* Wire::next_owing() {
  while (!owing_.empty()) {
    InLink* const link = owing_.back();
    if (link->owes() && link->number() != 0) return link;
    link->listed = false;
    owing_.pop_back();
  }
  return nullptr;
}

void Wire::push_credits(bool idle) {
  // It goes when much is owed, and else when there is nothing better to do and the sender may be
  // waiting for it.
  Control* control = nullptr;
  std::size_t count = 0;
  for (std::size_t l = owing_.size(); l-- > 0;) {
    InLink& link = *owing_[l];
    const bool owes = link.owes() && link.number() != 0;
    if (owes && !link.owes_much() && !(idle && link.sender_may_wait())) continue;
    if (owes) {
      if (control == nullptr || count == Control::kCredits) {
        control = &say(Control::credits, 0);
        control->credit = {};
        count = 0;
      }
      control->credit[count++] = link.tell();
    }
    link.listed = false;
    owing_[l] = owing_.back();
    owing_.pop_back();
  }
  // The rest goes along with messages.
  if (idle) owes_more_ = false;
  if (control != nullptr && !idle) push_controls();
}

void Wire::end_direct_sends() {
  const std::uint64_t completed = endpoint_->completed();
  while (!direct_.empty() && direct_.front().put <= completed) {
    const DirectSend& sent = direct_.front();
    if (sent.link != nullptr) sent.link->sent(sent.number);
    direct_.pop_front();
    ++events_;
  }
}

bool Wire::has_unsent() {
  return !sending_.empty() || !controls_.empty() || !direct_.empty() || !endpoint_->is_flushed();
}

}  // namespace tutti
