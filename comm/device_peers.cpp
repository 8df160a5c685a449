#include "comm/device_peers.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/execute/signature.h"
#include "comm/device_wait.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

/// Names the descriptor of a rank's segment; its segment on the host has the key itself.
std::uint64_t descriptor_key(const LocalGroup& group, int rank) {
  return mix(group.key(rank), 0x677075);
}

}  // namespace

DevicePeers::DevicePeers(LocalGroup& group, device::Device& gpu, const device::SegmentShape& shape,
                         std::span<const std::unique_ptr<device::Executor>> executors)
    : gpu_(gpu),
      shape_(shape),
      executors_(executors),
      board_(group),
      spans_processes_(!group.one_process()),
      peers_(static_cast<std::size_t>(group.size())),
      missing_(peers_.size() - executors.size()),
      connected_(peers_.size(), std::vector<bool>(peers_.size())) {
  for (const auto& executor : executors_) {
    const auto rank = static_cast<std::size_t>(executor->rank());
    peers_[rank].card.gpu = gpu_.identity();
    peers_[rank].card.most_blocks = gpu_.most_blocks();
    peers_[rank].segment = executor->segment();
    for (const auto& other : executors_) {
      other->connect(executor->rank(), executor->segment());
      connected_[static_cast<std::size_t>(other->rank())][rank] = true;
    }
  }
  if (!spans_processes_) return;
  try {
    show(group);
  } catch (...) {
    leave();
    throw;
  }
}

void DevicePeers::show(LocalGroup& group) {
  board_.set_maps(true);
  for (const auto& executor : executors_) {
    const int rank = executor->rank();
    const CudaExport e = gpu_.share(executor->segment(), shape_.bytes());
    if (e.handle.kinds == 0) {
      throw Error(ErrorCode::system,
                  fmt::format("rank {} cannot share its GPU memory with the other processes: {}",
                              rank, e.why),
                  rank);
    }
    // Before the card, so that who has seen it finds the descriptor.
    for (int peer = 0; peer < group.size() && e.fd; ++peer) {
      if (board_.is_local(peer)) continue;
      group.mesh().send(group.member(peer), descriptor_key(group, rank), e.fd);
    }
    DeviceBoard::Card& card = peers_[static_cast<std::size_t>(rank)].card;
    card.carrier = group.rank();
    card.segment = e.handle;
    board_.publish(rank, card);
  }
}

void DevicePeers::reach(LocalGroup& group, std::span<const int> mine, std::span<const int> ranks,
                        std::chrono::nanoseconds timeout) {
  if (!spans_processes_) return;
  for (int r = 0; r < group.size(); ++r) {  // whoever is there
    if (!board_.is_gone(r)) connect(group, mine, r);
  }
  DeviceWait wait(group, timeout, "make its first call on GPU memory");
  for (const int r : ranks) {
    while (!connect(group, mine, r)) wait.pause(r);
  }
}

bool DevicePeers::connect(LocalGroup& group, std::span<const int> mine, int rank) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.segment == nullptr) {
    const auto card = board_.card(rank);
    if (!card) return false;
    map(group, rank, *card);
  } else if (!board_.is_local(rank) && board_.is_gone(rank)) {
    throw Error(ErrorCode::peer_lost,
                fmt::format("rank {} has left the communicator (destroyed it), and its GPU memory "
                            "with it",
                            rank),
                rank);
  }
  for (const auto& executor : executors_) {
    if (std::ranges::find(mine, executor->rank()) == mine.end()) continue;
    auto& connected = connected_[static_cast<std::size_t>(executor->rank())];
    if (connected[static_cast<std::size_t>(rank)]) continue;
    executor->connect(rank, peer.segment, peer.card.gpu == gpu_.identity());
    connected[static_cast<std::size_t>(rank)] = true;
    const bool all = std::ranges::find(connected, false) == connected.end();
    if (all && missing_ == 0) executor->limit_blocks(agreed_blocks());
  }
  return true;
}

void DevicePeers::map(LocalGroup& group, int rank, const DeviceBoard::Card& card) {
  FileDescriptor fd;
  if ((card.segment.kinds & CudaMemoryHandle::kFd) != 0) {
    if (card.carrier < 0 || card.carrier >= group.size() || board_.is_local(card.carrier)) {
      throw Error(
          ErrorCode::internal,
          fmt::format("rank {} says that rank {} passes its GPU memory", rank, card.carrier), rank);
    }
    fd = group.mesh().receive(group.member(card.carrier), descriptor_key(group, rank),
                              Clock::now() + std::chrono::seconds(10));
  }
  device::Mapping mapping = gpu_.map(card.segment, fd);
  if (mapping.bytes < shape_.bytes()) {
    throw Error(ErrorCode::internal,
                fmt::format("rank {} shares {} bytes of GPU memory, but its segment needs {}", rank,
                            mapping.bytes, shape_.bytes()),
                rank);
  }
  --missing_;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer = {card, mapping.data, std::move(mapping)};
}

// Kernels of several processes run side by side where MPS is on, so that the blocks of all ranks of
// a GPU have to fit. All ranks come to the same number.
std::uint32_t DevicePeers::agreed_blocks() const {
  std::uint32_t most = device::kMostBlocks;
  for (const Peer& peer : peers_) {
    const auto ranks = std::ranges::count_if(
        peers_, [&](const Peer& other) { return other.card.gpu == peer.card.gpu; });
    most = std::min(most, peer.card.most_blocks / static_cast<std::uint32_t>(ranks));
  }
  if (most == 0) {
    throw Error(ErrorCode::invalid_argument,
                "more ranks share a GPU than it runs thread blocks side by side");
  }
  return most;
}

void DevicePeers::leave() {
  if (!spans_processes_) return;
  board_.withdraw();
  {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) peer.mapping = {};
  }
  board_.set_maps(false);
}

}  // namespace tutti
