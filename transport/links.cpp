#include "transport/links.h"

#include <algorithm>
#include <limits>

#include "transport/host/pages.h"
#include "transport/network/network.h"

namespace tutti {
namespace {

/// Connections from each rank in a part; the channel that the first of them has.
struct Range {
  std::size_t count;
  int first;
};
constexpr Range range_of(std::size_t part) {
  if (part == 0) return {kFirstChannels + 1, -1};  // the first is of messages
  const int channels = kFirstChannels << (part - 1);
  return {static_cast<std::size_t>(channels), channels};
}

/// Of the links to a rank, with `ranks` on its host: of one part, and of those before `part`.
std::size_t part_bytes(std::size_t part, std::size_t ranks, const ConnectionShape& shape) {
  return to_page(ranks * range_of(part).count * shape.bytes());
}
std::size_t bytes_before(std::size_t part, std::size_t ranks, const ConnectionShape& shape) {
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < part; ++p) bytes += part_bytes(p, ranks, shape);
  return bytes;
}

}  // namespace

std::size_t Links::bytes(std::size_t ranks, const ConnectionShape& shape) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  // More than there are, as parts are rounded to pages.
  constexpr std::size_t kConnections = 2 * (kPlanChannels + 1);
  if (shape.bytes() > kMost / kConnections / ranks / ranks) return kMost;
  return ranks * bytes_before(kParts, ranks, shape);
}

Links::Links(Network* network, std::uint64_t communicator, int rank, ConnectionShape shape,
             std::vector<LinkPeer> peers, std::shared_ptr<SharedMemory> segment, std::size_t offset)
    : network_(network),
      communicator_(communicator),
      rank_(rank),
      shape_(shape),
      peers_(std::move(peers)),
      segment_(std::move(segment)),
      offset_(offset) {
  const auto is_here = [](const LinkPeer& p) { return p.place >= 0; };
  places_ = static_cast<std::size_t>(std::ranges::count_if(peers_, is_here));
}

SendEnd Links::sending(int to, int channel) {
  const LinkPeer& p = peer(to);
  if (p.place < 0) {
    remote_.insert(p.member);
    OutLink& link = network_->wire(p.member).out(
        {communicator_, static_cast<std::uint64_t>(channel)}, shape_, *peer(rank_).doorbell);
    return {&link.sender(), &link};
  }
  const auto found = senders_.find(index(to, channel));
  if (found != senders_.end()) return {&found->second, p.doorbell};
  const auto [there, back] = connections(p.place, channel);
  Sender& sender = senders_.try_emplace(index(to, channel), there, back, shape_).first->second;
  const auto receiver = receivers_.find(index(to, channel));
  if (receiver != receivers_.end()) receiver->second.exchange_with(sender);
  return {&sender, p.doorbell};
}

ReceiveEnd Links::receiving(int from, int channel) {
  const LinkPeer& p = peer(from);
  if (p.place < 0) {
    remote_.insert(p.member);
    InLink& link = network_->wire(p.member).in({communicator_, static_cast<std::uint64_t>(channel)},
                                               shape_, *peer(rank_).doorbell);
    return {&link.receiver(), &link};
  }
  const auto found = receivers_.find(index(from, channel));
  if (found != receivers_.end()) return {&found->second, p.doorbell};
  const auto [there, back] = connections(p.place, channel);
  Receiver& receiver =
      receivers_.try_emplace(index(from, channel), back, there, shape_).first->second;
  const auto sender = senders_.find(index(from, channel));
  if (sender != senders_.end()) receiver.exchange_with(sender->second);
  return {&receiver, p.doorbell};
}

std::byte* Links::connection(int from, int to, int channel) {
  const std::size_t part = part_of(channel);
  std::shared_ptr<SharedMemory>& memory = parts_[{to, part}];
  if (memory == nullptr) {
    const std::size_t area = bytes_before(kParts, places_, shape_);
    memory = segment_->part(
        offset_ + static_cast<std::size_t>(to) * area + bytes_before(part, places_, shape_),
        part_bytes(part, places_, shape_));
  }
  const Range range = range_of(part);
  const int at = channel == kMessageChannel ? 0 : channel - range.first;
  const std::size_t index =
      static_cast<std::size_t>(from) * range.count + static_cast<std::size_t>(at);
  return memory->data() + index * shape_.bytes();
}

std::pair<std::byte*, std::byte*> Links::connections(int place, int channel) {
  const int own = peer(rank_).place;
  return {connection(own, place, channel), connection(place, own, channel)};
}

Links::Memory Links::memory() {
  Memory memory;
  for (const auto& [which, receiver] : receivers_) {
    const std::span<std::byte> data = receiver.data();
    // Before the data lie credit, headers and map.
    const std::size_t before = shape_.bytes() - data.size();
    const std::size_t all = taken_bytes(pages_around({data.data() - before, shape_.bytes()}));
    const std::size_t messages = taken_bytes(whole_pages(data));
    memory.messages += messages;
    memory.rest += all - messages;
  }
  for (const int member : remote_)
    memory.messages += network_->wire(member).ring_bytes(communicator_);
  return memory;
}

void Links::release_memory() {
  for (auto& [which, receiver] : receivers_) {
    // Messages of the link back may lie in exchanged cells.
    const auto back = senders_.find(which);
    if (receiver.has_data() || (back != senders_.end() && back->second.has_data())) continue;
    const auto& part = parts_.at({peer(rank_).place, part_of(static_cast<int>(which & 0xff))});
    part->give_back(whole_pages(receiver.data()));
  }
  for (const int member : remote_) network_->wire(member).release_rings(communicator_);
}

}  // namespace tutti
