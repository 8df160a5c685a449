// The ranks of a communicator that are threads of this process, on the GPU that they share, or on
// several: an executor each, and launches of one or several of those on a GPU. There is one object
// per communicator and process. It lives until the last of these ranks has left, because the
// others' kernels may still write into a rank's segment. It also lives until all data that its
// kernels have sent through the host, to other processes or hosts, are on their way.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "device/executors.h"
#include "device/peers.h"
#include "device/watch.h"
#include "device/windows.h"

namespace tutti {

/// The segments of a communicator's ranks on GPUs.
device::SegmentShape device_segment(int ranks);

class DeviceTeam {
 public:
  /// `ordinals`: CUDA's numbers of the GPUs, by rank, of this process's ranks. `open`: gives one.
  /// Throws Error: invalid_argument for more ranks than fit one launch, or GPUs that cannot reach
  /// each other.
  DeviceTeam(RankGroup& group, std::vector<int> ordinals,
             const std::function<std::shared_ptr<device::Device>(int ordinal)>& open);

  int ordinal(int rank) const { return ordinals_[static_cast<std::size_t>(rank)]; }

  /// How this process's ranks reach the others.
  DevicePeers& peers() { return peers_; }
  bool is_capturing(int rank, device::Stream stream) const {
    return executors_.of(rank).device().is_capturing(stream);
  }

  /// Null where all ranks are in this process, on one GPU: they address its memory as it is. Null,
  /// too, where some are on other hosts: all ranks would have to agree on the calls that go through
  /// windows.
  DeviceWindows* windows() const { return windows_.get(); }

  /// A copy of a buffer, beside the kernel.
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
  /// One kernel on each GPU for the parts of its ranks, in the order of all their streams, and
  /// after the rank's earlier collectives, on whatever streams those are; messages after those to
  /// and from the same peer. (Of what is captured: in the same graph.) Does not wait. Each rank's
  /// parts come from one thread at a time. Throws Error; then the kernels of some GPUs may have
  /// been launched, and wait for the others.
  void launch(std::vector<Part> parts);
  void launch_messages(std::vector<Part> parts);

  /// Of the kernels that the end of `rank` waits for: its own, and, where no other rank takes part
  /// any more, all others': whether one runs. From any thread.
  bool is_running(int rank);
  /// Waits for them. (Those of a team that was aborted end soon.)
  void wait(int rank);

  /// Makes all kernels, also later ones, leave their waits. From any thread.
  void abort();
  /// Fails the communicator where a kernel of any rank has, and stops them all. Does not wait. From
  /// any thread.
  void note_failure(RankGroup& group);

 private:
  friend struct DeviceTeams;  // joins, leaves

  using Parts = std::span<const Part>;  // of ranks on one GPU, where nothing else is said

  DeviceExecutors make_executors(
      const Members& group,
      const std::function<std::shared_ptr<device::Device>(int ordinal)>& open);
  /// The one of a rank's executors that has the links of its collectives.
  device::Executor& collective_executor(int rank) {
    return peers_.collectives_through_host() ? peers_.host()->executor(rank) : executors_.of(rank);
  }
  /// The parts on each GPU.
  std::vector<Parts> by_gpu(std::vector<Part>& parts) const;
  /// Whether `parts` are those of all ranks of this process on their GPU.
  bool are_all(Parts parts) const;
  /// Throws where a launch of only some ranks would wait for the launch of the others.
  void check_default_stream(Parts parts) const;
  /// Throws where a launch of only some ranks would wait, on its stream, for one that waits for it.
  void check_stream(Parts parts);
  /// Links a part's rank to those on other hosts that its plan sends to, or receives from.
  void link(const Part& part);
  using Launches = std::vector<device::RankLaunch>;  // of ranks on one GPU
  Launches prepare(Parts parts);
  Launches prepare_messages(Parts parts);
  /// Puts what `preparation` makes of each GPU's parts on their streams: all is prepared first, as
  /// what that allocates may wait for a kernel that runs.
  void launch_each(const std::vector<Parts>& all, Launches (DeviceTeam::*preparation)(Parts),
                   DataType type);
  void enqueue(Parts parts, std::span<const device::RankLaunch> launches, DataType type);
  /// What of a rank's work keeps its order: its collectives (peer -1), its messages to a peer, or
  /// from one.
  struct Series {
    int rank = 0, peer = -1;
    bool sends = false;
    friend auto operator<=>(const Series&, const Series&) = default;
  };
  static std::vector<Series> series_of(const Part& part);
  /// The part's stream waits for the newest work of its series on other streams.
  void wait_for_newest(const Part& part);
  /// See is_running().
  std::vector<device::Event> newest_events(int rank);
  /// What has gone wrong in a kernel of any rank.
  std::optional<Error> failure() const;
  /// Which kernel waits for long. By the watching thread.
  std::optional<device::LateRank> late();
  /// Fails the communicator where a kernel or a process has failed, and stops all kernels of a
  /// failed communicator. Tells which kernels wait for long, and hears of others' windows.
  void look(RankGroup& group);
  void join(RankGroup& group, const WaitPolicy& policy);
  /// Whether that was the last one.
  bool leave(RankGroup& group);
  /// Waits for the GPU, and unmaps what is others'.
  void end(RankGroup& group);

  std::vector<int> ordinals_;  // by rank; -1: of another process
  device::SegmentShape shape_;
  DeviceExecutors executors_;
  std::unique_ptr<DeviceWindows> windows_;  // of a communicator that spans processes, or GPUs
  DevicePeers peers_;
  std::shared_ptr<DeviceWatch> watch_;

  // The newest launches of each executor, by number.
  struct Launched {
    std::uint64_t number = 0;                  // from 1
    std::optional<device::StreamPlace> place;  // none: of all ranks
  };
  static constexpr std::size_t kRemembered = 64;
  std::atomic<int> joined_{0};  // ranks; written with DeviceTeams' mutex
  std::mutex mutex_;            // of what follows
  std::set<std::pair<int, const RankPlan*>> linked_;
  // The newest work that runs, and the newest that was recorded into a graph.
  std::map<Series, std::array<device::Mark, 2>> newest_;
  std::vector<std::vector<Launched>> launched_;
  std::vector<std::uint64_t> launches_;
};

/// Rank group.rank() takes part from now on: in the team of its communicator and process, which
/// `make` makes for the first that asks. `policy`: of its waits.
std::shared_ptr<DeviceTeam> join_device_team(
    RankGroup& group, const WaitPolicy& policy,
    const std::function<std::shared_ptr<DeviceTeam>()>& make);
/// The rank takes part no longer. The last one waits for the GPU. The memory that this process
/// shares stays until other processes have let go of it. Nobody waits for that, except a process
/// that exits, for 2 s.
void leave_device_team(const std::shared_ptr<DeviceTeam>& team, RankGroup& group);
/// The team of a communicator in this process, else null.
std::shared_ptr<DeviceTeam> find_device_team(const Members& group);

}  // namespace tutti
