// Device: where the memory of an engine lies, the host or a GPU, and what the engine itself does to
// that memory: copies, zeros, conversions, sums, the optimizer's updates.
//
// On the host everything has been done on return, and there are no streams. On a GPU (gpu.h) the
// functions put work on a *stream*, and the host goes on:
//
//     current()       the stream of the program's kernels; an engine's own work goes there, too
//     of each axis    a stream for its collectives (axis.h), which run beside those kernels
//     events          mark how far a stream has come; another stream waits for them, not the host
//
// So one engine serves both. This class itself is the host; a subclass is another kind of device.
// One thread at a time uses a device. Functions throw tutti::Error.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "optimizer/optimizer.h"

namespace tutti::parallel {

class LayerMath;

class Device {
 public:
  /// A queue of work on a GPU (a cudaStream_t); null on the host.
  using Stream = void*;
  /// All work that a stream had when the event was recorded; null: that has been done.
  using Event = std::shared_ptr<void>;

  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// "the host", "GPU 0".
  virtual std::string_view name() const { return "the host"; }
  virtual bool is_gpu() const { return false; }
  /// Whether calls on this memory go on a stream: whether it is the GPU's.
  virtual bool owns(const void* /*memory*/) const { return false; }
  /// Whether convert(), add(), sum_of_squares() and the updates of Tutti's optimizers work here.
  virtual bool computes() const { return true; }

  /// Whether convert() has these types: on GPUs float64 alone, or float32, bfloat16, float16.
  virtual bool converts(DataType /*from*/, DataType /*to*/) const { return true; }

  /// Memory that a caller hands in, and its number of elements. Without any it may be anywhere.
  struct Given {
    std::string_view name;
    const void* memory = nullptr;
    std::size_t count = 0;
    bool may_be_null = false;
  };
  static constexpr bool kMayBeNull = true;
  /// Throws Error(invalid_argument), which begins with `what`, for memory that is null or not on
  /// the GPU.
  void check_memory(std::string_view what, std::span<const Given> given) const;
  void check_memory(std::string_view what, std::initializer_list<Given> given) const {
    check_memory(what, std::span(given.begin(), given.size()));
  }

  /// The arithmetic of layers on its memory (layer_math.h); null: it has none.
  virtual LayerMath* layer_math();

  // --- Memory ---

  /// Zeros, where collectives are fastest. Throws Error(system).
  virtual std::byte* allocate(std::size_t bytes);
  /// Waits until `last_use` has happened, then frees the memory.
  virtual void release(std::byte* memory, const Event& last_use) noexcept;
  /// Bytes that nobody uses, and a number that ranks have in common if they share these.
  struct Available {
    std::uint64_t bytes = 0, domain = 0;
  };
  virtual Available available() const;

  // --- Streams and events ---

  virtual Stream current() { return nullptr; }
  /// A stream that is ordered after no other one, until its last owner lets go of it.
  virtual std::shared_ptr<void> make_stream() { return nullptr; }
  virtual Event record(Stream /*stream*/) { return nullptr; }
  /// What comes on `stream` from now on waits for `event`. The host does not.
  virtual void order(const Event& /*event*/, Stream /*stream*/) {}
  /// Never blocks.
  virtual bool is_over(const Event& /*event*/) { return true; }
  /// The host waits for it.
  virtual void synchronize(const Event& /*event*/) {}

  // --- Work: on current(), without waiting unless a function says so ---

  virtual void zero(void* memory, std::size_t bytes);
  /// `from` is memory of the device, or of the host, which has been read on return.
  virtual void copy(void* to, const void* from, std::size_t bytes);
  /// Some runs of `bytes` each, whose beginnings are so many bytes apart. All of it is the
  /// device's.
  virtual void copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                         std::size_t bytes, std::size_t rows);
  /// To memory of the host; waits.
  virtual void read(void* to, const void* from, std::size_t bytes);
  /// Between floating-point types.
  virtual void convert(DataType from, const void* in, DataType to, void* out, std::size_t count);
  /// to[i] = values[i] / divisor + before[i]. `before` may be null, or the same as `to`.
  virtual void add(DataType type, void* to, const void* values, unsigned divisor,
                   const void* before, std::size_t count);
  /// An array of elements of one type.
  struct Values {
    const void* data = nullptr;
    std::size_t count = 0;
  };
  /// Waits.
  virtual double sum_of_squares(DataType type, std::span<const Values> of);
  virtual void update(const Optimizer& optimizer, const Optimizer::Slice& slice);

 private:
  /// Throws Error(invalid_argument) if the memory, which is not null, is not on this GPU; the host
  /// asks nobody.
  virtual void check_owner(std::string_view /*what*/, const Given& /*given*/) const {}
};

/// The one for all.
Device& host_device();

/// Its arithmetic of layers. Throws Error(invalid_usage) if it has none. `what`: "linear 'up'".
LayerMath& layer_math_of(Device& device, std::string_view what);

/// Throws Error(invalid_usage) if it is a GPU, for engines that know the host's memory alone.
/// `what`: "a pipeline".
void refuse_gpu(const Device& device, std::string_view what);

}  // namespace tutti::parallel
