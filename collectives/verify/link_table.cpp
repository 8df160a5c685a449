// See link_table.h.
#include "collectives/verify/link_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

// They bound memory.
constexpr std::uint64_t kMostLinks = std::uint64_t{1} << 24;
constexpr std::uint64_t kMostSlotChunks = std::uint64_t{1} << 28;

std::uint64_t link_hash(int sender, int receiver, std::uint8_t channel) {
  const std::uint64_t key = (static_cast<std::uint64_t>(sender) << 32) ^
                            (static_cast<std::uint64_t>(receiver) << 8) ^ channel;
  return (key * 0x9e3779b97f4a7c15U) >> 20;  // Fibonacci hashing: the high bits are the mixed ones
}

}  // namespace

std::uint32_t LinkTable::find(int sender, int receiver, std::uint8_t channel) {
  const std::size_t mask = ids_.size() - 1;
  std::size_t at = link_hash(sender, receiver, channel) & mask;
  for (; ids_[at] != kNone; at = (at + 1) & mask) {
    const Link& link = links_[ids_[at]];
    if (link.sender == sender && link.receiver == receiver && link.channel == channel) {
      return ids_[at];
    }
  }
  if (links_.size() >= kMostLinks) {
    throw Refuted{
        fmt::format("is where the plan has more than {} links, too many to follow", kMostLinks)};
  }
  const auto id = static_cast<std::uint32_t>(links_.size());
  ids_[at] = id;
  Link link;
  link.sender = sender;
  link.receiver = receiver;
  link.channel = channel;
  links_.push_back(link);
  if (links_.size() * 2 > ids_.size()) grow();
  return id;
}

void LinkTable::grow() {
  ids_.assign(ids_.size() * 2, kNone);
  const std::size_t mask = ids_.size() - 1;
  for (std::uint32_t id = 0; id < links_.size(); ++id) {
    const Link& link = links_[id];
    std::size_t at = link_hash(link.sender, link.receiver, link.channel) & mask;
    while (ids_[at] != kNone) at = (at + 1) & mask;
    ids_[at] = id;
  }
}

void lay_out_links(Network& network) {
  std::uint64_t slots = 0;
  std::uint64_t chunks = 0;
  for (Link& link : network.links) {
    if (link.sends != link.receives) {
      throw Refuted{fmt::format(
          "rank {} sends {} message(s) to rank {} on channel {}, but rank {} "
          "receives {}",
          link.sender, link.sends, link.receiver, link.channel, link.receiver, link.receives)};
    }
    link.capacity = std::min(network.header().slots, link.sends);
    link.first_slot = static_cast<std::uint32_t>(slots);
    link.first_value = static_cast<std::uint32_t>(chunks);
    slots += link.capacity;
    chunks += std::uint64_t{link.capacity} * link.widest;
    if (std::max(slots, chunks) > kMostSlotChunks) {
      throw Refuted{"the plan's links hold more chunks at a time than can be followed"};
    }
  }
  network.slots = static_cast<std::uint32_t>(slots);
  network.slot_chunks = static_cast<std::uint32_t>(chunks);
}

}  // namespace tutti::proof
