#include "transport/links.h"

#include <algorithm>

#include "core/error.h"
#include "transport/control_block.h"
#include "transport/pages.h"

namespace tutti {
namespace {

constexpr std::size_t kControlBytes =
    (sizeof(ControlBlock) + kCacheLine - 1) / kCacheLine * kCacheLine;

/// Connections from each rank in a segment; the channel that the first of them has.
struct Range {
  std::size_t count;
  int first;
};
constexpr Range range_of(std::size_t segment) {
  if (segment == 0) return {kFirstChannels + 1, -1};  // the first is of messages
  const int channels = kFirstChannels << (segment - 1);
  return {static_cast<std::size_t>(channels), channels};
}

}  // namespace

std::size_t Links::first_bytes(std::size_t ranks, const ConnectionShape& shape) {
  return kControlBytes + ranks * range_of(0).count * shape.bytes();
}

Links::Links(std::shared_ptr<HostPeers> host_peers, Network* network, std::uint64_t group, int rank,
             ConnectionShape shape, std::vector<LinkPeer> peers,
             std::vector<std::shared_ptr<SharedMemory>> first)
    : host_peers_(std::move(host_peers)),
      network_(network),
      group_(group),
      rank_(rank),
      shape_(shape),
      peers_(std::move(peers)),
      places_(static_cast<int>(first.size())),
      first_(std::move(first)) {}

Links::~Links() {
  // Links that the others had made ready, and this rank has never used.
  for (std::size_t s = 1; s < kSegments; ++s) {
    if (!further_[s].mine) continue;  // where no plan had such links, nobody has sent any
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
      if (peer(r).place >= 0 && !host_peers_->peer(peer(r).member)->same_process) {
        host_peers_->forget(peer(r).member, key(r, s));
      }
    }
  }
}

SendEnd Links::sending(int to, int channel) {
  const LinkPeer& p = peer(to);
  if (p.place < 0) {
    remote_.insert(p.member);
    OutLink& link = network_->wire(p.member).out({group_, static_cast<std::uint64_t>(channel)},
                                                 shape_, *peer(rank_).doorbell);
    return {&link.sender(), &link};
  }
  const auto found = senders_.find(index(to, channel));
  if (found != senders_.end()) return {&found->second, p.doorbell};
  if (segment_of(channel) == 0) {
    std::byte* const memory =
        connection(*first_[static_cast<std::size_t>(p.place)], peer(rank_).place, channel);
    return {&senders_.try_emplace(index(to, channel), memory, shape_).first->second, p.doorbell};
  }
  const auto look = [this, to, channel] { return look_for(to, channel); };
  return {&senders_.try_emplace(index(to, channel), look, shape_).first->second, p.doorbell};
}

ReceiveEnd Links::receiving(int from, int channel) {
  const LinkPeer& p = peer(from);
  if (p.place < 0) {
    remote_.insert(p.member);
    InLink& link = network_->wire(p.member).in({group_, static_cast<std::uint64_t>(channel)},
                                               shape_, *peer(rank_).doorbell);
    return {&link.receiver(), &link};
  }
  const auto found = receivers_.find(index(from, channel));
  if (found != receivers_.end()) return {&found->second, p.doorbell};
  std::byte* const memory = my_connection(from, channel);
  return {&receivers_.try_emplace(index(from, channel), memory, shape_).first->second, p.doorbell};
}

std::uint64_t Links::key(int rank, std::size_t segment) const {
  // Differs from the keys of all other segments, which are random, too.
  const std::uint64_t mixed = (peer(rank).key + segment) * 0x9e3779b97f4a7c15ULL;
  return mixed ^ (mixed >> 32);
}

std::size_t Links::bytes(std::size_t segment) const {
  return static_cast<std::size_t>(places_) * range_of(segment).count * shape_.bytes();
}

std::byte* Links::connection(const SharedMemory& memory, int place, int channel) const {
  const std::size_t s = segment_of(channel);
  const Range range = range_of(s);
  const int at = channel == kMessageChannel ? 0 : channel - range.first;
  const std::size_t index =
      static_cast<std::size_t>(place) * range.count + static_cast<std::size_t>(at);
  return memory.data() + (s == 0 ? kControlBytes : 0) + index * shape_.bytes();
}

std::byte* Links::my_connection(int from, int channel) {
  const std::size_t s = segment_of(channel);
  if (s == 0) {
    const auto mine = static_cast<std::size_t>(peer(rank_).place);
    return connection(*first_[mine], peer(from).place, channel);
  }
  Further& segment = further_[s];
  if (!segment.mine) {
    segment.mine = SharedMemory::create("tutti-links", bytes(s));
    segment.sent.resize(peers_.size());
    share_within_process(key(rank_, s), segment.mine);
  }
  if (from != rank_ && !segment.sent[static_cast<std::size_t>(from)]) {
    host_peers_->send(peer(from).member, key(rank_, s), segment.mine);
    segment.sent[static_cast<std::size_t>(from)] = true;
  }
  return connection(*segment.mine, peer(from).place, channel);
}

const SharedMemory& Links::my_segment(int channel) const {
  const std::size_t s = segment_of(channel);
  return s == 0 ? *first_[static_cast<std::size_t>(peer(rank_).place)] : *further_[s].mine;
}

Links::Memory Links::memory() {
  Memory memory;
  for (const auto& [which, receiver] : receivers_) {
    memory.messages += taken_bytes(whole_pages(receiver.data()));
  }
  std::size_t segments = my_segment(kMessageChannel).taken();
  for (const Further& segment : further_) {
    if (segment.mine) segments += segment.mine->taken();
  }
  memory.rest = segments - std::min(segments, memory.messages);
  for (const int member : remote_) memory.messages += network_->wire(member).ring_bytes(group_);
  return memory;
}

void Links::release_memory() {
  for (auto& [which, receiver] : receivers_) {
    if (receiver.has_data()) continue;
    my_segment(static_cast<int>(which & 0xff)).give_back(whole_pages(receiver.data()));
    receiver.forget_pages();
  }
  for (auto& [which, sender] : senders_) sender.forget_pages();
  for (const int member : remote_) network_->wire(member).release_rings(group_);
}

std::byte* Links::look_for(int to, int channel) {
  const std::size_t s = segment_of(channel);
  std::shared_ptr<SharedMemory>& memory = further_[s].theirs[to];
  if (!memory && to == rank_) memory = further_[s].mine;
  if (!memory && to != rank_) {
    try {
      // What is not there yet is asked for again; meanwhile the sender waits for its receiver.
      memory = host_peers_->receive(peer(to).member, key(to, s), bytes(s), Deadline::min());
    } catch (const Error& e) {
      // A rank that waits for it notices that its owner is gone, and says so in this group's
      // numbers.
      if (e.code() == ErrorCode::system) throw Error(e.code(), e.what(), rank_);
      if (e.code() != ErrorCode::timed_out && e.code() != ErrorCode::peer_lost) throw;
    }
  }
  return memory ? connection(*memory, peer(rank_).place, channel) : nullptr;
}

}  // namespace tutti
