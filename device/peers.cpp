#include "device/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/log.h"
#include "core/settings.h"
#include "execute/signature.h"

namespace tutti {
namespace {

// Blocks of a GPU that all ranks of a host may share, and of a rank: few, as one thread of the host
// passes on what all of them send.
constexpr std::uint32_t kSharedAcross = 64;
constexpr std::uint32_t kMostAcross = kOwnChannels;

/// The same on all ranks, though they do not ask each other: by the host that has the most.
std::uint32_t blocks_across(const Members& group) {
  std::map<int, std::uint32_t> ranks;
  std::uint32_t most = 1;
  for (int r = 0; r < group.size(); ++r) most = std::max(most, ++ranks[group.host(r)]);
  return std::clamp(kSharedAcross / most, 1U, kMostAcross);
}

/// Names the descriptor of a rank's segment; its segment on the host has the key itself.
std::uint64_t descriptor_key(const Members& group, int rank) {
  return mix(group.key(rank), 0x677075);
}

/// What others need to map a rank's segment; no handle where it cannot be shared.
CudaExport share(const device::Executor& executor, std::size_t bytes) {
  CudaExport e;
  try {
    e = executor.device().share(executor.segment(), bytes);
  } catch (const Error& error) {
    e.why = error.what();
  }
  if (e.handle.kinds == 0) {
    log().warn("rank {} cannot share its GPU memory, whose data goes through the host: {}",
               executor.rank(), e.why);
  }
  return e;
}

}  // namespace

DevicePeers::DevicePeers(RankGroup& group, const device::SegmentShape& shape,
                         const DeviceExecutors& executors,
                         std::shared_ptr<DeviceWindowBoard> agreements)
    : shape_(shape),
      executors_(executors),
      board_(group),
      agreements_(std::move(agreements)),
      spans_processes_(!group.one_process()),
      blocks_across_(group.one_host() ? 0 : blocks_across(group)),
      shares_(setting_boolean("TUTTI_CUDA_IPC")),
      peers_(static_cast<std::size_t>(group.size())),
      missing_(group.ranks_here().size() - executors.size()),
      connected_(peers_.size(), std::vector<bool>(peers_.size())),
      ways_(peers_.size(), std::vector<DeviceWay>(peers_.size(), DeviceWay::undecided)),
      agreed_(peers_.size()) {
  connect_here();
  if (!spans_processes_) return;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (board_.is_here(static_cast<int>(r))) continue;
    peers_[r].known = true;
    for (const auto& executor : executors_) {
      ways_[static_cast<std::size_t>(executor->rank())][r] = DeviceWay::forwarded;
    }
  }
  try {
    inboxes_ =
        std::make_unique<DeviceInboxes>(group, shape_, DeviceHostSlots::connection_of(shape_));
    host_ = std::make_unique<DeviceHostSlots>(shape_, executors_, *inboxes_, group.ranks_here());
    show(group);
  } catch (...) {
    leave();
    throw;
  }
}

void DevicePeers::connect_here() {
  using Reach = device::Device::Reach;
  Reach worst = Reach::whole_lines;
  for (const auto& from : executors_) {
    for (const auto& to : executors_) {
      const Reach reach = from->device().reach(to->device().identity());
      worst = std::min(worst, reach);
      if (reach != Reach::none) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("ranks {} and {} are of one process, and on GPUs that cannot reach "
                              "each other's memory (peer access): a process for each rank can do "
                              "without",
                              from->rank(), to->rank()),
                  to->rank());
    }
  }
  // All ranks of a communicator say the same, and of links between processes nothing is known.
  const bool whole_lines = worst == Reach::whole_lines && !spans_processes_;
  for (const auto& executor : executors_) {
    const auto rank = static_cast<std::size_t>(executor->rank());
    peers_[rank].card.gpu = executor->device().identity();
    peers_[rank].card.most_blocks = executor->device().most_blocks();
    peers_[rank].known = true;
    for (const auto& other : executors_) {
      other->connect(executor->rank(), executor->segment(),
                     whole_lines || &other->device() == &executor->device());
      connected_[static_cast<std::size_t>(other->rank())][rank] = true;
    }
  }
  if (spans_processes_) return;
  for (const auto& executor : executors_) executor->limit_blocks(agreed_blocks());
}

void DevicePeers::show(const Members& group) {
  board_.set_maps(true);
  const bool others = group.ranks_here().size() > executors_.size();
  for (const auto& executor : executors_) {
    const int rank = executor->rank();
    Peer& self = peers_[static_cast<std::size_t>(rank)];
    const CudaExport e = shares_ && others ? share(*executor, shape_.bytes()) : CudaExport{};
    self.why_not = e.why;
    // Before the card, so that a rank that has seen the card finds the descriptor.
    for (int peer = 0; peer < group.size() && e.fd; ++peer) {
      if (board_.is_local(peer) || !board_.is_here(peer)) continue;
      group.host_peers().send(group.member(peer), descriptor_key(group, rank), e.fd);
    }
    self.card.carrier = group.rank();
    self.card.segment = e.handle;
    board_.publish(rank, self.card);
  }
}

void DevicePeers::reach(RankGroup& group, std::span<const int> mine, std::span<const int> ranks,
                        const WaitPolicy& policy) {
  if (!spans_processes_) return;
  for (const int r : group.ranks_here()) {  // the ranks that are there
    if (!board_.is_gone(r)) connect(group, mine, r);
  }
  PeerWait wait(group, policy, "make its first call on GPU memory");
  for (const int r : ranks) wait.until(r, [&] { return connect(group, mine, r); });
}

void DevicePeers::join(RankGroup& group) {
  if (spans_hosts()) host_->join(group);
}

bool DevicePeers::has_left(std::span<const int> mine, int rank) const {
  return board_.is_here(rank) ? board_.is_gone(rank) : host_->has_left(mine.front(), rank);
}

bool DevicePeers::connect(RankGroup& group, std::span<const int> mine, int rank) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.known) {
    const auto card = board_.card(rank);
    if (!card) return false;
    meet(group, rank, *card);
  } else if (!board_.is_local(rank) && has_left(mine, rank)) {
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
    if (way(executor->rank(), rank) == DeviceWay::mapped) {
      executor->connect(rank, peer.mappings[executors_.gpu_index(executor->rank())].data,
                        peer.card.gpu == executor->device().identity());
    } else {
      host_->open();
    }
    connected[static_cast<std::size_t>(rank)] = true;
    const bool all = std::ranges::find(connected, false) == connected.end();
    if (all && missing_ == 0) executor->limit_blocks(agreed_blocks());
  }
  return true;
}

void DevicePeers::meet(const Members& group, int rank, const DeviceBoard::Card& card) {
  inboxes_->meet(group, rank, card.carrier);
  FileDescriptor fd;
  if ((card.segment.kinds & CudaMemoryHandle::kFd) != 0) {
    fd = group.receive(card.carrier, descriptor_key(group, rank), deadline_of_sent());
  }
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.card = card;
  if (!shares_) {
    peer.why_not = "TUTTI_CUDA_IPC=0";
  } else if (card.segment.kinds == 0) {
    peer.why_not = fmt::format("rank {} does not share it", rank);
  } else {
    map(peer, rank, fd);
  }
  peer.known = true;
  --missing_;
  host_->met(rank);
}

void DevicePeers::map(Peer& peer, int rank, const FileDescriptor& fd) {
  try {
    for (const auto& gpu : executors_.gpus()) {
      peer.mappings.push_back(gpu->map(peer.card.segment, fd));
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::system) throw;
    log().warn("data between rank {} and this process goes through the host: {}", rank, e.what());
    peer.mappings.clear();
    peer.why_not = e.what();
    return;
  }
  for (const device::Mapping& mapping : peer.mappings) {
    if (mapping.bytes >= shape_.bytes()) continue;
    throw Error(ErrorCode::internal,
                fmt::format("rank {} shares {} bytes of GPU memory, but its segment needs {}", rank,
                            mapping.bytes, shape_.bytes()),
                rank);
  }
}

DeviceWay DevicePeers::way(int mine, int rank) {
  DeviceWay& known = ways_[static_cast<std::size_t>(mine)][static_cast<std::size_t>(rank)];
  if (known != DeviceWay::undecided) return known;
  const Peer& self = peers_[static_cast<std::size_t>(mine)];
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const bool maps = !peer.mappings.empty() && self.card.segment.kinds != 0;
  const DeviceWay way =
      inboxes_->decide(mine, rank, maps ? DeviceWay::mapped : DeviceWay::forwarded);
  if (way == DeviceWay::mapped && !maps) {
    throw Error(ErrorCode::system,
                fmt::format("rank {} has the GPU memory of rank {} mapped, but not the other way "
                            "about ({}): set TUTTI_CUDA_IPC=0, so that neither tries",
                            rank, mine, peer.mappings.empty() ? peer.why_not : self.why_not),
                rank);
  }
  return known = way;
}

bool DevicePeers::maps_all() {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (const auto& executor : executors_) {
    for (int rank = 0; rank < board_.size(); ++rank) {
      // Of each of them: the other process needs to have it decided, too.
      if (!board_.is_local(rank)) all = way(executor->rank(), rank) == DeviceWay::mapped && all;
    }
  }
  return all;
}

void DevicePeers::agree(RankGroup& group, std::span<const int> mine, const WaitPolicy& policy) {
  if (!spans_processes_) return;
  {
    const std::lock_guard lock(mutex_);
    const auto knows = [&](int rank) { return agreed_[static_cast<std::size_t>(rank)]; };
    if (std::ranges::all_of(mine, knows)) return;
  }
  // For all ranks of this process: their calls may come after this one, on the same thread.
  const bool through_host =
      spans_hosts() || !agreements_->agree(group, kMapsAll, 0, maps_all(),
                                           "make its first collective on GPU memory", policy);
  const std::lock_guard lock(mutex_);
  const std::uint32_t blocks = agreed_blocks();
  if (blocks < blocks_across_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the GPUs of this host run {} thread blocks for each of its ranks side "
                            "by side, but ranks on several hosts count on {}: fewer ranks may "
                            "share a GPU",
                            blocks, blocks_across_));
  }
  collectives_through_host_ = through_host;
  if (through_host) host_->open();
  for (const int rank : mine) {
    if (through_host && !spans_hosts()) host_->executor(rank).limit_blocks(blocks);
    agreed_[static_cast<std::size_t>(rank)] = true;
  }
}

bool DevicePeers::collectives_through_host() const {
  const std::lock_guard lock(mutex_);
  return collectives_through_host_;
}

bool DevicePeers::messages_through_host(int mine, int peer) const {
  const std::lock_guard lock(mutex_);
  return ways_[static_cast<std::size_t>(mine)][static_cast<std::size_t>(peer)] ==
         DeviceWay::forwarded;
}

// Kernels of several processes run side by side where MPS is on, so that the blocks of all ranks of
// a GPU have to fit. All ranks come to the same number.
std::uint32_t DevicePeers::agreed_blocks() const {
  std::uint32_t most = device::kMostBlocks;
  for (int r = 0; r < board_.size(); ++r) {
    if (!board_.is_here(r)) continue;
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    std::uint32_t ranks = 0;
    for (int other = 0; other < board_.size(); ++other) {
      if (!board_.is_here(other)) continue;
      if (peers_[static_cast<std::size_t>(other)].card.gpu == peer.card.gpu) ++ranks;
    }
    most = std::min(most, peer.card.most_blocks / ranks);
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
    for (Peer& peer : peers_) peer.mappings.clear();
  }
  board_.set_maps(false);
}

}  // namespace tutti
