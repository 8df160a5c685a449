// Of a link's ring over RDMA (verbs_wire.h): what this side's device and the peer need to reach it,
// and what a notice of it says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/verbs/verbs_wire.h"

namespace tutti {

// Of a notice: the rest is the link's number.
inline constexpr std::uint32_t kCredit = std::uint32_t{1} << 31;  // else a message
inline constexpr std::uint32_t kAsBefore = std::uint32_t{1}
                                           << 30;                 // long, tag and length as before
inline constexpr std::uint32_t kLanded = std::uint32_t{1} << 29;  // where it was expected
inline constexpr std::uint32_t kLinkNumber = kLanded - 1;

/// Where credits come in, or go out from: behind the ring.
inline CreditLine& passing_credit(const RingMemory& memory) {
  return *reinterpret_cast<CreditLine*>(memory.data() + memory.size() - sizeof(CreditLine));
}

struct VerbsWire::Registration {
  Registration(std::shared_ptr<VerbsDevice> device, const RingMemory& memory)
      : base(memory.data()), region(std::move(device), memory.data(), memory.size()) {}

  /// To the same place in the peer's ring.
  VerbsWrite mirrored(const void* from, std::size_t length) const {
    const auto offset = static_cast<const std::byte*>(from) - base;
    return {from, region.local_key(), peer_address + static_cast<std::uint64_t>(offset), peer_key,
            length};
  }

  const std::byte* base;
  VerbsMemory region;
  bool open = false;  // the peer has said where its ring is
  bool gone = false;  // or that it has none
  std::uint64_t peer_address = 0;
  std::uint32_t peer_key = 0;
  std::uint64_t group = 0;
  // The newest message, at either end.
  std::uint64_t came = 0;
  std::uint32_t tag = 0, bytes = 0;
  detail::Cursor cursor;
  // The sender's: where the peer wants messages, by their numbers.
  std::array<Landing, InLink::kExpected> landings{};
  // The receiver's: up to which message it has said so, and that it has taken all of it back.
  std::uint64_t told_up_to = 0;
  bool takes_back = false;

  static Registration& of(const std::shared_ptr<RingMemory>& memory) {
    return *static_cast<Registration*>(memory->registration.get());
  }
};

}  // namespace tutti
