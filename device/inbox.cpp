#include "device/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "device/board.h"
#include "execute/signature.h"

namespace tutti {
namespace {

/// Names the descriptor of a rank's inbox; its segment on the host has the key itself.
std::uint64_t inbox_key(const Members& members, int rank) {
  return mix(members.key(rank), 0x696e626f78);
}

}  // namespace

DeviceInboxes::DeviceInboxes(const Members& members, const device::SegmentShape& shape,
                             ConnectionShape connection)
    : connection_(connection),
      channels_(shape.channels + shape.message_channels),
      inboxes_(static_cast<std::size_t>(members.size())) {
  bytes_ = first_connection() + inboxes_.size() * channels_ * connection_.bytes();
  for (int rank = 0; rank < members.size(); ++rank) {
    if (!members.same_process(rank)) continue;
    auto& inbox = inboxes_[static_cast<std::size_t>(rank)];
    inbox = SharedMemory::create("tutti-inbox", bytes_);
    for (int peer = 0; peer < members.size(); ++peer) {
      if (members.same_process(peer) || !members.same_host(peer)) continue;
      members.host_peers().send(members.member(peer), inbox_key(members, rank), inbox);
    }
  }
}

void DeviceInboxes::meet(const Members& members, int rank, int carrier) {
  auto& inbox = inboxes_[static_cast<std::size_t>(rank)];
  if (inbox) return;
  inbox = members.receive(carrier, inbox_key(members, rank), bytes_, deadline_of_sent());
}

DeviceWay DeviceInboxes::decide(int mine, int peer, DeviceWay wish) {
  auto& word = way(std::min(mine, peer), std::max(mine, peer));
  std::uint32_t found = 0;
  // relaxed: the word announces nothing but itself.
  if (word.compare_exchange_strong(found, static_cast<std::uint32_t>(wish),
                                   std::memory_order_relaxed)) {
    return wish;
  }
  return checked(found, peer);
}

DeviceWay DeviceInboxes::checked(std::uint32_t way, int peer) const {
  for (const DeviceWay known : {DeviceWay::mapped, DeviceWay::forwarded}) {
    if (way == static_cast<std::uint32_t>(known)) return known;
  }
  throw Error(ErrorCode::internal,
              fmt::format("rank {} reaches GPU memory in a way that is none ({})", peer, way),
              peer);
}

std::byte* DeviceInboxes::connections(int receiver, int sender) const {
  return inboxes_[static_cast<std::size_t>(receiver)]->data() + first_connection() +
         static_cast<std::size_t>(sender) * channels_ * connection_.bytes();
}

LinkEnds DeviceInboxes::ends(int mine, int peer) const {
  struct Held {
    Doorbell quiet{};  // nobody sleeps on it: the threads that move messages look
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
  };
  const auto held = std::make_shared<Held>();
  for (std::size_t c = 0; c < channels_; ++c) {
    const std::size_t at = c * connection_.bytes();
    held->senders.emplace_back(connections(peer, mine) + at, connection_);
    held->receivers.emplace_back(connections(mine, peer) + at, connection_);
  }
  LinkEnds ends{{}, {}, held};
  for (Sender& s : held->senders) ends.outgoing.push_back({&s, &held->quiet});
  for (Receiver& r : held->receivers) ends.incoming.push_back({&r, &held->quiet});
  return ends;
}

std::atomic<std::uint32_t>& DeviceInboxes::way(int lower, int higher) const {
  auto* const words = reinterpret_cast<std::atomic<std::uint32_t>*>(
      inboxes_[static_cast<std::size_t>(lower)]->data());
  return words[higher];
}

std::size_t DeviceInboxes::first_connection() const {
  const std::size_t words = inboxes_.size() * sizeof(std::atomic<std::uint32_t>);
  return (words + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace tutti
