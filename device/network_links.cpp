#include "device/network_links.h"

#include "execute/signature.h"

namespace tutti {
namespace {

/// Differs from all communicators' ids, and is the same on all ranks.
std::uint64_t links_id(const RankGroup& group) { return mix(group.id(), 0x6c696e6b73); }

/// Names the memory in which a rank takes the messages of these links.
std::uint64_t key_of(std::uint64_t links, int rank) {
  return mix(links, 0x677075 + static_cast<std::uint64_t>(rank));
}

}  // namespace

DeviceNetworkLinks::DeviceNetworkLinks(RankGroup& group)
    : network_(group.shared_network()),
      members_(group.members().begin(), group.members().end()),
      rank_(group.rank()),
      id_(links_id(group)) {
  network_->join(id_, *this);
}

DeviceNetworkLinks::~DeviceNetworkLinks() { network_->leave(id_, failed_); }

LinkEnds DeviceNetworkLinks::ends(int peer, std::size_t channels, const ConnectionShape& shape) {
  Wire& wire = network_->wire(members_[static_cast<std::size_t>(peer)]);
  LinkEnds ends;
  for (std::uint64_t c = 0; c < channels; ++c) {
    OutLink& out = wire.out({id_, c}, shape, quiet_);
    ends.outgoing.push_back({&out.sender(), &out});
    InLink& in = wire.in({id_, c}, shape, quiet_);
    ends.incoming.push_back({&in.receiver(), &in});
  }
  return ends;
}

std::optional<GpuLinks::Ends> DeviceNetworkLinks::gpu_ends(int peer, const LinkEnds& ends) {
  Wire& wire = network_->wire(members_[static_cast<std::size_t>(peer)]);
  if (!wire.abilities().device_memory) return std::nullopt;
  GpuLinks::Ends gpu{&wire, id_, key_of(id_, rank_), key_of(id_, peer), {}, {}};
  // Their doorbells are the links themselves (ends()).
  for (const SendEnd& e : ends.outgoing)
    gpu.out.push_back(static_cast<OutLink*>(remote(*e.doorbell)));
  for (const ReceiveEnd& e : ends.incoming)
    gpu.in.push_back(static_cast<InLink*>(remote(*e.doorbell)));
  return gpu;
}

bool DeviceNetworkLinks::has_left(int peer) const {
  const std::lock_guard lock(mutex_);
  return left_.contains(members_[static_cast<std::size_t>(peer)]);
}

bool DeviceNetworkLinks::is_gone(int peer) const {
  const std::lock_guard lock(mutex_);
  const int member = members_[static_cast<std::size_t>(peer)];
  return left_.contains(member) || gone_.contains(member);
}

void DeviceNetworkLinks::on_left(int member, std::uint64_t) {
  const std::lock_guard lock(mutex_);
  left_.insert(member);
}

void DeviceNetworkLinks::on_refused(int member, int) { on_left(member, id_); }

void DeviceNetworkLinks::on_gone(int member, Departure, const std::string&) {
  const std::lock_guard lock(mutex_);
  gone_.insert(member);
}

}  // namespace tutti
