// The calls of a window: puts, signals, and waits for them (window_conditions.h).
#include <fmt/format.h>

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "comm/started_calls.h"
#include "comm/window_impl.h"
#include "core/as_error.h"
#include "core/asymmetric_fence.h"
#include "execute/host/peer_memory.h"
#include "transport/far_windows.h"

namespace tutti {
namespace {

// Looks without a pause, before the thread waits as for any operation: for a microsecond or two at
// memory; fewer where each one asks a network.
constexpr int kSignalLooks = 2000, kFarSignalLooks = 64;

// More, and sums of them would not fit into a counter. At 100 ns each, so many take a day.
constexpr std::uint64_t kMostSignals = std::uint64_t{1} << 40;

/// Says that this rank writes to the memory of a peer, for as long as it lives; which it may, where
/// is_open().
class Writing {
 public:
  explicit Writing(const Window::Impl::Peer& peer) : writing_(*peer.writing) {
    announce(writing_, peer.light);
    is_open_ = peer.board.state(std::memory_order_seq_cst) == WindowState::open;
  }
  ~Writing() { writing_.store(0, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  bool is_open() const { return is_open_; }

 private:
  SignalBoard::Counter& writing_;
  bool is_open_;
};

}  // namespace

WindowState Window::Impl::state_of(int r) const {
  const Peer& peer = peers[static_cast<std::size_t>(r)];
  // acquire: the signals before it are there.
  if (peer.far != nullptr) return peer.far_state.load(std::memory_order_acquire);
  return peer.board.state(std::memory_order_acquire);
}

void Window::Impl::throw_closed(int r) {
  Liveness& liveness = comm->group->liveness();
  Peer& peer = peers[static_cast<std::size_t>(r)];
  const std::string doing = fmt::format("using window {}", number);
  if (peer.far != nullptr && !peer.explained) {
    liveness.check_peers_first(doing);
  } else {
    liveness.check_peers(doing);
  }
  peer.explained = true;
  liveness.throw_if_failed();
  throw closed_by(r);
}

Error Window::Impl::closed_by(int r) const {
  if (state_of(r) == WindowState::left) {
    return {ErrorCode::peer_lost,
            fmt::format("rank {} cannot use window {} with rank {}, which has left the "
                        "communicator: all ranks should call close(), which waits until nobody "
                        "needs it",
                        rank, number, r),
            r};
  }
  return {ErrorCode::invalid_usage,
          fmt::format("rank {} cannot use window {} with rank {}, which has ended its part of it: "
                      "all ranks should call close(), which waits until nobody needs it",
                      rank, number, r),
          r};
}

void Window::Impl::check(const WindowCall& call, const char* question) const {
  const auto refuse = [&](const std::string& why) {
    const std::string_view what = question != nullptr ? question : name_of(call.kind);
    throw Error(ErrorCode::invalid_argument, fmt::format("{} of window {}: {}", what, number, why));
  };
  if (ended) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("window {} of rank {} has ended, by itself or with its communicator",
                            number, rank));
  }
  if (call.kind > WindowCall::Kind::wait_signal) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is no call of a window", static_cast<int>(call.kind)));
  }
  comm->check_process();
  comm->group->liveness().throw_if_failed();
  if (call.peer < 0 || static_cast<std::size_t>(call.peer) >= peers.size()) {
    refuse(fmt::format("peer {} is out of range: the communicator has ranks 0 to {}", call.peer,
                       peers.size() - 1));
  }
  if (call.timeout.count() < 0) {
    refuse(fmt::format("a timeout of {} ns is negative; 0 means Options::timeout",
                       call.timeout.count()));
  }
  const bool has_signal = call.kind != WindowCall::Kind::put || call.signals;
  if (has_signal && (call.index < 0 || call.index >= kSignals)) {
    refuse(fmt::format("signal {} is out of range: there are 0 to {}", call.index, kSignals - 1));
  }
  if (call.kind == WindowCall::Kind::wait_signal && call.count > kMostSignals) {
    refuse(fmt::format("{} signals are more than anybody can give: {} at most", call.count,
                       kMostSignals));
  }
  if (call.kind != WindowCall::Kind::put) return;
  const std::size_t there = peers[static_cast<std::size_t>(call.peer)].bytes;
  if (call.offset > there || call.bytes > there - call.offset) {
    refuse(fmt::format("{} bytes at offset {} do not fit into the memory of rank {}, which has {}",
                       call.bytes, call.offset, call.peer, there));
  }
  if (call.from == nullptr && call.bytes > 0) {
    refuse(fmt::format("the source is null, but has {} bytes", call.bytes));
  }
}

inline void Window::Impl::put(const WindowCall& call, Peer& peer) {
  {
    const Writing writing(peer);
    if (writing.is_open()) {
      if (call.bytes == 0) return;  // the source may be null
      if (peer.memory != nullptr) {
        if (peer.mapping) peer.mapping->meet(peer.memory + call.offset, call.bytes);
        std::memmove(peer.memory + call.offset, call.from, call.bytes);
      } else {
        write_plain_memory(*comm->group, call.peer, call.from, peer.plain + call.offset,
                           call.bytes);
      }
      return;
    }
  }
  throw_closed(call.peer);
}

inline void Window::Impl::give_signal(const WindowCall& call, Peer& peer) {
  const auto index = static_cast<std::size_t>(call.index);
  if (call.kind == WindowCall::Kind::put) {
    peer.board.place(rank, call.index)
        .store(call.offset + call.bytes - 1, std::memory_order_relaxed);
  }
  // release: after what was put.
  peer.board.signal(rank, call.index).store(++peer.given[index], std::memory_order_release);
  ring(*peer.doorbell);
}

std::unique_ptr<Condition> Window::Impl::issue(const WindowCall& call) {
  Peer& peer = peers[static_cast<std::size_t>(call.peer)];
  if (call.kind == WindowCall::Kind::wait_signal) {
    std::uint64_t& taken = peer.taken[static_cast<std::size_t>(call.index)];
    taken += call.count;
    if (signals_of(call.peer, call.index).load(std::memory_order_acquire) >= taken) return nullptr;
    return signals_are_there(shared_from_this(), call, taken);
  }
  const bool puts = call.kind == WindowCall::Kind::put;
  const bool signals = !puts || call.signals;
  if (peer.far != nullptr) {
    if (has_closed(call.peer)) throw_closed(call.peer);
    const std::uint64_t put = peer.far->put(peer.key, call.offset, call.from, puts ? call.bytes : 0,
                                            signals ? call.index : -1);
    if (peer.far->is_done(put)) return nullptr;
    return put_is_taken(shared_from_this(), call, put);
  }
  if (puts) {
    put(call, peer);
  } else if (has_closed(call.peer)) {
    throw_closed(call.peer);
  }
  if (signals) give_signal(call, peer);
  return nullptr;
}

inline void Window::Impl::look_for(const WindowCall& call) {
  if (call.kind != WindowCall::Kind::wait_signal || comm->policy.crowded) return;
  const Peer& peer = peers[static_cast<std::size_t>(call.peer)];
  const SignalBoard::Counter& counter = signals_of(call.peer, call.index);
  const std::uint64_t target = peer.taken[static_cast<std::size_t>(call.index)] + call.count;
  if (peer.far != nullptr) {
    for (int looks = 0; looks < kFarSignalLooks; ++looks) {
      if (counter.load(std::memory_order_acquire) >= target) return;
      peer.far->poll();
    }
    return;
  }
  // A writer that uses a place again will do so now. Its line is here until it writes: until then a
  // prefetch costs nothing, and then it fetches the data while the signal is on its way.
  const auto data = reinterpret_cast<std::uintptr_t>(memory) +
                    board_.place(call.peer, call.index).load(std::memory_order_relaxed);
  for (int looks = 0; looks < kSignalLooks; ++looks) {
    if (counter.load(std::memory_order_acquire) >= target) return;
    __builtin_prefetch(reinterpret_cast<const void*>(data));  // NOLINT: any address will do
  }
}

void Window::Impl::refuse_to_wait(const WindowCall& call) const {
  if (!is_engine_thread()) return;
  const Peer& peer = peers[static_cast<std::size_t>(call.peer)];
  const bool waits = call.kind == WindowCall::Kind::wait_signal
                         ? signals_of(call.peer, call.index).load(std::memory_order_relaxed) <
                               peer.taken[static_cast<std::size_t>(call.index)] + call.count
                         : peer.far != nullptr;
  if (waits) refuse_to_block("make a blocking call");
}

void Window::Impl::run(const WindowCall& call) {
  Communicator::Impl::Turn turn(comm->turns);
  if (ended) check(call);  // says so
  refuse_to_wait(call);
  // From here on: what is issued is not taken back.
  look_for(call);
  if (std::unique_ptr<Condition> left = issue(call)) {
    const auto waiting = std::make_shared<ConditionCall>(*comm, std::move(left), call.timeout);
    comm->run({}, turn, waiting);
    if (const auto error = waiting->condition->error()) throw Error(*error);
  }
}

std::size_t Window::bytes_of(int peer) const {
  Impl& i = impl();
  i.check({.kind = WindowCall::Kind::signal, .peer = peer}, "bytes_of");
  return i.peers[static_cast<std::size_t>(peer)].bytes;
}

std::byte* Window::map(int peer) const {
  Impl& i = impl();
  i.check({.kind = WindowCall::Kind::signal, .peer = peer}, "map");
  return i.peers[static_cast<std::size_t>(peer)].memory;
}

void Window::run(const WindowCall& call) try {
  impl().check(call);
  const std::shared_ptr<Impl> held = impl_;  // end() lets go of it beside a call that waits
  if (group_is_open()) return keep_for_group(held, call);
  held->run(call);
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

Future Window::start(const WindowCall& call) {
  Impl& i = impl();
  i.check(call);
  if (group_is_open()) {
    throw Error(ErrorCode::invalid_usage,
                "start() inside of a group(): calls of a group are blocking ones");
  }
  const auto turn = i.comm->turn_to_start();
  if (i.ended) i.check(call);  // says so
  std::unique_ptr<Condition> left = i.issue(call);
  if (!left) return {};
  auto waiting = std::make_shared<ConditionCall>(*i.comm, std::move(left), call.timeout);
  return Future(i.comm->started_calls().start(std::move(waiting)));
}

void Window::put(int peer, std::size_t offset, const void* from, std::size_t bytes) {
  run({.peer = peer, .offset = offset, .from = from, .bytes = bytes});
}
void Window::put_signal(int peer, std::size_t offset, const void* from, std::size_t bytes,
                        int index) {
  run({.peer = peer,
       .offset = offset,
       .from = from,
       .bytes = bytes,
       .signals = true,
       .index = index});
}
void Window::signal(int peer, int index) {
  run({.kind = WindowCall::Kind::signal, .peer = peer, .index = index});
}
void Window::wait_signal(int peer, std::uint64_t count, int index) {
  run({.kind = WindowCall::Kind::wait_signal, .peer = peer, .index = index, .count = count});
}

}  // namespace tutti
