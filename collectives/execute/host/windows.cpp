// The part of the host executor that deals with other ranks' memory: telling them where our buffers
// are, finding theirs, and copying through the kernel where a mapping is not to be had.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/cut.h"
#include "collectives/execute/host/operation.h"
#include "core/background.h"
#include "core/window_memory.h"
#include "transport/cma.h"

namespace tutti {

void Operation::describe_buffers() {
  const PlanHeader& h = binding_->plan->header;
  mine_.scalar = mine_here_.scalar = binding_->op.scalar;
  // Whether the others can address it.
  const auto describe = [&](std::byte* base, std::size_t bytes, std::uint32_t& window,
                            std::uint64_t& address, std::uint64_t& address_here) {
    address = address_here = reinterpret_cast<std::uint64_t>(base);
    const std::uint32_t announced = std::exchange(window, 0);
    if (base == nullptr || group_.one_process()) return true;
    const WindowMemory w = find_window(base, bytes);
    if (w.id == 0) return bytes == 0 || group_.cma_everywhere();
    if (w.id != announced) group_.host_peers().announce(w, group_.members());
    window = w.id;
    address = static_cast<std::uint64_t>(base - w.base);
    return true;
  };
  const auto bytes = [&](const BlockTable& t, std::uint32_t blocks) {
    return t.extent(blocks) * element_;
  };
  const int rank = group_.rank();
  const std::size_t in = bytes(binding_->in, in_blocks(h.collective, h.ranks, rank, h.root));
  const std::size_t out = bytes(binding_->out, out_blocks(h.collective, h.ranks, rank, h.root));
  lends_input_ =
      binding_->in.base + in <= binding_->out.base || binding_->out.base + out <= binding_->in.base;
  const auto describe_in = [&] {
    return describe(binding_->in.base, in, mine_.in_window, mine_.in, mine_here_.in);
  };
  const auto describe_out = [&] {
    return describe(binding_->out.base, out, mine_.out_window, mine_.out, mine_here_.out);
  };
  const bool reaches_in = describe_in();
  const bool reaches_out = describe_out();
  if (!reaches_in || !reaches_out) {
    stand_in(reaches_in ? 0 : in, reaches_out ? 0 : out);
    describe_in();
    describe_out();
  }
  const std::size_t tmp_bytes =
      binding_->tiling.tile / h.pieces * element_ * binding_->plan->tmp_chunks;
  describe(tmp_bytes > 0 ? tmp_ : nullptr, tmp_bytes, mine_.tmp_window, mine_.tmp, mine_here_.tmp);
}

void Operation::stand_in(std::size_t in, std::size_t out) {
  stand_in_ = *binding_;
  binding_ = &stand_in_;
  if (in > 0) {
    std::byte* const copy = workspace_.reserve(Workspace::kInput, in);
    std::memcpy(copy, stand_in_.in.base, in);
    stand_in_.in.base = copy;
  }
  if (out > 0) {
    std::byte* const copy = workspace_.reserve(Workspace::kOutput, out);
    result_ = {stand_in_.out.base, out};
    stand_in_.out.base = copy;
  }
}

void Operation::learn(int peer, const std::byte* payload) {
  Addresses a;
  std::memcpy(&a, payload, sizeof a);
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  // A window's id is never another one's, so what was found for it stays right.
  if (a == p.said) return;
  p.said = a;
  p.scalar = a.scalar;
  const auto locate = [&](std::uint32_t window, std::uint64_t address) -> Peer::Buffer {
    if (group_.same_process(peer)) {
      // NOLINTNEXTLINE: our own address space
      return {reinterpret_cast<std::byte*>(address), 0, SIZE_MAX, 0, nullptr};
    }
    Peer::Buffer buffer{nullptr, address, 0, window, nullptr};
    if (!group_.same_host(peer)) return buffer;  // no step of the plan addresses it
    // If it has not come, or is gone, that only matters to a step that uses it.
    if (window != 0)
      map(buffer, peer, group_.host_peers().find_window(group_.member(peer), window));
    return buffer;
  };
  p.buffers = {locate(a.in_window, a.in), locate(a.out_window, a.out), locate(a.tmp_window, a.tmp)};
}

void Operation::map(Peer::Buffer& buffer, int peer, std::shared_ptr<SharedMemory> window) {
  if (!window) return;
  if (buffer.remote > window->size()) {
    throw Error(ErrorCode::internal,
                "rank " + std::to_string(peer) + " gave an offset outside of its window", peer);
  }
  buffer.pointer = window->data() + buffer.remote;
  buffer.bytes = window->size() - buffer.remote;
  buffer.mapping = std::move(window);
}

std::shared_ptr<SharedMemory> Operation::wait_for_window(int peer, std::uint32_t window) {
  // Told before it was named, it comes soon: longer than this takes a peer that is stopped.
  constexpr auto kPatience = std::chrono::seconds(10);
  const Deadline deadline = deadline_after(kPatience);
  const int member = group_.member(peer);
  for (;;) {
    if (auto found = group_.host_peers().find_window(member, window)) return found;
    if (const std::string trouble = group_.host_peers().window_trouble(member, window);
        !trouble.empty()) {
      throw Error(ErrorCode::system,
                  fmt::format("rank {} cannot map window {} of rank {}: {}", group_.rank(), window,
                              peer, trouble),
                  group_.rank());
    }
    liveness_.check_peers("waiting for a window");
    liveness_.throw_if_failed();
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format("rank {} uses memory of rank {} (window {}) that is not there: was it "
                      "freed while an operation used it?",
                      group_.rank(), peer, window),
          peer);
    }
    pause_for(std::chrono::microseconds(50));
  }
}

bool Operation::find_targets(const Action& action, const Move& m, std::size_t shift) {
  const Place* places = m.places;
  targets_.resize(std::size_t{m.destinations} + m.sources);
  bool copies = false;
  for (std::size_t k = 0; k < targets_.size(); ++k) {
    targets_[k] = places[k].where >= Place::Where::peer_in
                      ? peer_target(places[k], m.elements * element_, shift)
                      : Target{pointer(action, places[k], shift)};
    copies = copies || targets_[k].peer >= 0;
  }
  return copies;
}

Operation::Target Operation::peer_target(const Place& p, std::size_t bytes, std::size_t shift) {
  Peer& peer = peers_[static_cast<std::size_t>(p.rank)];
  const auto which =
      static_cast<std::size_t>(p.where) - static_cast<std::size_t>(Place::Where::peer_in);
  Peer::Buffer& buffer = peer.buffers[which];
  const std::size_t offset = p.offset + (p.where == Place::Where::peer_tmp ? 0 : shift);
  if (buffer.pointer == nullptr) {
    if (buffer.window == 0) return {nullptr, buffer.remote + offset, p.rank};
    map(buffer, p.rank, wait_for_window(p.rank, buffer.window));
  }
  if (offset > buffer.bytes || bytes > buffer.bytes - offset) {
    throw Error(ErrorCode::internal,
                "rank " + std::to_string(p.rank) + " gave an address outside of its window",
                p.rank);
  }
  return {buffer.pointer + offset};
}

namespace {

/// Memory of a process that dies is gone a moment before its death can be seen.
template <class Copy>
void copy_unless_lost(Liveness& liveness, Copy&& copy) {
  try {
    copy();
  } catch (const Error&) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (std::chrono::steady_clock::now() < deadline) {
      liveness.check_peers("copying another rank's memory");
      liveness.throw_if_failed();
      pause_for(std::chrono::milliseconds(1));
    }
    throw;
  }
}

}  // namespace

void Operation::move_through_copies(const Move& move, const CombineOptions& options) {
  const std::size_t m = move.destinations;
  const std::size_t bytes = move.elements * element_;
  const auto pid = [&](const Target& t) { return group_.pid(t.peer); };
  const bool plain =
      move.sources == 1 && sources_[0].prescale == Prescale::none && !options.divide_result;
  const Target& from = targets_[m];
  if (plain && m == 1 && from.peer >= 0 && targets_[0].peer < 0) {
    return copy_unless_lost(liveness_,
                            [&] { cma_read(pid(from), targets_[0].pointer, from.remote, bytes); });
  }
  if (plain && m == 1 && from.peer < 0 && targets_[0].peer >= 0) {
    return copy_unless_lost(
        liveness_, [&] { cma_write(pid(targets_[0]), from.pointer, targets_[0].remote, bytes); });
  }
  // Piece by piece: fetch the remote sources, reduce, store the remote destinations.
  const std::size_t stagings = move.sources + 1U;
  const std::size_t piece = copied_piece(move.sources);
  std::byte* staging = workspace_.reserve(Workspace::kCopies, piece * stagings);
  std::byte* result = staging + piece * move.sources;
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t length = std::min(piece, bytes - at);
    for (std::size_t k = 0; k < move.sources; ++k) {
      const Target& t = targets_[m + k];
      if (t.peer >= 0) {
        copy_unless_lost(liveness_,
                         [&] { cma_read(pid(t), staging + k * piece, t.remote + at, length); });
      }
      sources_[k].data = t.peer >= 0 ? staging + k * piece : t.pointer + at;
    }
    std::size_t own = 0;
    bool remote = false;
    for (std::size_t k = 0; k < m; ++k) {
      if (targets_[k].peer < 0) destinations_[own++] = targets_[k].pointer + at;
      remote = remote || targets_[k].peer >= 0;
    }
    CombineOptions now = options;
    if (remote) {
      now.stream = 0;                 // it is read again at once
      destinations_[own++] = result;  // there is room: at least one of the m is not ours
    }
    combine_(std::span(destinations_).first(own), std::span(sources_).first(move.sources),
             length / element_, now);
    for (std::size_t k = 0; k < m; ++k) {
      const Target& t = targets_[k];
      if (t.peer < 0) continue;
      copy_unless_lost(liveness_, [&] { cma_write(pid(t), result, t.remote + at, length); });
    }
  }
}

}  // namespace tutti
