#include "transport/remote_link.h"

#include "transport/wire.h"

namespace tutti {

OutLink::OutLink(Wire& wire, std::uint32_t number, ConnectionShape shape, Bell& owner)
    : wire_(wire),
      number_(number),
      owner_(owner),
      memory_(wire.make_ring(shape.bytes())),
      view_(memory_->data(), shape),
      sender_(memory_->data(), shape) {}

bool OutLink::ready() const {
  // acquire: pairs with publish(), so the payload is there.
  return view_.headers[index_].message.load(std::memory_order_acquire) == passed_ + 1;
}

OutLink::Message OutLink::next() const {
  SlotHeader& header = view_.headers[index_];
  if (header.bytes <= kInlineBytes) return {passed_ + 1, &header, header.payload, 0};
  const std::size_t at = cursor_.of(header.bytes, view_);
  return {passed_ + 1, &header, view_.data + at, at};
}

void OutLink::pass() {
  cursor_.pass(view_.headers[index_].bytes, view_);
  ++passed_;
  if (++index_ == view_.shape.slots) index_ = 0;
}

bool OutLink::credit(std::uint64_t consumed, std::uint64_t freed) {
  CreditLine& line = *view_.credit;
  if (consumed > passed_ || consumed < line.consumed.load(std::memory_order_relaxed) ||
      freed > cursor_.passed() || freed < line.freed.load(std::memory_order_relaxed)) {
    return false;
  }
  // release, both: the wire's loads of the payload come before the sender's next stores into it.
  line.freed.store(freed, std::memory_order_release);
  line.consumed.store(consumed, std::memory_order_release);
  ring(owner_);
  return true;
}

bool OutLink::knows(std::uint64_t consumed, std::uint64_t freed) const {
  const CreditLine& line = *view_.credit;
  return consumed <= line.consumed.load(std::memory_order_relaxed) &&
         freed <= line.freed.load(std::memory_order_relaxed);
}

void OutLink::rung() { wire_.send(*this); }
void OutLink::poll() { wire_.poll(); }
bool OutLink::is_flushed() { return wire_.is_flushed(); }

InLink::InLink(Wire& wire, ConnectionShape shape)
    : wire_(wire),
      memory_(wire.make_ring(shape.bytes())),
      view_(memory_->data(), shape),
      receiver_(memory_->data(), shape),
      inlet_(memory_->data(), shape),
      early_(shape.slots) {}

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
  if (Bell* const owner = owner_.load(std::memory_order_acquire)) ring(*owner);
  return true;
}

bool InLink::publish(const Arrival& a) {
  // There is room: place() has looked.
  if (a.bytes > kInlineBytes &&
      (!inlet_.ready(a.bytes) || inlet_.slot(a.bytes) != view_.data + a.at))
    return false;
  inlet_.publish(a.tag, a.bytes);
  ++published_;
  return true;
}

InLink::Credit InLink::credit() const {
  return {view_.credit->consumed.load(std::memory_order_relaxed),
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
