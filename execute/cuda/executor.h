// The CUDA executor: one rank's plans on a device. prepare() binds a call (which is cached) and
// gives the rank's part of a launch; enqueue() puts one kernel for any number of ranks of this
// process on a stream. Nothing waits for the device.
//
//     Executor e(device, rank, shape, ranks_on_device);
//     e.connect(peer, its segment, as mapped here) ...    // before the first launch that needs it
//     enqueue(device, {{e.prepare(call, stream)}}, shape, type, stream);
//     if (auto failure = e.failure()) ...
//
// Operations of a communicator must reach the device in the same order on all ranks, one after the
// other: on one stream, or on streams that are ordered by events. The same is true of the sends to
// one rank, and of the receives from one, though they are no operations of all ranks. Kernels that
// no order holds apart run side by side, as far as their blocks fit on the device.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/needs.h"
#include "core/error.h"
#include "execute/cuda/device.h"
#include "execute/cuda/device_messages.h"
#include "execute/cuda/device_plan.h"
#include "execute/cuda/plan_cache.h"
#include "execute/cuda/report.h"

namespace tutti::device {

/// A call, ready to be bound. Its plan outlives the executor: it is known by its address.
struct DeviceBinding : BoundCall {
  std::size_t largest = 0;  // bytes of the largest buffer of any rank
  std::size_t block = 0;    // elements of the largest block of any rank
  bool link_data = true;    // the plan's links carry data, not only signals
  // Of a user's plan; 0 for ours. The same on all ranks:
  std::uint32_t plan_channels = 0;  // PlanNeeds::channels
  std::uint32_t tmp_chunks = 0;     // DataPath::tmp_chunks
  bool from_inputs = false;         // DataPath::from_inputs
  std::uint64_t signature = 0;      // what all ranks must agree on, hashed
  /// Where the buffers lie for the other ranks' kernels; window 0: their addresses are valid there.
  WindowOffset in_window, out_window;
  /// Where this rank's tmp lies, which the executor has put anywhere; none: its address.
  std::function<WindowOffset(const std::byte* tmp, std::size_t bytes)> tmp_window;
  // Limits of the executor's own choice; the same on all ranks.
  Protocols protocols;
  std::uint32_t most_blocks = 0;  // 0: none; at least one for each lane of the plan
  // Instead of that; the same on all ranks.
  std::optional<Protocol> protocol;
  std::uint32_t copies = 0;
};

/// Why a plan runs on no device, where ranks have such segments, in words; "": it can. (Some device
/// may have too few thread blocks for its lanes all the same.)
std::string unfit(const PlanHeader& plan, const PlanNeeds& needs, const SegmentShape& shape);

/// Bytes that a message may have where segments are in memory of the host and messages are copied
/// from there: enough to outweigh what a message costs, and little enough to be under way soon.
std::size_t host_slot_bytes(const SegmentShape& shape);

class Executor {
 public:
  /// `ranks_on_device`: of this process, so that the blocks of all fit.
  /// `host_segment`: instead of memory of the device, zeroed memory of the host that outlives this
  /// and that kernels can use. Then everything goes by Simple, in messages of host_slot_bytes() at
  /// most.
  Executor(Device& device, int rank, const SegmentShape& shape, int ranks_on_device,
           std::byte* host_segment = nullptr);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  int rank() const { return static_cast<int>(rank_); }
  Device& device() const { return device_; }
  /// This rank's segment, of shape.bytes(); for the other ranks to map.
  std::byte* segment() const { return segment_; }
  /// Once for each rank, itself included: its segment, as this rank's kernels address it.
  /// `whole_lines`: the link keeps a warp's 128-byte stores whole (LL128); both ends say the same,
  /// and if they say it of all links, so do all ranks.
  void connect(int peer, std::byte* segment, bool whole_lines = true);
  /// Of an executor with a host_segment, after connect(): the data of messages to and from `peer`
  /// lie elsewhere. By channel for data, where slot 0 of it lies; the others follow
  /// shape.simple_bytes apart. Empty: in the segments.
  void put_data(int peer, std::span<std::byte* const> out, std::span<std::byte* const> in);
  /// The blocks that the other ranks' devices have for each rank, if they are fewer: before the
  /// first prepare(), and the same number on all ranks.
  void limit_blocks(std::uint32_t most);
  /// Makes window `id` (from 1) of `peer` known here, before the first operation that names it.
  /// From any thread, also while kernels run.
  void add_window(int peer, std::uint32_t id, std::byte* base, std::size_t bytes);

  /// Binds a call and uploads its plan, if it is new. Throws Error(invalid_argument) where the plan
  /// does not fit the device.
  RankLaunch prepare(const DeviceBinding& binding, Stream stream);
  /// Prepares sends and receives that are in flight together. They need message channels, and
  /// connections to their peers alone. `shares`: of this rank's blocks, the launch may have this
  /// part.
  RankLaunch prepare(std::span<const DeviceMessage> messages, Stream stream,
                     std::uint32_t shares = 1);

  /// Of every wait from now on, also of kernels that run.
  struct Limits {
    std::chrono::nanoseconds timeout{0};  // 0: none
    std::chrono::nanoseconds late{0};     // a wait this long is told once; 0: none is
  };
  void set_limits(const Limits& limits);
  Limits limits() const;
  /// Makes kernels that run, and later ones, leave their waits.
  void abort();
  /// The first failure of a kernel of this rank: a sentence, as an Error to throw. Does not wait.
  std::optional<Error> failure() const { return failure_in(*control_, rank()); }
  /// See late_in().
  std::optional<LateRank> late() { return late_in(*control_, rank(), told_); }

  /// Plans on the device; for tests.
  std::size_t plans() const { return plans_.size(); }

 private:
  Choice choose_for(const DeviceBinding& binding, std::uint32_t plan_channels) const;
  /// The part of a launch that every kind has.
  RankLaunch launch_of(const PlanCache::Plan& plan) const;
  std::byte* tmp(std::size_t bytes);

  Device& device_;
  std::uint32_t rank_;
  SegmentShape shape_;
  bool on_host_;      // the segment
  SegmentShape cut_;  // what messages are cut by: the shape, but for what host_segment forbids
  std::uint32_t most_blocks_;
  std::vector<bool> whole_lines_;  // by peer
  std::byte* segment_ = nullptr;
  std::byte* segments_ = nullptr;  // the table of all segments, on the device
  // Of a host_segment: RankLaunch::data, on the device; and the peers' segments.
  std::byte* data_ = nullptr;
  std::vector<std::byte*> peers_;
  Control* control_ = nullptr;
  LateRank told_;
  PlanCache plans_;
  std::vector<std::byte*> tmps_;  // the newest last; graphs may use the others
  std::size_t tmp_bytes_ = 0;
};

/// One kernel for the parts of several ranks of this process, on one device and of one operation.
void enqueue(Device& device, std::span<const RankLaunch> ranks, const SegmentShape& shape,
             DataType type, Stream stream);

}  // namespace tutti::device
