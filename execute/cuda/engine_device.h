// A device as engines for parallel training (parallel/gpu.h) see it: memory, streams, events,
// copies. device.h adds what the executor of collectives needs. The functions that are here are
// those of a device that has done all work on return.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>

namespace tutti::device {

/// A queue of work on a device: cudaStream_t, without its header.
using Stream = void*;

/// All work that a stream had when the event was recorded; null: that has been done.
using Event = std::shared_ptr<void>;

class EngineDevice {
 public:
  virtual ~EngineDevice() = default;

  /// What all processes of a host call this device, and no other one.
  using Identity = std::array<std::uint64_t, 2>;
  virtual Identity identity() const = 0;

  /// Zeroed memory of the device, 256-byte aligned. Throws Error(system).
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// When no kernel uses it any more; waits for none.
  virtual void deallocate(std::byte* memory) noexcept = 0;
  /// Memory that nobody uses.
  virtual std::size_t free_bytes() { return SIZE_MAX; }

  /// Copies to memory of the device after what is on `stream` (which is not captured); has been
  /// done on return.
  virtual void overwrite(std::byte* to, std::span<const std::byte> from, Stream stream) = 0;
  /// Copies within the device's memory, after what is on `stream`; does not wait.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) = 0;
  /// After what is on `stream`; does not wait.
  virtual void zero(std::byte* memory, std::size_t bytes, Stream) {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }
  /// Copies to memory of the host after what is on `stream`, and waits for that.
  virtual void read(std::byte* to, const std::byte* from, std::size_t bytes, Stream) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  /// Runs `body` with this GPU as the thread's, where threads have one.
  virtual void as_current(const std::function<void()>& body) { body(); }
  /// A stream of its own, until its last owner lets go of it: its work is done nevertheless.
  virtual std::shared_ptr<void> make_stream() { return std::make_shared<char>(); }
  virtual Event record(Stream) { return nullptr; }
  /// Work that comes on `then` waits for `event`; the caller does not.
  virtual void order(const Event&, Stream) {}
  virtual bool is_over(const Event&) { return true; }
  /// The caller waits.
  virtual void synchronize(const Event&) {}
};

}  // namespace tutti::device
