// The ranks of one communicator on one host: a segment of shared memory each, with the control
// block and the first connections that lead to that rank.
//
//     ControlBlock | from rank 0: messages, channel 0, channel 1, ... | from rank 1: messages, ...
//
// `messages` is the connection of send and recv. Connections of the channels after the first few,
// which only users' plans have, lie in further segments, made when the receiver first uses one
// (receiver()) and sent to the senders, who need not have them before they want to send.
//
// Segments are sparse: connections that are never used take no memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/fork.h"
#include "transport/connection.h"
#include "transport/cuda_ipc.h"
#include "transport/mesh.h"
#include "transport/remark.h"
#include "transport/shared_memory.h"

namespace tutti {

/// Channels 0 to 254 belong to plans, the last one to send and recv.
inline constexpr int kPlanChannels = 255;
inline constexpr int kMessageChannel = kPlanChannels;
/// Those of plans that have their connections in the first segment: enough for all of ours.
inline constexpr int kFirstChannels = 8;
/// The others lie in further segments: 8 to 15 in segment 1, 16 to 31 in 2, ... 128 to 255 in 5.
constexpr std::size_t segment_of(int channel) {
  return static_cast<std::size_t>(
      std::bit_width(static_cast<unsigned>(channel) / unsigned{kFirstChannels}));
}
inline constexpr std::size_t kFurtherSegments = segment_of(kPlanChannels - 1);

/// The first failure of a communicator: written once, read by everyone.
struct Failure {
  ErrorCode code = ErrorCode::internal;
  int rank = -1;
  std::string text;
};

/// What a rank says about its current operations, for others to compare and to report.
struct alignas(kCacheLine) OperationRecord {
  std::atomic<std::uint64_t> sequence;  // 1 + the operation's number; 0: never used
  std::array<std::atomic<std::uint64_t>, 6> words;
};
inline constexpr std::size_t kRecords = 64;  // the newest operations of a rank

/// The newest of these; 0: none.
std::uint64_t newest_sequence(const std::array<OperationRecord, kRecords>& records);

/// The counts of a rank's newest call with uneven blocks, of collectives on memory of the host.
struct alignas(kCacheLine) UnevenCounts {
  static constexpr std::size_t kBlocks = 256;  // of more ranks, these
  std::atomic<std::uint64_t> sequence;         // the operation's; 0: none, or being written
  std::array<std::atomic<std::uint64_t>, kBlocks> in, out;
};

/// What the others are told of a rank's memory on a GPU (device/board.h).
struct alignas(kCacheLine) DeviceCard {
  std::atomic<std::uint32_t> state;
  std::uint32_t most_blocks;
  std::int32_t carrier;
  std::array<std::uint64_t, 2> gpu;
  CudaMemoryHandle segment;
};

struct ControlBlock {
  // A rank that sleeps says so, and whoever publishes to it rings the bell (futex).
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;
  std::atomic<std::uint32_t> bell;
  alignas(kCacheLine) std::atomic<std::uint64_t> progress;  // see progress_of()
  std::atomic<std::uint32_t> core;  // 1 + where it waited last, if ranks share cores; 0: unknown
  std::int32_t gpu;                 // LocalRank's; with kJoined
  // Of a wait that takes long: for whom (1 + rank), and when it has last looked (steady clock, ns).
  std::atomic<std::uint32_t> waits_for;
  std::atomic<std::int64_t> waited_at;
  alignas(kCacheLine) std::atomic<std::uint32_t> state;  // Presence bits
  // Only rank 0's is used.
  alignas(kCacheLine) std::atomic<std::uint32_t> failure_state;  // 0 none, 1 being written, 2 there
  std::atomic<std::uint32_t> failure_code;
  std::atomic<std::int32_t> failure_rank;
  std::array<char, 1024> failure_text;
  // Of collectives on memory of the host, and of those on GPUs: each are numbered from 1.
  std::array<OperationRecord, kRecords> records;
  std::array<OperationRecord, kRecords> device_records;
  DeviceCard device;
  UnevenCounts uneven;
  // For messages. A call that was refused here, with the number that it would have had; what this
  // rank waits for in another communicator, with the time (steady_clock); the ranks that its newest
  // shrink() excludes (comm/shrink.h).
  Remark refused;
  Remark elsewhere;
  Remark shrinking;
};

/// How far a rank is, in one word: `step` steps of its operation `operation` are done.
inline constexpr int kStepBits = 24;
constexpr std::uint64_t progress_of(std::uint64_t operation, std::uint64_t step) {
  return operation << kStepBits | step;
}

/// What a rank says of itself when it joins.
struct LocalRank {
  bool allows_cma = true;
  int gpu = -1;  // that its buffers will be on, as this process numbers them; -1: not known
};

enum Presence : std::uint32_t { kJoined = 1, kCmaWorks = 2, kLeft = 4 };

class LocalGroup {
 public:
  /// Collective over the ranks: `members` are their numbers in the mesh, by rank here; `keys` name
  /// their segments and differ from all others of the mesh. Throws Error.
  LocalGroup(std::shared_ptr<Mesh> mesh, int rank, std::vector<int> members,
             std::vector<std::uint64_t> keys, ConnectionShape shape, const LocalRank& says,
             Deadline deadline);
  ~LocalGroup();
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  ConnectionShape shape() const { return shape_; }
  Mesh& mesh() { return *mesh_; }
  const std::shared_ptr<Mesh>& shared_mesh() const { return mesh_; }
  /// The ranks' numbers in the mesh.
  std::span<const int> members() const { return members_; }
  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  /// Names rank `rank`'s segment.
  std::uint64_t key(int rank) const { return keys_[static_cast<std::size_t>(rank)]; }
  bool same_process(int rank) const { return mesh_->same_process(member(rank)); }
  pid_t pid(int rank) const { return mesh_->pid(member(rank)); }
  /// Whether all ranks are threads of this process.
  bool one_process() const { return one_process_; }
  /// Whether every rank can read and write every other's plain memory.
  bool cma_everywhere() const { return cma_everywhere_; }

  /// The ends of links; they stay where they are. Neither waits: a sender without a connection yet
  /// has no room. receiver() throws Error where there is no memory for its connection.
  Sender& sender(int peer, int channel) {
    return lies_first(channel) ? senders_[index(peer, channel)] : further_sender(peer, channel);
  }
  Receiver& receiver(int peer, int channel) {
    return lies_first(channel) ? receivers_[index(peer, channel)] : further_receiver(peer, channel);
  }
  ControlBlock& control(int rank) { return *controls_[static_cast<std::size_t>(rank)]; }
  ControlBlock& control() { return *controls_[static_cast<std::size_t>(rank_)]; }

  /// Rank `rank`'s segment, in which its control block lies.
  const std::shared_ptr<SharedMemory>& segment(int rank) const {
    return segments_[static_cast<std::size_t>(rank)];
  }

  /// Whether somebody has failed; one load of a line that is otherwise never written.
  bool failed() const { return controls_[0]->failure_state.load(std::memory_order_relaxed) != 0; }
  /// Records `failure` unless there is one already.
  void fail(const Failure& failure);
  /// The failure; waits (briefly) for one that is being written.
  Failure failure() const;
  /// Throws the failure as an Error.
  [[noreturn]] void throw_failure() const;

  /// Wakes the rank that owns `c` if it sleeps. Called after a message was published or a slot
  /// freed.
  static void ring(ControlBlock& c) {
    // relaxed, without a fence: a bell that is missed costs the sleeper its time-out (1 ms).
    if (c.sleeping.load(std::memory_order_relaxed) != 0) ring_now(c);
  }
  /// Sleeps until this rank's bell rings in one of `groups`, at most a millisecond, unless `ready`
  /// already holds.
  template <class Ready>
  static void sleep_unless(std::span<LocalGroup* const> groups, Ready&& ready) {
    groups = groups.first(std::min(groups.size(), kMostBells));
    std::array<std::uint32_t, kMostBells> bells;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      bells[g] = groups[g]->control().bell.load(std::memory_order_relaxed);
      groups[g]->control().sleeping.store(1, std::memory_order_seq_cst);
    }
    if (!ready()) sleep_now(groups, bells);
    for (LocalGroup* g : groups) g->control().sleeping.store(0, std::memory_order_relaxed);
  }

  /// This rank waits for `peer`, for others to know.
  void publish_wait(int peer, std::chrono::steady_clock::time_point now) {
    control().waits_for.store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_relaxed);
    control().waited_at.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// Whom a rank that waits for `peer` waits for in the end: `peer`, or whom that one waits for,
  /// and so on, to the first that has not waited since `recently`. Where they wait in a circle:
  /// `peer`.
  int end_of_line(int peer, std::chrono::steady_clock::time_point recently);

  /// "step 3 of its operation #12": the last one that rank `peer` has finished.
  std::string progress_text(int peer);

  /// "; a call of rank 1 was refused: ...", if that is the last thing that rank `peer` has called;
  /// else "".
  std::string refusal_text(int peer);
  /// Lets the other communicators of this rank know that it is `doing` something in this one.
  void say_waiting(std::string_view doing);
  /// "; that rank is itself waiting, in another communicator: ...", if it says so; else "".
  std::string elsewhere_text(int peer);

  /// For those who wait, now and then: exchanges with the peers what the mesh has for them, and
  /// looks who is dead (system calls). A dead process that had not left is a failure of the
  /// communicator, in which this rank was `doing` something.
  void check_peers(std::string_view doing);
  /// Whether this process is a child, by fork(), of the one that made this object.
  bool is_inherited() const { return process_generation() != generation_; }
  bool has_left(int peer) {
    return (control(peer).state.load(std::memory_order_acquire) & kLeft) != 0;
  }

 private:
  static constexpr bool lies_first(int channel) {
    return channel < kFirstChannels || channel == kMessageChannel;
  }
  /// Rank `rank`'s segment, or null when it has not come by then.
  std::shared_ptr<SharedMemory> receive_segment(int rank, Deadline deadline);
  void receive_segments(Deadline deadline);
  void wait_for_all_to_join(Deadline deadline);
  [[noreturn]] void throw_absent(int rank, bool died) const;
  /// The ranks whose process is gone, or about to be, whether they had left or not.
  std::vector<int> ending_ranks() const;
  static constexpr std::size_t kMostBells = 64;  // more ring unheard: see sleep_unless()
  static constexpr std::size_t kConnections =
      kFirstChannels + 1;  // from a rank, in a first segment
  static std::size_t index(int peer, int channel) {
    const int connection = channel == kMessageChannel ? 0 : 1 + channel;
    return static_cast<std::size_t>(peer) * kConnections + static_cast<std::size_t>(connection);
  }
  Sender& further_sender(int peer, int channel);
  Receiver& further_receiver(int peer, int channel);
  std::uint64_t further_key(int rank, std::size_t segment) const;
  std::size_t further_bytes(std::size_t segment) const;
  /// Where the connection from `sender` on `channel` lies in a further segment.
  std::byte* further_connection(const SharedMemory& memory, int sender, int channel) const;
  /// The memory of the connection to `peer`; null before it has come.
  std::byte* look_for(int peer, int channel);
  static void ring_now(ControlBlock& c);
  static void sleep_now(std::span<LocalGroup* const> groups, std::span<const std::uint32_t> bells);

  std::shared_ptr<Mesh> mesh_;
  std::uint32_t generation_ = process_generation();
  int rank_;
  std::vector<int> members_;
  std::vector<std::uint64_t> keys_;
  ConnectionShape shape_;
  bool cma_everywhere_ = true;
  bool one_process_ = true;
  bool alone_in_process_ = true;  // no other rank of it is in this process
  std::vector<std::shared_ptr<SharedMemory>> segments_;
  std::vector<ControlBlock*> controls_;
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
  // Of the channels after the first few, as they are used; by peer and channel.
  struct FurtherSegment {
    std::shared_ptr<SharedMemory> mine;
    std::vector<bool> sent;  // by rank: whether it was told of mine
    std::map<int, std::shared_ptr<SharedMemory>> theirs;
  };
  std::array<FurtherSegment, kFurtherSegments> further_;
  std::map<std::pair<int, int>, Sender> further_senders_;
  std::map<std::pair<int, int>, Receiver> further_receivers_;
};

}  // namespace tutti
