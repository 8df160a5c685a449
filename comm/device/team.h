// The ranks of a communicator that are threads of this process, on the GPU that they share: an
// executor each, and launches of one or several of them. One object per communicator and process;
// it lives until the last of these ranks has left, because the others' kernels may still write into
// a rank's segment.
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
#include "comm/device/peers.h"
#include "comm/device/watch.h"
#include "comm/device/windows.h"

namespace tutti {

class DeviceTeam {
 public:
  /// Throws Error(invalid_argument) for more ranks than fit one launch.
  DeviceTeam(std::shared_ptr<device::Device> gpu, int ordinal, LocalGroup& group);

  int ordinal() const { return ordinal_; }

  /// See DevicePeers.
  void agree(LocalGroup& group, std::span<const int> mine, const WaitPolicy& policy) {
    peers_.agree(group, mine, policy);
  }
  void reach(LocalGroup& group, std::span<const int> mine, std::span<const int> ranks,
             const WaitPolicy& policy) {
    peers_.reach(group, mine, ranks, policy);
  }

  bool is_capturing(device::Stream stream) { return gpu_->is_capturing(stream); }
  bool collectives_through_host() const { return peers_.collectives_through_host(); }

  /// Null where all ranks are in this process: its memory is addressed as it is.
  DeviceWindows* windows() const { return windows_.get(); }

  /// Of a buffer, beside the kernel.
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
  };
  /// One rank's part of an operation, after what is on its stream; or its part in messages, all of
  /// one group, after what is on any of the streams.
  struct Part {
    int rank = 0;
    device::DeviceBinding binding;
    std::vector<Copy> before, after;  // the kernel, on the first of its streams
    std::vector<device::DeviceMessage> messages;
    std::vector<device::Stream> streams;  // at least one
  };
  /// One kernel for the parts of some ranks, in the order of all their streams. Does not wait. Each
  /// rank's parts come from one thread at a time. Throws Error; then nothing was launched.
  void launch(std::span<const Part> parts);
  void launch_messages(std::span<const Part> parts);

  /// Makes all kernels, also later ones, leave their waits. From any thread.
  void abort();
  /// Fails the communicator where a kernel of any rank has, and stops them all. Does not wait. From
  /// any thread.
  void note_failure(LocalGroup& group);

 private:
  friend struct DeviceTeams;  // joins, leaves

  using Executors = std::vector<std::unique_ptr<device::Executor>>;

  /// Those of the process's ranks; fills index_.
  Executors make_executors(const LocalGroup& group);
  device::Executor& executor(int rank) {
    return *executors_[index_[static_cast<std::size_t>(rank)]];
  }
  /// The one of a rank's whose links its collectives take.
  device::Executor& collective_executor(int rank) {
    return peers_.collectives_through_host() ? peers_.host()->executor(rank) : executor(rank);
  }
  /// Throws where the launch of only some ranks would wait for that of others.
  void check_default_stream(std::span<const Part> parts) const;
  /// Throws where a launch of only some ranks would wait, on its stream, for one that waits for it.
  void check_stream(std::span<const Part> parts);
  void enqueue(std::span<const Part> parts, std::span<const device::RankLaunch> launches,
               DataType type);
  /// What has gone wrong in a kernel of any rank.
  std::optional<Error> failure() const;
  /// Which kernel waits for long. By the watching thread.
  std::optional<device::Executor::LateRank> late();
  /// Fails the communicator where a kernel has, or a process, and stops all kernels where it has;
  /// tells what waits for long, and hears of others' windows.
  void look(LocalGroup& group);
  void join(LocalGroup& group, const WaitPolicy& policy);
  /// Whether that was the last one.
  bool leave(LocalGroup& group);
  /// Waits for the GPU, and unmaps what is others'.
  void end(LocalGroup& group);

  std::shared_ptr<device::Device> gpu_;
  int ordinal_;
  device::SegmentShape shape_;
  std::vector<std::size_t> index_;  // by rank, of its executor
  Executors executors_;
  std::unique_ptr<DeviceWindows> windows_;  // of a communicator that spans processes
  DevicePeers peers_;
  std::shared_ptr<DeviceWatch> watch_;

  // The newest launches of each executor, by number.
  struct Launched {
    std::uint64_t number = 0;  // from 1
    device::Stream stream = nullptr;
  };
  static constexpr std::size_t kRemembered = 64;
  int joined_ = 0;    // DeviceTeams' mutex
  std::mutex mutex_;  // of what follows
  std::vector<std::vector<Launched>> launched_;
  std::vector<std::uint64_t> launches_;
};

/// Rank group.rank() takes part from now on: in the team of its communicator and process, which
/// `make` makes for the first that asks. `policy`: of its waits.
std::shared_ptr<DeviceTeam> join_device_team(
    LocalGroup& group, const WaitPolicy& policy,
    const std::function<std::shared_ptr<DeviceTeam>()>& make);
/// And no longer. The last one waits for the GPU. The memory that this process shares is kept until
/// other processes have let go of it, for which nobody waits but a process that exits, for 2 s.
void leave_device_team(const std::shared_ptr<DeviceTeam>& team, LocalGroup& group);
/// The team of a communicator in this process, else null.
std::shared_ptr<DeviceTeam> find_device_team(const LocalGroup& group);

}  // namespace tutti
