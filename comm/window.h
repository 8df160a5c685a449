// Window: memory of each rank of a communicator that the other ranks write to, one-sided. The owner
// calls nothing for that; a signal tells it that the data is there.
//
//     tutti::Window window = comm.window(halo.data(), halo.size() * sizeof(float));  // all ranks
//     window.put_signal(right, 0, edge, bytes);  // copies, then gives signal 0 of this rank
//     window.wait_signal(left);                  // takes signal 0 of rank `left`: its data is here
//
// Order: a signal comes after all that the same rank has put to the same peer before, through any
// window of the communicator, whatever its index. Between puts there is no order, nor between
// different ranks. When put() returns, the source may be written again.
//
// Signals are counters: each pair of ranks has kSignals of them in each window, for each direction.
// A signal adds 1. wait_signal() waits for `count` of them and takes them; more remain for later
// waits.
//
// On one host a put is a copy, straight into the peer's memory, by the thread that calls. Between
// hosts it is messages, which the peer's process takes in while the peer does something else.
// docs/windows.md says which memory may be a window, and what it costs.
//
// Threading, and time: as a communicator, any thread may call a window at any time, except that
// none may be in a call of it, or come to one, when it is moved or destroyed. end() fails the waits
// of other threads for its signals. A call with wrong arguments throws before anything has
// happened, and waits for nobody. Failures of the communicator fail its windows' calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "communicator.h"

namespace tutti {

/// One call of a window. The functions of Window fill it.
struct WindowCall {
  enum class Kind : std::uint8_t { put, signal, wait_signal };
  Kind kind = Kind::put;
  int peer = -1;
  std::size_t offset = 0;  // put: where in the peer's memory, in bytes
  const void* from = nullptr;
  std::size_t bytes = 0;
  bool signals = false;     // put: signal `index` follows
  int index = 0;            // of the signal, less than Window::kSignals
  std::uint64_t count = 1;  // wait_signal: how many
  // The timeout of this call; 0: Options::timeout; max(): none.
  std::chrono::nanoseconds timeout{0};
};

class Window {
 public:
  static constexpr int kSignals = 16;  // of a rank for each peer

  Window();  // empty
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;
  /// As end().
  ~Window();

  /// This rank's memory, and its size; of rank `peer`, its size.
  std::byte* data() const;
  std::size_t bytes() const;
  std::size_t bytes_of(int peer) const;

  /// Writes `bytes` from `from` to the memory of rank `peer`, `offset` bytes from its start. The
  /// peer may be this rank. May wait, between hosts, until the network has taken the data.
  void put(int peer, std::size_t offset, const void* from, std::size_t bytes);
  /// A put, which signal `index` follows.
  void put_signal(int peer, std::size_t offset, const void* from, std::size_t bytes, int index = 0);
  /// Gives rank `peer` signal `index` of this rank. Waits as put() does.
  void signal(int peer, int index = 0);
  /// Waits for `count` signals `index` of rank `peer`, and takes them.
  void wait_signal(int peer, std::uint64_t count = 1, int index = 0);

  /// Any of these calls. In a group(), it runs when that ends: puts and signals first, in their
  /// order, then the waits beside all other calls of the group.
  void run(const WindowCall& call);
  /// Starts a call and returns: puts and signals are then on their way, in the order of the calls.
  /// The future of a put is ready when the source may be written again. Waits take signals in the
  /// order of the calls, and hold up no other call.
  Future start(const WindowCall& call);

  /// The memory of rank `peer`, where this process can address it: its own, of ranks that are
  /// threads of this process, and window memory (core/memory.h) of ranks of this host. Null: it
  /// cannot. Valid as long as the peer's window and this one are.
  std::byte* map(int peer) const;
  /// As long as this is held, what map() returns stays mapped, also when the window has ended (but
  /// not the memory of a rank that is a thread of this process, which that rank may free).
  std::shared_ptr<const void> keep_mapped() const;

  /// Collective: waits until all ranks are here, so that nobody needs the window any more, then
  /// end(). Where the communicator has failed, it ends the window and throws.
  void close();
  /// Ends this rank's part, without the others. When it returns, nobody writes to the memory, and
  /// nobody will. A rank that puts or signals later, or waits for a signal of this rank, gets
  /// Error(invalid_usage). The end of the communicator ends its windows, too.
  void end() noexcept;
  explicit operator bool() const { return impl_ != nullptr; }

  struct Impl;

 private:
  friend class Communicator;
  explicit Window(std::shared_ptr<Impl> impl);
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace tutti
