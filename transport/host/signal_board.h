// The board of a window: memory that the ranks of a host share, in which they signal the rank that
// owns the window, and say when they write to it. One line of the cache has one writer:
//
//     state | of rank 0: writing, signal 0, ... 15 | of rank 1: ...
//
// Signals are counters that only grow. A rank signals by a store with release, after it has written
// to the window, and the owner loads with acquire. So an owner that sees a signal sees the data.
// Ranks of other hosts do not see the board: the owner's process counts for them what they send.
//
// Beside the count lies the place of the data that came last. The owner, as it waits for the
// signal, looks there too, so that both lines cross from core to core together.
//
// A window ends while others may be writing to it: the owner closes it, and then waits for the
// writers that have begun. A writer says that it writes before it looks whether the window is open.
// The owner looks for writers after it has closed the window. Asymmetric fences lie between
// (core/asymmetric_fence.h). So the owner sees the writer, or the writer sees the end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/host/connection.h"
#include "transport/host/shared_memory.h"

namespace tutti {

inline constexpr int kWindowSignals = 16;  // of each pair of ranks

/// What a rank's part of a window is: others may write there, or not any more, as the rank has
/// ended it or has left the communicator.
enum class WindowState : std::uint64_t { ended = 0, open = 1, left = 2 };

class SignalBoard {
 public:
  using Counter = std::atomic<std::uint64_t>;

  SignalBoard() = default;
  explicit SignalBoard(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  static std::size_t bytes(int ranks) {
    return sizeof(Line) + static_cast<std::size_t>(ranks) * sizeof(Writer);
  }

  explicit operator bool() const { return memory_ != nullptr; }
  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }

  /// WindowState, of the owner's part.
  WindowState state(std::memory_order order) const {
    return static_cast<WindowState>(state_line().load(order));
  }
  void set_state(WindowState state, std::memory_order order) const {
    state_line().store(static_cast<std::uint64_t>(state), order);
  }
  /// Not 0: rank `rank` may be writing to the window.
  Counter& writing(int rank) const { return writer(rank).writing.value; }
  /// How often rank `rank` has given signal `index`.
  Counter& signal(int rank, int index) const { return writer(rank).signals[index].value; }
  /// Where the last byte lay that rank `rank` put with signal `index`, from the window's start on:
  /// a hint, which may be any number. Only that rank writes it, before the signal.
  Counter& place(int rank, int index) const { return writer(rank).signals[index].place; }

 private:
  struct alignas(kCacheLine) Line {
    Counter value, place;
  };
  struct Writer {
    Line writing;
    Line signals[kWindowSignals];
  };
  Counter& state_line() const { return reinterpret_cast<Line*>(memory_->data())->value; }
  Writer& writer(int rank) const {
    return reinterpret_cast<Writer*>(memory_->data() + sizeof(Line))[rank];
  }

  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace tutti
