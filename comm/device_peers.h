// The segments of a communicator's ranks, as one process's kernels address them: its own ranks' as
// they are, those of other processes mapped when a call first needs them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "collectives/execute/cuda/executor.h"
#include "comm/device_board.h"

namespace tutti {

class DevicePeers {
 public:
  /// `executors`: of this process's ranks, which are connected to each other here, and shown to the
  /// other processes. Throws Error.
  DevicePeers(LocalGroup& group, device::Device& gpu, const device::SegmentShape& shape,
              std::span<const std::unique_ptr<device::Executor>> executors);

  /// Returns when the memory of `ranks` is mapped, which waits for their processes' first call on
  /// GPU memory; 0: without limit. Throws Error: peer_lost, timed_out, or what has failed the
  /// communicator.
  void reach(LocalGroup& group, std::span<const int> ranks, std::chrono::nanoseconds timeout);

  bool spans_processes() const { return spans_processes_; }
  /// Unmaps everything; when nothing runs any more. No other call after it.
  void leave();
  /// Whether others may still have this process's memory mapped, after leave().
  bool are_using_ours() const { return board_.is_mapped(); }

 private:
  void show(LocalGroup& group);
  /// Whether rank `rank` is connected; connects it if its card is there.
  bool connect(LocalGroup& group, int rank);
  void map(LocalGroup& group, int rank, const DeviceBoard::Card& card);
  void agree_on_blocks();

  device::Device& gpu_;
  device::SegmentShape shape_;
  std::span<const std::unique_ptr<device::Executor>> executors_;
  DeviceBoard board_;
  bool spans_processes_ = false;
  std::mutex mutex_;  // of what follows
  std::vector<DeviceBoard::Card> cards_;
  std::vector<bool> connected_;
  std::size_t missing_ = 0;  // that are not
  std::vector<device::Mapping> mappings_;
};

}  // namespace tutti
