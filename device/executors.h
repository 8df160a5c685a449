// The executors of a communicator's ranks in this process, by rank, and the GPUs that they are on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "execute/cuda/executor.h"

namespace tutti {

class DeviceExecutors {
 public:
  /// For a communicator of `ranks` ranks; no executors yet.
  explicit DeviceExecutors(int ranks) : index_(static_cast<std::size_t>(ranks), kNone) {}

  /// `gpu`: its device.
  void add(std::unique_ptr<device::Executor> executor, std::shared_ptr<device::Device> gpu) {
    index_[static_cast<std::size_t>(executor->rank())] = all_.size();
    if (std::ranges::find(gpus_, gpu) == gpus_.end()) gpus_.push_back(std::move(gpu));
    all_.push_back(std::move(executor));
  }

  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  std::size_t size() const { return all_.size(); }

  /// Whether rank `rank` is in this process. The other functions are for such ranks alone.
  bool has(int rank) const { return index_[static_cast<std::size_t>(rank)] != kNone; }
  /// By rank, in ascending order.
  std::size_t index(int rank) const { return index_[static_cast<std::size_t>(rank)]; }
  device::Executor& of(int rank) const { return *all_[index(rank)]; }

  /// The GPUs, each once.
  std::span<const std::shared_ptr<device::Device>> gpus() const { return gpus_; }
  /// Which of them a rank is on.
  std::size_t gpu_index(int rank) const {
    const auto at = std::ranges::find(gpus_, &of(rank).device(), gpu_pointer);
    return static_cast<std::size_t>(at - gpus_.begin());
  }
  std::size_t ranks_on(const device::Device& gpu) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(all_, [&](const auto& e) { return &e->device() == &gpu; }));
  }

 private:
  static device::Device* gpu_pointer(const std::shared_ptr<device::Device>& gpu) {
    return gpu.get();
  }

  static constexpr std::size_t kNone = SIZE_MAX;
  std::vector<std::size_t> index_;                     // by rank
  std::vector<std::shared_ptr<device::Device>> gpus_;  // outlive what is on them
  std::vector<std::unique_ptr<device::Executor>> all_;
};

}  // namespace tutti
