// An axis over a slow link, whose long all-gathers and broadcasts of floats travel coded: with the
// same bits at the end, and fewer bytes on the way. The exponents of trained weights have little
// entropy (weights/planes.h), so a bfloat16 takes 10.6 of 16 bits.
//
//     CodedAxis axis(comm);                               // in place of CommunicatorAxis
//     ShardedDataParallel model(units, Policy::fsdp(), {.shard = &axis});
//
// Such a call is cut into pieces: while two travel, the next is coded and the one before decoded,
// by a thread of the axis. What a piece takes is the most that one of the ranks sends; each piece
// says how long the next but one is. All other calls go as they are.
//
// Coding pays where the link is slower than the coder, 0.5 GB/s and core. The axis measures both
// ways when it is made, unless Options say what to do. A piece that is no shorter when it is coded
// travels as it is.
#pragma once

#include <tutti/comm/communicator.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "axis.h"

namespace tutti::parallel {

class CodedAxis final : public Axis {
 public:
  enum class When : unsigned char { measured, always, never };
  /// The same on all ranks.
  struct Choice {
    When when = When::measured;
    std::size_t least_bytes = 256 << 10;  // of a rank's part of a call
  };
  /// Collective over `comm`, which is not needed afterwards.
  explicit CodedAxis(Communicator& comm, AxisName name = {}) : CodedAxis(comm, name, Choice()) {}
  CodedAxis(Communicator& comm, AxisName name, Choice choice);
  /// Waits for started calls.
  ~CodedAxis() override;

  /// Whether long calls are coded, the same on all ranks.
  bool codes() const { return codes_; }
  /// What this rank has handed in to coded calls, and what it has sent of it to each other rank.
  struct Coded {
    std::uint64_t plain = 0, coded = 0;  // bytes
  };
  Coded coded() const;

  void abort(std::string_view reason) override { comm_.abort(reason); }

 private:
  class Queued;
  class Pieces;
  struct Stage;
  std::unique_ptr<Pending::Work> begin(const Call& call) override;
  void run_now(const Call& call) override;
  void throw_failure() const override;
  bool goes_coded(const Call& call) const;
  bool measure();
  void work();
  void run_coded(const Call& call);

  Communicator comm_;
  const Choice choice_;
  bool codes_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Queued>> queue_;  // collectives behind a coded one, in their order
  bool is_busy_ = false;                       // with a collective that has left the queue
  bool ends_ = false;
  Coded coded_;
  std::unique_ptr<Stage> stage_;
  std::thread thread_;  // the last: it uses the others
};

}  // namespace tutti::parallel
