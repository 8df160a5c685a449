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
  ~DevicePeers() { leave(); }
  DevicePeers(const DevicePeers&) = delete;
  DevicePeers& operator=(const DevicePeers&) = delete;

  /// Returns when the kernels of `mine`, ranks of this process whose calls this thread makes, can
  /// address the memory of `ranks`. Waits for the first call on GPU memory of the processes that
  /// have it; `timeout` 0: without limit. Throws Error: peer_lost, timed_out, or what has failed
  /// the communicator.
  void reach(LocalGroup& group, std::span<const int> mine, std::span<const int> ranks,
             std::chrono::nanoseconds timeout);

  bool spans_processes() const { return spans_processes_; }
  /// Unmaps everything; when nothing runs any more. Then only are_using_ours() has a meaning.
  void leave();
  /// Whether others may still have this process's memory mapped, after leave().
  bool are_using_ours() const { return board_.is_mapped(); }

 private:
  struct Peer {
    DeviceBoard::Card card;
    std::byte* segment = nullptr;  // as it is addressed here; null: not known yet
    device::Mapping mapping;       // of another process's
  };

  void show(LocalGroup& group);
  /// Whether `mine` are connected to rank `rank`; connects them if its card is there.
  bool connect(LocalGroup& group, std::span<const int> mine, int rank);
  void map(LocalGroup& group, int rank, const DeviceBoard::Card& card);
  /// The blocks that every rank may have, once all cards are known.
  std::uint32_t agreed_blocks() const;

  device::Device& gpu_;
  device::SegmentShape shape_;
  std::span<const std::unique_ptr<device::Executor>> executors_;
  DeviceBoard board_;
  bool spans_processes_ = false;
  std::mutex mutex_;  // of what follows
  std::vector<Peer> peers_;
  std::size_t missing_ = 0;  // whose segments are not known
  // By rank of this process, and peer. An executor is touched by the thread that makes its calls.
  std::vector<std::vector<bool>> connected_;
};

}  // namespace tutti
