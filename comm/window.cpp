// How a window comes about, and how it ends; its calls are in window_calls.cpp.
#include "comm/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <random>
#include <span>
#include <utility>

#include "comm/window_impl.h"
#include "core/as_error.h"
#include "core/asymmetric_fence.h"
#include "core/background.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/wait.h"
#include "core/window_memory.h"
#include "execute/host/peer_memory.h"
#include "transport/far_windows.h"

namespace tutti {
namespace {

// A peer that has told of its board sends it at once: only one that is stopped takes longer than
// this.
constexpr auto kBoardPatience = std::chrono::seconds(10);
// A copy takes no longer than this, unless its process is stopped in the middle.
constexpr auto kWriterPatience = std::chrono::seconds(10);
// Room for the news that a window has ended comes soon, where the peer lives.
constexpr auto kRoomPatience = std::chrono::milliseconds(500);

std::uint64_t random_key() {
  std::random_device random;
  return static_cast<std::uint64_t>(random()) << 32 | random();
}

}  // namespace

// --- Opening -------------------------------------------------------------------------------------

Window::Impl::Impl(Communicator::Impl& its_comm, void* its_memory, std::size_t its_bytes)
    : comm(&its_comm),
      rank(its_comm.group->rank()),
      number(++its_comm.windows_opened),
      bytes(its_bytes),
      peers(static_cast<std::size_t>(its_comm.group->size())),
      key_(random_key()) {
  comm->windows.push_back(this);
  RankGroup& group = *comm->group;
  try {
    Card mine{key_};
    std::exception_ptr error;
    try {
      mine = prepare(its_memory);
    } catch (const std::exception& e) {
      error = std::current_exception();
      mine.error = static_cast<std::uint32_t>(as_error(e).code());
    }
    std::vector<Card> cards(peers.size());
    comm->gather_cards(&mine, cards.data(), sizeof(Card));
    std::vector<std::uint32_t> errors;
    for (const Card& card : cards) errors.push_back(card.error);
    if (std::ranges::any_of(errors, [](std::uint32_t e) { return e != 0; })) drop_boards(cards);
    agree(errors, error);
    std::uint32_t failed = 0;
    try {
      for (int r = 0; r < group.size(); ++r) connect(r, cards[static_cast<std::size_t>(r)]);
    } catch (const std::exception& e) {
      error = std::current_exception();
      failed = static_cast<std::uint32_t>(as_error(e).code());
    }
    comm->gather_cards(&failed, errors.data(), sizeof failed);
    agree(errors, error);
  } catch (...) {
    end();
    throw;
  }
}

Window::Impl::~Impl() { end(); }

Window::Impl::Card Window::Impl::prepare(void* its_memory) {
  RankGroup& group = *comm->group;
  memory = static_cast<std::byte*>(its_memory);
  if (memory == nullptr && bytes > 0) {
    memory = static_cast<std::byte*>(allocate(bytes));
    owns_memory_ = true;
  }
  Card card{key_, bytes, reinterpret_cast<std::uint64_t>(memory)};
  light_ = join_heavy_fences();
  card.light = light_ ? 1 : 0;
  const auto shares_memory_with = [&](int r) {
    return group.same_host(r) && !group.same_process(r);
  };
  bool alone = true;
  for (int r = 0; r < group.size(); ++r) alone = alone && (r == rank || !shares_memory_with(r));
  const WindowMemory window = bytes > 0 ? find_window(memory, bytes) : WindowMemory{};
  // A fork() makes the heap private, and this window has to stay.
  if (window.id != 0 && !window.heap) {
    card.window = window.id;
    card.offset = static_cast<std::uint64_t>(memory - window.base);
    group.host_peers().announce(window, group.members());
  } else if (bytes > 0 && !alone && !group.cma_everywhere()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("window: the memory of rank {} is no window memory, and the other "
                            "processes of this host may not write to it (the system, or TUTTI_CMA, "
                            "forbids cross-memory attach): take it from tutti::allocate(), or call "
                            "tutti::register_memory() for it first",
                            rank),
                rank);
  }
  board_ =
      SignalBoard(SharedMemory::create("tutti-window-board", SignalBoard::bytes(group.size())));
  board_.set_state(WindowState::open, std::memory_order_release);
  share_within_process(key_, board_.memory());
  for (const int r : group.ranks_here()) {
    if (r != rank) group.host_peers().send(group.member(r), key_, board_.memory());
  }
  if (group.one_host()) return card;
  if (!comm->far_windows) comm->far_windows = std::make_shared<FarWindows>(group);
  const auto on_closed = [this](int r, WindowState state, bool failed) {
    Peer& peer = peers[static_cast<std::size_t>(r)];
    peer.explained = !failed;  // then there is no news to wait for
    peer.far_state = state;
  };
  comm->far_windows->open(key_, {memory, bytes, board_, on_closed});
  return card;
}

/// A peer that has told of its board has sent it, unless it has taken it back, after a failure.
SignalBoard Window::Impl::board_of(int r, const Card& card) const {
  RankGroup& group = *comm->group;
  const Deadline end = deadline_after(kBoardPatience);
  for (;;) {
    try {
      return SignalBoard(
          group.receive(r, card.key, SignalBoard::bytes(group.size()),
                        std::min(end, deadline_after(std::chrono::milliseconds(50)))));
    } catch (const Error& e) {
      group.liveness().throw_if_failed();
      // A peer that is gone may still make the communicator fail, which says more.
      const bool may_change = e.code() == ErrorCode::timed_out || e.code() == ErrorCode::peer_lost;
      if (!may_change || std::chrono::steady_clock::now() >= end) throw;
    }
  }
}

void Window::Impl::drop_boards(std::span<const Card> cards) const {
  for (const int r : comm->group->ranks_here()) {
    const Card& card = cards[static_cast<std::size_t>(r)];
    if (r == rank || card.error != 0) continue;
    try {
      board_of(r, card);
    } catch (const Error&) {  // the peer is gone
    }
  }
}

void Window::Impl::connect(int r, const Card& card) {
  RankGroup& group = *comm->group;
  Peer& peer = peers[static_cast<std::size_t>(r)];
  peer.key = card.key;
  peer.bytes = card.bytes;
  if (!group.same_host(r)) {
    peer.far = &comm->far_windows->writer(r);
    return;
  }
  peer.board = r == rank ? board_ : board_of(r, card);
  peer.writing = &peer.board.writing(rank);
  peer.light = card.light != 0 && light_;
  peer.doorbell = &group.control(r).doorbell;
  if (card.bytes == 0) return;
  if (group.same_process(r) || r == rank) {
    peer.memory = r == rank ? memory : reinterpret_cast<std::byte*>(card.address);  // NOLINT: ours
    return;
  }
  if (card.window == 0) {
    peer.plain = card.address;
    return;
  }
  peer.mapping = wait_for_window(group, r, card.window);
  if (card.offset > peer.mapping->size() || card.bytes > peer.mapping->size() - card.offset) {
    throw Error(ErrorCode::internal,
                fmt::format("rank {} gave a place outside of its window memory", r), r);
  }
  peer.memory = peer.mapping->data() + card.offset;
}

void Window::Impl::agree(std::span<const std::uint32_t> errors,
                         const std::exception_ptr& error) const {
  if (error) std::rethrow_exception(error);
  const auto bad = std::ranges::find_if(errors, [](std::uint32_t e) { return e != 0; });
  if (bad == errors.end()) return;
  const int who = static_cast<int>(bad - errors.begin());
  throw Error(static_cast<ErrorCode>(*bad),
              fmt::format("window: rank {} cannot open its part, so no rank has this window; the "
                          "error of rank {} says why",
                          who, who),
              who);
}

Window Communicator::window(void* memory, std::size_t bytes) try {
  Impl& i = impl();
  i.or_tell([&] {
    i.check({});
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    if (memory == nullptr && bytes > 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("window: the memory is null, but is to have {} bytes", bytes));
    }
    if (bytes > PTRDIFF_MAX || begin > UINTPTR_MAX - bytes) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("window: there is no memory of {} bytes at {}", bytes, memory));
    }
  });
  return Window(i.open_window(memory, bytes));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

Window Communicator::window(std::size_t bytes) try {
  Impl& i = impl();
  i.or_tell([&] { i.check({}); });
  return Window(i.open_window(nullptr, bytes));
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

std::shared_ptr<Window::Impl> Communicator::Impl::open_window(void* memory, std::size_t bytes) {
  refuse_to_meet("window()");
  const Turn turn = turn_alone();
  return std::make_shared<Window::Impl>(*this, memory, bytes);
}

void Communicator::Impl::gather_cards(const void* mine, void* all, std::size_t bytes) {
  run_in_turn({.collective = Collective::all_gather,
               .in = mine,
               .out = all,
               .count = bytes,
               .type = DataType::uint8,
               .label = Signature::kWindow});
}

// --- The end -------------------------------------------------------------------------------------

void Window::Impl::end(WindowState state) noexcept {
  if (ended.exchange(true)) return;
  std::erase(comm->windows, this);
  const bool inherited = comm->group->is_inherited();
  if (!inherited) {
    try {
      if (board_) {
        // release: a rank that sees the state sees the signals before it.
        board_.set_state(state, std::memory_order_release);
        heavy_fence();
        wait_for_writers();
      }
      if (comm->far_windows) {
        comm->far_windows->close(key_);
        tell_far_peers(state);
      }
    } catch (const std::exception& e) {
      log().warn("rank {}: ending window {}: {}", rank, number, e.what());
    }
    if (owns_memory_) deallocate(memory);
  }
  comm = nullptr;
}

void Window::Impl::tell_far_peers(WindowState state) {
  const Liveness& liveness = comm->group->liveness();
  const Deadline patience = deadline_after(kRoomPatience);
  for (const Peer& peer : peers) {
    if (peer.far == nullptr) continue;
    const std::uint64_t news = peer.far->say_closed(peer.key, state, liveness.failed());
    const auto is_told = [&] {
      if (peer.far->is_done(news) || liveness.failed()) return true;
      peer.far->poll();
      return false;
    };
    wait_until(patience, is_told, OnStop::ends);
  }
}

void Window::Impl::wait_for_writers() {
  // After the fence: a writer that this does not see, sees the end. acquire: what it wrote is
  // there.
  const auto writes = [&](int r) { return board_.writing(r).load(std::memory_order_acquire) != 0; };
  const int stopped = comm->group->wait_while_busy(writes, kWriterPatience);
  if (stopped < 0) return;
  log().warn(
      "rank {}: window {} ends while rank {} has been writing to it for {} s; is that "
      "process stopped?",
      rank, number, stopped, kWriterPatience.count());
}

Window::Window() = default;
Window::Window(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&& other) noexcept {
  if (this != &other) {
    end();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Window::~Window() { end(); }

Window::Impl& Window::impl() const {
  if (!impl_)
    throw Error(ErrorCode::invalid_usage,
                "this window is empty: it was closed, moved from, or never made");
  return *impl_;
}

void Window::end() noexcept {
  if (!impl_) return;
  try {
    if (!impl_->ended && impl_->comm->group->is_inherited()) impl_->end();
    if (!impl_->ended) {
      Turns& turns = impl_->comm->turns;  // the end takes it from the window
      turns.lock(deadline_after(std::chrono::seconds(5)));
      impl_->end();
      turns.unlock();
    }
  } catch (const Error&) {
    log().warn("rank {}: window {} stays, as another call of the communicator does not end",
               impl_->rank, impl_->number);
    abandon(impl_);
  }
  impl_.reset();  // not earlier: a call that waits has read it, before its own turn
}

void Window::close() {
  Impl& i = impl();
  if (group_is_open())
    throw Error(ErrorCode::invalid_usage, "close() of a window inside a group()");
  std::exception_ptr error;
  try {
    if (i.ended) {
      throw Error(ErrorCode::invalid_usage,
                  fmt::format("window {} of rank {} has ended, by itself or with its communicator",
                              i.number, i.rank));
    }
    // A kernel's failure, and the rest, as for any barrier.
    Communicator::Impl::Turn turn = i.comm->turn_alone();
    i.comm->run({.collective = Collective::barrier, .label = Signature::kWindow}, turn);
  } catch (...) {
    error = std::current_exception();
  }
  end();
  if (error) std::rethrow_exception(error);
}

std::shared_ptr<const void> Window::keep_mapped() const {
  (void)impl();
  return impl_;
}
std::byte* Window::data() const { return impl().memory; }
std::size_t Window::bytes() const { return impl().bytes; }

}  // namespace tutti
