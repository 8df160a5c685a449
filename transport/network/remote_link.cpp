#include "transport/network/remote_link.h"

#include <cstring>

#include "transport/network/wire.h"

namespace tutti {

OutLink::OutLink(Wire& wire, std::uint32_t number, ConnectionShape shape, Doorbell& owner)
    : wire_(wire),
      can_send_from_(wire.is_direct()),
      number_(number),
      owner_(owner),
      memory_(wire.make_ring(shape.bytes())),
      view_(memory_->data(), shape, Places::fixed),
      sender_(memory_->data(), shape, Places::fixed),
      elsewhere_(shape.slots) {}

OutLink::Message OutLink::Ahead::message() const {
  const detail::ConnectionView& view = link_->view_;
  SlotHeader& header = view.headers[index_];
  if (header.bytes <= kInlineBytes) return {passed_ + 1, &header, header.payload, 0, false, 0, 0};
  const std::size_t at = cursor_.of(header.bytes, view);
  const auto& [from, key, offset] = link_->elsewhere_[index_];
  return {passed_ + 1, &header, from != nullptr ? from : view.data + at, at, from != nullptr,
          key,         offset};
}

void OutLink::Ahead::pass() {
  cursor_.pass(link_->view_.headers[index_].bytes, link_->view_);
  ++passed_;
  if (++index_ == link_->view_.shape.slots) index_ = 0;
}

void OutLink::pass() {
  elsewhere_[index_] = {};
  Ahead next(*this);
  next.pass();
  index_ = next.index_;
  passed_ = next.passed_;
  cursor_ = next.cursor_;
}

bool OutLink::credit(std::uint64_t consumed, std::uint64_t freed) {
  CreditLine& line = *view_.credit;
  if (consumed > passed_ || consumed < line.consumed.load(std::memory_order_relaxed) ||
      freed > cursor_.passed(view_) || freed < line.freed.load(std::memory_order_relaxed)) {
    return false;
  }
  // release, both: the wire's loads of the payload come before the sender's next stores into it.
  line.freed.store(freed, std::memory_order_release);
  line.consumed.store(consumed, std::memory_order_release);
  wire_.note_moved();
  ring(owner_);
  return true;
}

bool OutLink::knows(std::uint64_t consumed, std::uint64_t freed) const {
  const CreditLine& line = *view_.credit;
  return consumed <= line.consumed.load(std::memory_order_relaxed) &&
         freed <= line.freed.load(std::memory_order_relaxed);
}

void OutLink::copy_unpassed(const std::byte* begin, const std::byte* end) {
  for (Ahead a = ahead(); a.ready(); a.pass()) {
    const Message m = a.message();
    if (!m.zero_copy || m.payload >= end || begin >= m.payload + m.header->bytes) continue;
    std::memcpy(view_.data + m.at, m.payload, m.header->bytes);
    elsewhere_[a.index_].from = nullptr;
  }
}

bool OutLink::can_send_from(const std::byte* memory, std::size_t bytes) const {
  return can_send_from_ && wire_.reaches(memory, bytes);
}

void OutLink::take_back(const std::byte* begin, const std::byte* end) {
  wire_.take_back(*this, begin, end);
}
void OutLink::rung() { wire_.send(*this); }
void OutLink::poll() { wire_.poll(); }
bool OutLink::is_flushed() { return wire_.is_flushed(); }

InLink::InLink(Wire& wire, ConnectionShape shape)
    : wire_(wire),
      can_post_(wire.is_direct()),
      memory_(wire.make_ring(shape.bytes())),
      view_(memory_->data(), shape, Places::fixed),
      receiver_(memory_->data(), shape, Places::fixed),
      inlet_(memory_->data(), shape, Places::fixed),
      early_(shape.slots),
      in_place_(shape.slots) {}

bool InLink::can_post(const std::byte* memory, std::size_t bytes) const {
  return can_post_ && wire_.reaches(memory, bytes);
}

std::byte* InLink::place(std::uint64_t number, std::uint32_t bytes, std::uint64_t at) {
  const std::size_t slots = view_.shape.slots;
  // acquire: what is written there now comes after the receiver's loads.
  const std::uint64_t consumed = view_.credit->consumed.load(std::memory_order_acquire);
  if (number <= published_ || number > consumed + slots || bytes > view_.shape.slot_bytes) {
    return nullptr;
  }
  if (bytes <= kInlineBytes) return view_.headers[(number - 1) % slots].payload;
  if (at % kCacheLine != 0 || at > view_.shape.data_bytes() ||
      bytes > view_.shape.data_bytes() - at) {
    return nullptr;
  }
  return view_.data + at;
}

std::byte* InLink::take_posted(std::uint64_t number, std::uint32_t tag, std::uint32_t bytes) {
  const PostedReceive& e = posted_[number % kMostPosted];
  std::byte* const to = e.number == number && e.tag == tag && e.bytes == bytes ? e.to : nullptr;
  in_place_[(number - 1) % in_place_.size()] = to;
  return to;
}

bool InLink::comes_into_exposed(std::uint64_t number) {
  static constexpr std::byte kThere{};
  in_place_[(number - 1) % in_place_.size()] = &kThere;
  return taker_ != nullptr || looks_in_exposed_;  // another rank would look in its slot
}

void InLink::set_posted(std::span<const PostedReceive> messages) {
  for (const PostedReceive& m : messages) posted_[m.number % kMostPosted] = m;
}

void InLink::post(std::span<const PostedReceive> messages) {
  if (messages.empty()) return;
  posted_up_to_ = messages.back().number;
  wire_.post(*this, messages);
}

void InLink::withdraw_receives() { wire_.withdraw_receives(*this); }

bool InLink::arrived(std::uint64_t number, std::uint32_t tag, std::uint32_t bytes,
                     std::uint64_t at) {
  if (number != published_ + 1) {
    early_[number % early_.size()] = {number, at, tag, bytes};
    return true;
  }
  Arrival now{number, at, tag, bytes};
  do {
    if (!publish(now)) return false;
    now = early_[(published_ + 1) % early_.size()];
  } while (now.number == published_ + 1);
  wire_.note_moved();
  if (taker_ != nullptr) return take_all();
  if (Doorbell* const owner = owner_.load(std::memory_order_acquire)) ring(*owner);
  return true;
}

bool InLink::set_taker(Taker* taker) {
  taker_ = taker;
  return taker == nullptr || take_all();
}

bool InLink::take_all() {
  while (receiver_.ready()) {
    // Not longer than a slot: place() has looked.
    const std::uint32_t bytes = receiver_.bytes();
    const std::byte* const payload =
        bytes > kInlineBytes && received_in_place() != nullptr ? nullptr : receiver_.slot(bytes);
    if (!taker_->take(receiver_.tag(), payload, bytes)) return false;
    receiver_.free();
  }
  wire_.note_freed(*this);
  return true;
}

bool InLink::publish(const Arrival& a) {
  // There is room: place() has looked.
  if (a.bytes > kInlineBytes &&
      (!inlet_.ready(a.bytes) || inlet_.slot(a.bytes) != view_.data + a.at))
    return false;
  inlet_.publish(a.tag, a.bytes);
  cursor_.pass(a.bytes, view_);
  if (a.bytes > kInlineBytes) {
    last_tag_ = a.tag;
    last_bytes_ = a.bytes;
  }
  ++published_;
  return true;
}

MessageHeader InLink::same_as_last() const {
  MessageHeader h;
  h.link = number_;
  h.tag = last_tag_;
  h.bytes = last_bytes_;
  h.number = published_ + 1;
  h.at = cursor_.of(last_bytes_, view_);
  return h;
}

bool InLink::sender_may_wait() const {
  // As the sender sees it: messages that have come and that it does not know to be free. A sender
  // without room for a message has all slots in use, or all data but two cells, because a message
  // lies in one. Half of that comes sooner, and shows even if the last messages have yet to come.
  const std::uint64_t slots = published_ - told_.consumed;
  const std::uint64_t bytes = cursor_.passed(view_) - told_.freed;
  return 2 * slots >= view_.shape.slots ||
         2 * (bytes + view_.shape.slot_bytes) >= view_.shape.data_bytes();
}

Credit InLink::credit() const {
  return {number_, 0, view_.credit->consumed.load(std::memory_order_relaxed),
          view_.credit->freed.load(std::memory_order_relaxed)};
}

bool InLink::owes_much() const {
  const Credit now = credit();
  return 2 * (now.consumed - told_.consumed) >= view_.shape.slots ||
         4 * (now.freed - told_.freed) >= view_.shape.data_bytes();
}

void InLink::rung() { wire_.credit(*this); }
void InLink::poll() { wire_.poll(); }

}  // namespace tutti
