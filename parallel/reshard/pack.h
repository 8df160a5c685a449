// Copies of moves: between pieces in memory, and between a piece and a message, where the elements
// of a message's moves lie packed, one move after the other, in their travel_type(). All memory of
// a copy is the host's, or all is of the `device` (copy_box()).
#pragma once

#include <cstddef>
#include <span>

#include "../device.h"
#include "plan.h"

namespace tutti::parallel::reshard {

/// A rank's memory, by buffer of the two layouts.
struct Memory {
  std::span<const void* const> sources{};
  std::span<void* const> destinations{};
};

/// Packs a message from its sender's sources (of relays: from its destinations) into `packed`, of
/// Message::bytes.
void pack(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
          const Memory& memory, std::byte* packed, Device& device = host_device());
/// Unpacks it into its receiver's destinations.
void unpack(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
            const Memory& memory, const std::byte* packed, Device& device = host_device());
/// The reverse of unpack(): packs what the receiver's destinations have now.
void pack_present(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
                  const Memory& memory, std::byte* packed);
/// Copies a message straight from its sender's memory into its receiver's, both of which this
/// process can address.
void copy(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
          const Memory& sender, const Memory& receiver, Device& device = host_device());

}  // namespace tutti::parallel::reshard
