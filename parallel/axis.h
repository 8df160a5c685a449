// Axis: the ranks along one dimension of a mesh of ranks (data, tensor, pipeline ...), as the
// engines of this folder see them: collectives that are started ahead and waited for where their
// result is needed, and are counted. Beneath it is a Communicator, or whatever else a program has
// (an NCCL communicator, to be measured beside Tutti): start() is all that it has to know.
//
// Counts are in elements, buffers belong to the operation until its Pending was waited for, and all
// ranks of the axis start the same operations in the same order, as in Communicator. One thread at
// a time uses an axis. Functions throw tutti::Error.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "../comm/communicator.h"

namespace tutti::parallel {

/// What a rank has had carried over an axis. Bytes are counted as an algorithm moves them that is
/// optimal in bandwidth: with P ranks and n bytes of the whole buffer, an all-reduce sends (and
/// receives) 2 (P - 1) / P n, an all-gather or reduce-scatter (P - 1) / P n. A broadcast counts n
/// for its root as sent, and for the others as received; a point-to-point message what it is.
struct Traffic {
  struct Count {
    std::uint64_t calls = 0, sent = 0, received = 0;  // bytes
    Count& operator+=(const Count& other);
  };
  std::array<Count, kCollectives>
      of{};                            // by Collective; all_reduce has the index that it has there
  std::chrono::nanoseconds waited{0};  // in Pending::wait(): communication that was exposed

  Count& operator[](Collective c) { return of[static_cast<std::size_t>(c)]; }
  const Count& operator[](Collective c) const { return of[static_cast<std::size_t>(c)]; }
  Count total() const;
};

class Axis;

/// A started operation. Movable; destroying it without wait() leaves the operation to itself.
class Pending {
 public:
  /// What an axis has to wait for.
  class Work {
   public:
    virtual ~Work() = default;
    virtual bool ready() = 0;
    virtual void wait() = 0;
  };

  Pending() = default;  // of nothing: ready
  Pending(Axis& axis, std::unique_ptr<Work> work) : axis_(&axis), work_(std::move(work)) {}
  explicit operator bool() const { return work_ != nullptr; }
  /// Never blocks.
  bool ready() const { return !work_ || work_->ready(); }
  /// Blocks until the result is there; throws the operation's error. A second time: nothing.
  void wait();

 private:
  Axis* axis_ = nullptr;
  std::unique_ptr<Work> work_;
};

class Axis {
 public:
  virtual ~Axis() = default;
  Axis(const Axis&) = delete;
  Axis& operator=(const Axis&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// As the functions of Communicator with these names.
  Pending all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op = {});
  Pending all_gather(const void* in, void* out, std::size_t count, DataType type);
  Pending reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                         ReduceOp op = {});
  Pending broadcast(const void* in, void* out, std::size_t count, DataType type, int root);
  Pending all_to_all(const void* in, void* out, std::size_t count, DataType type);
  Pending send(const void* in, std::size_t count, DataType type, int peer);
  Pending recv(void* out, std::size_t count, DataType type, int peer);
  Pending start(const Call& call);

  /// Makes what all ranks have under way on the axis fail, and what they start on it later, as far
  /// as what is beneath has a way to.
  virtual void abort(std::string_view /*reason*/) {}

  const Traffic& traffic() const { return traffic_; }
  void reset_traffic() { traffic_ = {}; }

 protected:
  Axis(int rank, int size) : rank_(rank), size_(size) {}
  /// Starts it; null where it was over at once.
  virtual std::unique_ptr<Pending::Work> begin(const Call& call) = 0;

 private:
  friend class Pending;
  void count(const Call& call);

  const int rank_, size_;
  Traffic traffic_;
};

/// The ranks of a communicator, which has to outlive it.
class CommunicatorAxis final : public Axis {
 public:
  explicit CommunicatorAxis(Communicator& comm) : Axis(comm.rank(), comm.size()), comm_(comm) {}
  Communicator& communicator() { return comm_; }
  void abort(std::string_view reason) override { comm_.abort(reason); }

 private:
  std::unique_ptr<Pending::Work> begin(const Call& call) override;

  Communicator& comm_;
};

}  // namespace tutti::parallel
