// A Connection: a bounded FIFO of slots from one rank to another, in shared memory of the receiver.
//
//     credit line | slots x header line | slots x slot_bytes of data
//
// Counters, not flags: each slot's header holds the number of the message in it, which only grows,
// so nothing is ever reset. Each line has one writer: headers and data the sender, the credit line
// the receiver. A message of up to kInlineBytes travels in the header's own cache line: one line
// moves between the cores, which is the least that an exchange can cost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kInlineBytes = 48;

struct alignas(kCacheLine) SlotHeader {
  std::atomic<std::uint64_t> message;  // 1 + index of the message in this slot; 0: none yet
  std::uint32_t tag;                   // which operation it belongs to (see comm/signature.h)
  std::uint32_t bytes;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(SlotHeader) == kCacheLine);

struct alignas(kCacheLine) CreditLine {
  std::atomic<std::uint64_t> consumed;  // messages that the receiver has finished with
};

struct ConnectionShape {
  std::size_t slots = 0;
  std::size_t slot_bytes = 0;  // a multiple of the cache line

  constexpr std::size_t bytes() const {
    return sizeof(CreditLine) + slots * (sizeof(SlotHeader) + slot_bytes);
  }
};

namespace detail {
struct ConnectionView {
  CreditLine* credit = nullptr;
  SlotHeader* headers = nullptr;
  std::byte* data = nullptr;
  ConnectionShape shape;

  ConnectionView() = default;
  ConnectionView(std::byte* memory, ConnectionShape s)
      : credit(reinterpret_cast<CreditLine*>(memory)),
        headers(reinterpret_cast<SlotHeader*>(memory + sizeof(CreditLine))),
        data(memory + sizeof(CreditLine) + s.slots * sizeof(SlotHeader)),
        shape(s) {}
};
}  // namespace detail

/// The sending end. One thread at a time.
class Sender {
 public:
  Sender() = default;
  Sender(std::byte* memory, ConnectionShape shape) : view_(memory, shape) {}

  /// Whether a slot is free. Looks at the receiver's line only when the slots seem to be used up.
  bool ready() {
    if (sent_ - consumed_ < view_.shape.slots) return true;
    // acquire: our next stores into the slot come after the receiver's loads from it.
    consumed_ = view_.credit->consumed.load(std::memory_order_acquire);
    return sent_ - consumed_ < view_.shape.slots;
  }
  /// Where a message of `bytes` is to be written; valid when ready().
  std::byte* slot(std::size_t bytes) {
    const std::size_t i = index_;
    return bytes <= kInlineBytes ? view_.headers[i].payload
                                 : view_.data + i * view_.shape.slot_bytes;
  }
  void publish(std::uint32_t tag, std::uint32_t bytes) {
    SlotHeader& h = view_.headers[index_];
    h.tag = tag;
    h.bytes = bytes;
    // release: the payload and the two words above are visible to whoever sees the number.
    h.message.store(++sent_, std::memory_order_release);
    if (++index_ == view_.shape.slots) index_ = 0;
  }
  std::uint64_t sent() const { return sent_; }

 private:
  detail::ConnectionView view_;
  std::size_t index_ = 0;  // sent_ % slots, without a division
  std::uint64_t sent_ = 0;
  std::uint64_t consumed_ = 0;
};

/// The receiving end. One thread at a time.
class Receiver {
 public:
  Receiver() = default;
  Receiver(std::byte* memory, ConnectionShape shape) : view_(memory, shape) {}

  bool ready() const {
    // acquire: pairs with publish(), so the payload is there.
    return header().message.load(std::memory_order_acquire) == received_ + 1;
  }
  std::uint32_t tag() const { return header().tag; }
  std::uint32_t bytes() const { return header().bytes; }
  /// The payload of a message of `bytes` (the receiver's own expectation, compared with bytes()
  /// before).
  const std::byte* slot(std::size_t bytes) const {
    return bytes <= kInlineBytes ? header().payload : view_.data + index_ * view_.shape.slot_bytes;
  }
  void free() {
    // release: our loads of the payload come before the sender's next stores into it.
    view_.credit->consumed.store(++received_, std::memory_order_release);
    if (++index_ == view_.shape.slots) index_ = 0;
  }
  std::uint64_t received() const { return received_; }

 private:
  const SlotHeader& header() const { return view_.headers[index_]; }

  detail::ConnectionView view_;
  std::size_t index_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace tutti
