// What a window consists of.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "comm/impl.h"
#include "comm/window.h"
#include "execute/host/condition.h"
#include "transport/host/signal_board.h"

namespace tutti {

class FarWriter;

static_assert(Window::kSignals == kWindowSignals);

struct Window::Impl : std::enable_shared_from_this<Impl> {
  /// Collective, as Communicator::window(). `its_memory` is null where the library allocates it.
  Impl(Communicator::Impl& comm, void* its_memory, std::size_t bytes);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Throws where the window, or its communicator, is of no use, or the call is wrong. Errors name
  /// the call, or `question` where it only asks about a peer.
  void check(const WindowCall& call, const char* question = nullptr) const;
  /// Does what can be done of a checked call. Null: that was all; else what is left to wait for.
  std::unique_ptr<Condition> issue(const WindowCall& call);
  /// Throws, before anything has happened, where a checked call would have to wait on the engine's
  /// thread.
  void refuse_to_wait(const WindowCall& call) const;
  /// Runs a checked call on this thread.
  void run(const WindowCall& call);
  /// Looks for a moment whether the signals have come that `call` waits for.
  void look_for(const WindowCall& call);
  /// As Window::end(). `state`: what the others hear of it.
  void end(WindowState state = WindowState::ended) noexcept;

  /// Another rank's part, as this rank writes to it: at an address of this process, at one of the
  /// peer's process, by the kernel, or over a network.
  struct Peer {
    std::byte* memory = nullptr;
    std::uint64_t plain = 0;
    FarWriter* far = nullptr;
    std::uint64_t key = 0;  // of its part
    std::size_t bytes = 0;
    // Of a rank of this host:
    SignalBoard board;
    SignalBoard::Counter* writing = nullptr;  // this rank's there
    bool light = false;                       // a light_fence() is enough beside it
    Doorbell* doorbell = nullptr;
    std::shared_ptr<SharedMemory> mapping;  // in which `memory` lies
    // Of a rank of another one:
    std::atomic<WindowState> far_state{WindowState::open};
    std::atomic<bool> explained{false};           // a failure that made it end would be known
    std::array<std::uint64_t, kSignals> given{};  // to it
    std::array<std::uint64_t, kSignals> taken{};  // of its signals, by waits that have begun
  };
  /// Whether `peer` has ended its part.
  bool has_closed(int peer) const { return state_of(peer) != WindowState::open; }
  WindowState state_of(int peer) const;
  Error closed_by(int peer) const;
  /// Throws that, or what has made the peer do so.
  [[noreturn]] void throw_closed(int peer);
  const SignalBoard::Counter& signals_of(int peer, int index) const {
    return board_.signal(peer, index);
  }

  Communicator::Impl* comm;  // null once this has ended
  const int rank;
  const std::uint64_t number;  // among the communicator's windows, from 1
  const std::size_t bytes;
  std::byte* memory = nullptr;
  std::vector<Peer> peers;
  std::atomic<bool> ended{false};

 private:
  /// What a rank tells the others of its part.
  struct Card {
    std::uint64_t key = 0;
    std::uint64_t bytes = 0;
    std::uint64_t address = 0;
    std::uint64_t offset = 0;  // in
    std::uint32_t window = 0;  // of its process; 0: it lies in none
    std::uint32_t error = 0;   // ErrorCode: there is no part
    std::uint64_t light = 0;   // 1: its process has joined the heavy fences
  };
  Card prepare(void* its_memory);
  void connect(int peer, const Card& card);
  SignalBoard board_of(int peer, const Card& card) const;
  /// Takes the boards that the peers have sent for a window that does not come to be.
  void drop_boards(std::span<const Card> cards) const;
  /// Throws unless all ranks could do what they had to; `error`: why this one could not.
  void agree(std::span<const std::uint32_t> errors, const std::exception_ptr& error) const;
  void wait_for_writers();
  /// Tells the ranks of other hosts that this rank's part has ended.
  void tell_far_peers(WindowState state);
  void put(const WindowCall& call, Peer& peer);
  void give_signal(const WindowCall& call, Peer& peer);

  const std::uint64_t key_;
  bool owns_memory_ = false;
  bool light_ = false;  // this process has joined the heavy fences
  SignalBoard board_;
};

/// The call's name, for messages to people.
std::string_view name_of(WindowCall::Kind kind);

// What calls of a window wait for (window_conditions.cpp).
/// The peer of `call` has given `target` signals, since the window began.
std::unique_ptr<Condition> signals_are_there(std::shared_ptr<Window::Impl> window,
                                             const WindowCall& call, std::uint64_t target);
/// The network has taken the put of `call`, which the FarWriter calls `number`.
std::unique_ptr<Condition> put_is_taken(std::shared_ptr<Window::Impl> window,
                                        const WindowCall& call, std::uint64_t number);

}  // namespace tutti
