// Axis: the ranks along one dimension of a mesh of ranks (data, tensor, pipeline ...), as the
// engines of this folder see them. Engines start collectives ahead and wait where they need the
// result; the axis counts and traces them. A Communicator lies beneath it, or another library (an
// NCCL communicator, for a measurement beside Tutti): it only has to offer begin().
//
// Counts are in elements, buffers belong to the operation until its Pending was waited for, and all
// ranks of the axis start the same operations in the same order, as in Communicator. One thread at
// a time uses an axis. Functions throw tutti::Error.
//
// On memory of a GPU (use()) nobody waits on the host. An operation runs on a stream of the axis,
// after all that the program's stream (Device::current()) had when it was started, and beside what
// comes there later. Pending::wait() makes the program's stream wait for it. So memory that is
// freed afterwards, and used again on either stream, is used only after the operation. A later call
// of the axis throws a failure of the operation. Collectives have one stream. Messages to a peer
// have a stream of their own, and so have those from it: a receive that is started early holds up
// later messages of that peer alone.
#pragma once

#include <tutti/comm/communicator.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device.h"
#include "trace.h"

namespace tutti::parallel {

/// The limit for a model, or a message: its padded size in bytes still fits into a number.
inline constexpr double kMostElements = 1e14;

/// The traffic of a rank over an axis.
struct Traffic {
  struct Count {
    std::uint64_t calls = 0, sent = 0, received = 0;  // bytes
    Count& operator+=(const Count& other);
    bool operator==(const Count&) const = default;
  };
  std::array<Count, kCollectives> of{};
  std::chrono::nanoseconds waited{0};  // for results, and in run(): exposed communication

  Count& operator[](Collective c) { return of[static_cast<std::size_t>(c)]; }
  const Count& operator[](Collective c) const { return of[static_cast<std::size_t>(c)]; }
  Count total() const;
};

/// The bytes that rank `rank` of `size` sends and receives in `call`, by an algorithm that is
/// optimal in bandwidth: with P ranks and n bytes of the whole buffer, an all-reduce sends (and
/// receives) 2 (P - 1) / P n, an all-gather, reduce-scatter or all-to-all (P - 1) / P n. A
/// broadcast counts n for its root as sent, and for the others as received; a reduce the other way
/// round; gather and scatter count the root's data of the others. A point-to-point message counts
/// its size. Of a compressed call n is the compressed size (core/compressed.h). Fractions of a byte
/// are dropped.
Traffic::Count traffic_of(const Call& call, int rank, int size);

class Axis;

/// A started operation, of an axis that outlives it. Movable; destroying it without wait() leaves
/// the operation to itself.
class Pending {
 public:
  /// The work that a Pending waits for.
  class Work {
   public:
    virtual ~Work() = default;
    virtual bool ready() = 0;
    virtual void wait() = 0;
    /// Runs `callback` when the work is over, on any thread; false if that cannot be known.
    virtual bool on_ready(const std::function<void()>& callback);
  };

  Pending() = default;  // of nothing: ready
  Pending(Axis& axis, std::unique_ptr<Work> work, std::string label = {})
      : axis_(&axis), work_(std::move(work)), label_(std::move(label)) {}
  explicit operator bool() const { return work_ != nullptr; }
  /// Never blocks.
  bool ready() const { return !work_ || work_->ready(); }
  /// Blocks until the result is there; throws the operation's error. A second time: nothing. On a
  /// GPU the stream current() waits, and the host does not.
  void wait();
  /// As Work::on_ready().
  bool on_ready(const std::function<void()>& callback);

 private:
  Axis* axis_ = nullptr;
  std::unique_ptr<Work> work_;
  std::string label_;  // for the trace
};

/// The name of an axis for people, and its ranks: ranks of a mesh have other numbers than ranks of
/// the axis.
struct AxisName {
  std::string name{};        // "tp"; "": errors say nothing of the axis
  std::vector<int> ranks{};  // of the mesh, by rank of the axis; none: the same
};

class Axis {
 public:
  virtual ~Axis() = default;
  Axis(const Axis&) = delete;
  Axis& operator=(const Axis&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The number in the mesh of a rank of the axis. Errors have these numbers.
  int world_rank(int rank) const;
  const AxisName& axis_name() const { return name_; }

  /// From now on calls may be on memory of this device, too, which outlives the axis. Before
  /// engines are made on the axis; the same kind of device on all ranks.
  void use(Device& device);
  Device& device() const { return *device_; }

  /// A Call::label for the calls of an engine, from its constructor, which is collective: so a rank
  /// that calls two engines of one shape in another order than the others is told so, and no engine
  /// takes another one's data. `what` is the engine's name, the same on all ranks.
  std::uint16_t new_label(std::string_view what);

  /// As the functions of Communicator with these names.
  Pending all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op = {});
  Pending all_gather(const void* in, void* out, std::size_t count, DataType type);
  Pending reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                         ReduceOp op = {});
  Pending broadcast(const void* in, void* out, std::size_t count, DataType type, int root);
  Pending all_to_all(const void* in, void* out, std::size_t count, DataType type);
  Pending send(const void* in, std::size_t count, DataType type, int peer, std::uint16_t label = 0);
  Pending recv(void* out, std::size_t count, DataType type, int peer, std::uint16_t label = 0);
  /// `label` names its purpose in the trace ("bucket 3").
  Pending start(const Call& call, std::string_view label = {});
  /// Runs the call and waits for it: for callers that have nothing else to do meanwhile. No other
  /// thread takes it over, so it is over sooner.
  void run(const Call& call, std::string_view label = {});

  /// Makes all present and later operations of all ranks on the axis fail, if the library beneath
  /// has a way to.
  virtual void abort(std::string_view /*reason*/) {}

  /// Throws the failure of the axis, if it has one: for callers that have waited for a GPU
  /// (Device::read()), to which work that has failed looks like work that is over.
  void check_failure() const;

  const Traffic& traffic() const { return traffic_; }
  void reset_traffic() { traffic_ = {}; }

  /// Records operations and waits from now on, on tracks that begin with `track`; null: stops
  /// recording. The axis may record an operation only after the wait for the next one.
  void trace(std::shared_ptr<Trace> trace, std::string track);
  const std::shared_ptr<Trace>& trace() const { return trace_; }

 protected:
  using Clock = std::chrono::steady_clock;
  Axis(int rank, int size, AxisName name = {}) : rank_(rank), size_(size), name_(std::move(name)) {}
  /// Starts it; null if it was over at once.
  virtual std::unique_ptr<Pending::Work> begin(const Call& call) = 0;
  /// Carries it out on this thread.
  virtual void run_now(const Call& call);
  /// Puts a call on memory of a GPU on `stream`. Throws Error(invalid_usage) for an axis that
  /// cannot.
  virtual void enqueue(const Call& call, Device::Stream stream);
  virtual void throw_failure() const {}
  /// Streams of a GPU: by peer, and whether they send; -1: of collectives.
  using Streams = std::map<std::pair<int, bool>, std::shared_ptr<void>>;
  /// The streams of all axes on the same ranks, whose operations keep one order.
  virtual std::shared_ptr<Streams> shared_streams() { return std::make_shared<Streams>(); }

 private:
  friend class Pending;
  void count(const Call& call);
  bool is_on_gpu(const Call& call) const;
  /// Puts it on its stream; what comes on current() may wait for the event.
  std::unique_ptr<Pending::Work> begin_on_gpu(const Call& call);
  Device::Stream stream_of(const Call& call);
  std::unique_ptr<Pending::Work> begin_anywhere(const Call& call) {
    return is_on_gpu(call) ? begin_on_gpu(call) : begin(call);
  }
  /// Its lifetime counts as time waited.
  class Wait;
  /// Runs `body`. Adds the axis to its exception, and gives the culprit its number in the mesh.
  template <class Body>
  auto named(const Body& body) const;

  const int rank_, size_;
  const AxisName name_;
  Traffic traffic_;
  std::shared_ptr<Trace> trace_;
  std::string track_;
  Device* device_ = &host_device();
  std::uint64_t engines_ = 0;         // that have a label
  std::shared_ptr<Streams> streams_;  // of the device; each from its first use on
};

/// The ranks of a communicator, which has to outlive it. There may be several on it: they share
/// their streams, and one thread at a time uses them.
class CommunicatorAxis final : public Axis {
 public:
  explicit CommunicatorAxis(Communicator& comm, AxisName name = {})
      : Axis(comm.rank(), comm.size(), std::move(name)), comm_(comm) {}
  Communicator& communicator() { return comm_; }
  void abort(std::string_view reason) override { comm_.abort(reason); }

 private:
  std::unique_ptr<Pending::Work> begin(const Call& call) override;
  void run_now(const Call& call) override { comm_.run(call); }
  void enqueue(const Call& call, Device::Stream stream) override { comm_.run(call, stream); }
  void throw_failure() const override;
  std::shared_ptr<Streams> shared_streams() override;

  Communicator& comm_;
};

/// The label of call `number` of an engine with `label`.
std::uint16_t label_of(std::uint16_t label, std::uint64_t number);

/// Runs `body`, this rank's part of a collective call of the engine `what`. If it throws, the other
/// ranks of the axes (null: of none), which wait for this one, fail with its error.
void or_abort(std::initializer_list<Axis*> axes, std::string_view what,
              const std::function<void()>& body);

/// A call with the arguments of all_reduce and its relatives.
Call call_of(Collective collective, const void* in, void* out, std::size_t count, DataType type,
             ReduceOp op = {});

}  // namespace tutti::parallel
