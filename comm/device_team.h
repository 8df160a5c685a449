// The ranks of a communicator on a GPU that they share: an executor each, and launches of one or
// several of them. One object per communicator and process; it lives until the last of its ranks
// has left, because the others' kernels may still write into a rank's segment.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/execute/cuda/executor.h"

namespace tutti {

class DeviceTeam {
 public:
  /// All `ranks`, connected. Throws Error(invalid_argument) for more than fit one launch.
  DeviceTeam(std::shared_ptr<device::Device> gpu, int ordinal, int ranks);
  /// Waits for the GPU.
  ~DeviceTeam();

  int ordinal() const { return ordinal_; }
  /// Of this rank's waits from now on; 0: none.
  void set_timeout(int rank, std::chrono::nanoseconds timeout);

  /// One rank's part of an operation, after what is on its stream.
  struct Part {
    int rank = 0;
    device::DeviceBinding binding;
    device::Stream stream = nullptr;
  };
  /// One kernel for the parts of some ranks, in the order of all their streams. Does not wait. Each
  /// rank's parts come from one thread at a time. Throws Error; then nothing was launched.
  void launch(std::span<const Part> parts);

  /// Makes all kernels, also later ones, leave their waits. From any thread.
  void abort();
  /// The first failure of a kernel of any rank. Does not wait. From any thread.
  std::optional<Error> failure() const;

 private:
  /// Throws where a launch of only some ranks would wait, on its stream, for one that waits for it.
  void check_stream(std::span<const Part> parts);

  std::shared_ptr<device::Device> gpu_;
  int ordinal_;
  device::SegmentShape shape_;
  std::vector<std::unique_ptr<device::Executor>> executors_;

  // The newest launches of each rank, by number.
  struct Launched {
    std::uint64_t number = 0;  // from 1
    device::Stream stream = nullptr;
  };
  static constexpr std::size_t kRemembered = 64;
  std::mutex mutex_;  // of what follows
  std::vector<std::vector<Launched>> launched_;
  std::vector<std::uint64_t> launches_;
};

/// The team of the communicator with this key; `make` makes it for the first rank that asks.
std::shared_ptr<DeviceTeam> join_device_team(
    std::uint64_t key, const std::function<std::shared_ptr<DeviceTeam>()>& make);
/// The same if there is one, else null.
std::shared_ptr<DeviceTeam> find_device_team(std::uint64_t key);

}  // namespace tutti
