#include "device/host_slots.h"

#include <algorithm>

namespace tutti {

ConnectionShape DeviceHostSlots::connection_of(const device::SegmentShape& shape) {
  return {shape.slots, device::host_slot_bytes(shape)};
}

DeviceHostSlots::~DeviceHostSlots() {
  if (proxy_) proxy_->stop();
}

/// Of another rank's segment, its connections from `rank` and the credit that `rank` gives.
std::unique_ptr<device::PinnedMemory> DeviceHostSlots::make_far(int rank, bool data) const {
  auto far = std::make_unique<device::PinnedMemory>(on_device_.of(rank).device(), shape_.bytes());
  const auto self = static_cast<std::uint32_t>(rank);
  far->pin(shape_.credits(), shape_.peers());
  for (std::uint32_t c = 0; c < shape_.channels + shape_.message_channels; ++c) {
    const std::size_t at = shape_.connection(self, c);
    far->pin(at, at + shape_.ll(0));  // headers and lengths; all messages are Simple
    if (data) far->pin(at + shape_.simple(0), at + shape_.connection_bytes());
  }
  return far;
}

void DeviceHostSlots::open() {
  if (!near_.empty()) return;
  Memory near;
  std::vector<Memory> far;
  std::vector<std::unique_ptr<device::Executor>> executors;
  for (const auto& on_device : on_device_) {
    device::Device& gpu = on_device->device();
    near.push_back(std::make_unique<device::PinnedMemory>(gpu, shape_.bytes()));
    near.back()->pin(0, shape_.bytes());
    Memory& mine = far.emplace_back(shape_.ranks);
    for (const int peer : here_) {
      if (on_device_.has(peer)) continue;
      mine[static_cast<std::size_t>(peer)] = make_far(on_device->rank(), true);
    }
    executors.push_back(std::make_unique<device::Executor>(
        gpu, on_device->rank(), shape_, static_cast<int>(on_device_.ranks_on(gpu)),
        near.back()->data()));
  }
  for (std::size_t e = 0; e < executors.size(); ++e) {
    for (const int peer : here_) {
      const auto& memory = on_device_.has(peer) ? near[on_device_.index(peer)]
                                                : far[e][static_cast<std::size_t>(peer)];
      executors[e]->connect(peer, memory->data(), false);
    }
  }
  auto proxy = DeviceProxy::start();
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t e = 0; e < executors.size(); ++e) {
      executors[e]->set_limits(on_device_.of(executors[e]->rank()).limits());
      if (aborted_) executors[e]->abort();
    }
    near_ = std::move(near);
    far_ = std::move(far);
    executors_ = std::move(executors);
    proxy_ = std::move(proxy);
  }
  for (const int peer : here_) {
    if (!on_device_.has(peer) && inboxes_.has_met(peer)) add_links(peer);
  }
}

void DeviceHostSlots::met(int rank) {
  if (!near_.empty()) add_links(rank);
}

void DeviceHostSlots::add_links(int peer) {
  for (const auto& executor : on_device_) {
    const int rank = executor->rank();
    std::byte* const far = far_[on_device_.index(rank)][static_cast<std::size_t>(peer)]->data();
    proxy_->add(make_link(rank, peer, far, inboxes_.ends(rank, peer), nullptr));
  }
}

std::shared_ptr<ProxyLink> DeviceHostSlots::make_link(int rank, int peer, std::byte* far,
                                                      LinkEnds links,
                                                      std::shared_ptr<GpuLinks> gpu) const {
  std::byte* const near = near_[on_device_.index(rank)]->data();
  return std::make_shared<ProxyLink>(
      shape_, connection_of(shape_).slot_bytes,
      ProxyLink::Ends{rank, peer, near, far, std::move(links), std::move(gpu)});
}

void DeviceHostSlots::join(RankGroup& group) {
  auto links = std::make_unique<DeviceNetworkLinks>(group);
  const std::lock_guard lock(mutex_);
  networks_[group.rank()] = std::move(links);
}

void DeviceHostSlots::link(int rank, int peer) {
  DeviceNetworkLinks* network = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (across_.contains({rank, peer})) return;
    network = networks_.at(rank).get();
  }
  // Without the lock: CUDA may wait for kernels, and these for abort().
  LinkEnds ends =
      network->ends(peer, shape_.channels + shape_.message_channels, connection_of(shape_));
  auto gpu = make_gpu_links(*network, rank, peer, ends);
  auto far = make_far(rank, !gpu || !gpu->sends());
  executor(rank).connect(peer, far->data(), false);
  if (gpu) executor(rank).put_data(peer, gpu->out_slots(), gpu->in_slots());
  auto link = make_link(rank, peer, far->data(), std::move(ends), std::move(gpu));
  far_[on_device_.index(rank)][static_cast<std::size_t>(peer)] = std::move(far);
  proxy_->add(link);
  const std::lock_guard lock(mutex_);
  across_[{rank, peer}] = std::move(link);
}

std::shared_ptr<GpuLinks> DeviceHostSlots::make_gpu_links(DeviceNetworkLinks& network, int rank,
                                                          int peer, const LinkEnds& ends) const {
  auto gpu_ends = network.gpu_ends(peer, ends);
  if (!gpu_ends) return nullptr;
  return std::make_shared<GpuLinks>(on_device_.gpus()[on_device_.gpu_index(rank)], shape_,
                                    std::move(*gpu_ends), rank, peer);
}

bool DeviceHostSlots::has_left(int rank, int peer) const {
  const std::lock_guard lock(mutex_);
  return networks_.at(rank)->has_left(peer);
}

void DeviceHostSlots::set_failed() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  for (const auto& [rank, network] : networks_) network->set_failed();
}

bool DeviceHostSlots::is_needed() const {
  const std::lock_guard lock(mutex_);
  return !failed_ && std::ranges::any_of(across_, [&](const auto& entry) {
    const auto [rank, peer] = entry.first;
    return !entry.second->is_flushed() && !networks_.at(rank)->is_gone(peer);
  });
}

device::Executor& DeviceHostSlots::executor(int rank) {
  const std::lock_guard lock(mutex_);
  return *executors_[on_device_.index(rank)];
}

void DeviceHostSlots::set_limits(int rank, const device::Executor::Limits& limits) {
  const std::lock_guard lock(mutex_);
  if (!executors_.empty()) executors_[on_device_.index(rank)]->set_limits(limits);
}

void DeviceHostSlots::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const auto& executor : executors_) executor->abort();
}

std::vector<Error> DeviceHostSlots::failures() const {
  const std::lock_guard lock(mutex_);
  std::vector<Error> failures;
  for (const auto& executor : executors_) {
    if (auto failure = executor->failure()) failures.push_back(std::move(*failure));
  }
  if (proxy_) {
    if (auto failure = proxy_->failure()) failures.push_back(std::move(*failure));
  }
  return failures;
}

std::optional<device::LateRank> DeviceHostSlots::late() {
  const std::lock_guard lock(mutex_);
  for (const auto& executor : executors_) {
    if (auto late = executor->late()) return late;
  }
  return std::nullopt;
}

void DeviceHostSlots::wake() {
  const std::lock_guard lock(mutex_);
  if (proxy_) proxy_->wake();
}

}  // namespace tutti
