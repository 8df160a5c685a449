// Reshard: weights that go from one layout into another, as often as the program wants.
//
//     Reshard weights(comm, trainer, server);   // all ranks; makes and proves the plan
//     for (each step) {
//       ...
//       weights.run(sources, destinations);     // all ranks; by buffer of the layouts
//     }
//
// The ranks that hold the source may be those that hold the target, some of them, or others. A rank
// passes the memory of its buffers of both layouts, by number of the buffer; null for buffers that
// it does not have. Types may differ: a float becomes the target's type on its way, with one
// rounding to nearest even.
//
// How data go. Between ranks whose memory is bound (bind()) and can be mapped, the receiver copies
// straight from the sender's memory into its own. All else goes in messages of the communicator:
// what lies in one run leaves from its place and arrives in its place; other moves are packed into
// slots.
//
// What a run leaves behind. When run() returns on a rank, its destinations are complete, and nobody
// reads its sources any more. A run that throws leaves destinations that are partly written;
// receivers that must never see these keep two sets of buffers, and turn to the new one after
// run().
//
// Memory of a GPU. Made over an axis (axis.h) whose device is a GPU, a Reshard moves memory of that
// GPU: boxes are packed, unpacked and converted by kernels there, and messages are the axis'. run()
// waits for all of it.
//
// Threading, and time: one thread at a time uses a Reshard. It has a communicator of its own, so
// the program's is free meanwhile. All ranks make, bind and run it in the same order. Waits end
// with ReshardOptions::timeout, with the death of a rank (within a second) and with abort(); after
// that the Reshard is unusable, as its communicator is. Functions throw tutti::Error.
#pragma once

#include <tutti/comm/communicator.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "layout.h"
#include "plan.h"

namespace tutti::parallel {
class Axis;
}

namespace tutti::parallel::reshard {

/// Recodes messages on the link, for links that are slower than the coder: of differences to what
/// the receiver has, or of bytes with little entropy. One object on each rank; it may keep state by
/// number of the message. A rank's messages are encoded one at a time, in the order of the plan,
/// and so are they decoded; an encode() and a decode() may run at the same time. An exception fails
/// the run on all ranks.
class Coder {
 public:
  virtual ~Coder() = default;
  /// The most bytes that `plain` bytes become; the same on both sides.
  virtual std::size_t most(std::size_t plain) const = 0;
  /// Writes the coded form of message `number` of the plan (its elements packed, in the order of
  /// its moves, in their travel_type()) to `coded`, of most() bytes; returns its length, at
  /// least 1.
  virtual std::size_t encode(std::size_t number, std::span<const std::byte> plain,
                             std::span<std::byte> coded) = 0;
  /// The reverse. With wants_present() `plain` holds at first what the receiver has in the places.
  virtual void decode(std::size_t number, std::span<const std::byte> coded,
                      std::span<std::byte> plain) = 0;
  /// Whether decode() reads what the receiver has. That is exact for destinations of the travelling
  /// type.
  virtual bool wants_present() const { return false; }
};

/// How weights are moved. The same on all ranks, but for `coder`, which all have or none.
struct ReshardOptions {
  std::uint64_t message_bytes = 4u << 20;        // as PlanOptions
  std::uint64_t host_message_bytes = 16u << 20;  // as PlanOptions
  int slots = 2;                        // staging buffers of a rank, for sends and for receives
  std::chrono::nanoseconds timeout{0};  // of a run; 0: the communicator's
  bool prove = true;                    // the plan, before it is used
  bool map = true;                      // read bound memory of the host directly
  std::shared_ptr<Coder> coder{};       // of messages between hosts
  /// By rank: the number of its host; none: ranks that can map each other's memory share a host.
  std::vector<int> hosts{};
};

/// What this rank has done in all runs. Bytes on the way; of coded messages the coded ones.
struct ReshardTraffic {
  std::uint64_t copied = 0;         // from this rank to itself
  std::uint64_t mapped = 0;         // read from another rank's memory
  std::uint64_t sent = 0;           // in messages, inside the host
  std::uint64_t sent_to_hosts = 0;  // in messages to other hosts
  std::uint64_t received = 0;       // in messages
};

/// A started run. Moves; destroying it waits for the end.
class Transfer {
 public:
  class State;
  Transfer() = default;
  explicit Transfer(std::shared_ptr<State> state);
  Transfer(Transfer&&) noexcept = default;
  Transfer& operator=(Transfer&& other) noexcept;
  ~Transfer();
  bool valid() const { return state_ != nullptr; }
  /// Never blocks.
  bool ready() const;
  /// Blocks until the run is over; throws its error. A second time: nothing.
  void wait();
  /// Waits as wait() does, at most so long: false if the run is not over by then.
  bool wait_for(std::chrono::nanoseconds longest);

 private:
  std::shared_ptr<State> state_;
};

class Reshard {
 public:
  using Sources = std::span<const void* const>;  // by buffer of the layout `from`
  using Destinations = std::span<void* const>;   // by buffer of the layout `to`

  /// Collective over `comm`, which is not needed afterwards. Checks the layouts, and makes and
  /// proves the plan, the same on all ranks. Throws, on all ranks: Error(invalid_argument) for
  /// layouts that cannot be; Error(mismatch), which names a rank, if ranks have different layouts
  /// or options.
  Reshard(Communicator& comm, Layout from, Layout to, ReshardOptions options = {});
  /// The same over `axis`, which outlives it, on memory of its device(). All goes in messages of
  /// the axis, and waits end as its waits do: there is no coder, and no timeout of a run. Ranks
  /// share a host unless ReshardOptions::hosts says otherwise. Throws Error(invalid_argument), too,
  /// for types that the device does not convert.
  Reshard(Axis& axis, Layout from, Layout to, ReshardOptions options = {});
  Reshard(Reshard&&) noexcept;
  Reshard& operator=(Reshard&&) noexcept;
  ~Reshard();

  const Layout& from() const;
  const Layout& to() const;
  const Plan& plan() const;
  const ReshardTraffic& traffic() const;

  /// Collective: from now on run() and start() without arguments use this memory, which must not be
  /// freed before unbind() or the end of the Reshard. Where it is window memory (tutti::allocate(),
  /// register_memory()), or ranks are threads of one process, other ranks of the host read the
  /// sources directly. Buffers that follow each other in one allocation are cheapest (Buffers,
  /// buffers.h).
  void bind(Sources sources, Destinations destinations);
  /// Ends bind(). Collective.
  void unbind();

  /// Collective: moves the weights. Throws Error(invalid_argument), on all ranks, if a rank's
  /// pointer is missing.
  void run(Sources sources, Destinations destinations);
  /// A run with the memory of bind(); throws Error(invalid_usage) without it.
  void run();
  /// A run that a thread of the Reshard makes, without waiting. The spans are copied; the memory
  /// belongs to the run until it is over. One run at a time: a second start() waits for the first.
  Transfer start(Sources sources, Destinations destinations);
  Transfer start();

  /// Makes this and later runs fail on all ranks. From any thread.
  void abort(std::string_view reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::parallel::reshard
