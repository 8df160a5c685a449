// The part of the host executor that deals with other ranks' memory: it tells them where this
// rank's buffers are, finds theirs, and copies through the kernel what is not mapped.
#include "execute/host/peer_memory.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/cut.h"
#include "core/wait.h"
#include "core/wide.h"
#include "core/window_memory.h"
#include "execute/host/operation.h"
#include "transport/host/cma.h"

namespace tutti {
namespace {

constexpr int kTmpBuffer = 2;  // of a rank's buffers in, out and tmp

}  // namespace

void Operation::describe_buffers() {
  const PlanHeader& h = binding_->plan->header;
  mine_.scalar = mine_here_.scalar = binding_->op.scalar;
  heap_hold_.take();
  bool in_heap = false;
  // Whether the others can address it.
  const auto describe = [&](int which, std::byte* base, std::size_t bytes) {
    mine_.at[which] = mine_here_.at[which] = reinterpret_cast<std::uint64_t>(base);
    const std::uint32_t announced = std::exchange(mine_.window[which], 0);
    mine_here_.window[which] = 0;
    const bool kept = which == kTmpBuffer && !binding_->buffers;
    if (base == nullptr || (group_.one_process() && !kept)) return true;
    const WindowMemory w = find_window(base, bytes);
    if (kept) mine_here_.window[which] = w.id;
    if (group_.one_process()) return true;
    if (w.id == 0) return bytes == 0 || group_.cma_everywhere();
    if (w.id != announced) group_.host_peers().announce(w, group_.members());
    in_heap = in_heap || w.heap;
    mine_.window[which] = w.id;
    mine_.at[which] = static_cast<std::uint64_t>(base - w.base);
    return true;
  };
  const auto bytes = [&](const BlockTable& t, std::uint32_t blocks) {
    return t.extent(blocks) * element_;
  };
  const int rank = group_.rank();
  const std::size_t in = bytes(binding_->in, in_blocks(h.collective, h.ranks, rank, h.root));
  const std::size_t out = bytes(binding_->out, out_blocks(h.collective, h.ranks, rank, h.root));
  may_send_input_ =
      binding_->in.base + in <= binding_->out.base || binding_->out.base + out <= binding_->in.base;
  if (binding_->buffers) {
    const bool reaches_in = describe(0, binding_->in.base, in);
    const bool reaches_out = describe(1, binding_->out.base, out);
    if (!reaches_in || !reaches_out) {
      stage(reaches_in ? 0 : in, reaches_out ? 0 : out);
      describe(0, binding_->in.base, in);
      describe(1, binding_->out.base, out);
    }
  }
  describe(kTmpBuffer, tmp_bytes_ > 0 ? tmp_ : nullptr, tmp_bytes_);
  if (!in_heap) heap_hold_.release();
}

BufferAddresses Operation::told_to(int peer) const {
  BufferAddresses told = group_.same_process(peer) ? mine_here_ : mine_;
  if (binding_->tiles_by_lane) {  // only this rank knows where the peer's block lies
    const auto block = static_cast<std::uint32_t>(peer);
    told.at[0] += binding_->in.offset(block) * element_;
    told.scalar = binding_->in.elements(block);
  }
  if (binding_->pulled) told.scalar = binding_->in.count;
  return told;
}

void Operation::stage(std::size_t in, std::size_t out) {
  staged_ = *binding_;
  binding_ = &staged_;
  if (in > 0) {
    std::byte* const copy = workspace_.reserve(Workspace::kInput, in);
    std::memcpy(copy, staged_.in.base, in);
    staged_.in.base = copy;
  }
  if (out > 0) {
    std::byte* const copy = workspace_.reserve(Workspace::kOutput, out);
    result_ = {staged_.out.base, out};
    staged_.out.base = copy;
  }
}

void Operation::learn(int peer, const std::byte* payload) {
  BufferAddresses a;
  std::memcpy(&a, payload, sizeof a);
  Peer& p = known(peer);
  // A window's id is never another one's, so what was found for it stays right. (tmp of this
  // process has one as well: other memory may lie at the same address later.)
  if (a == p.said) return;
  p.said = a;
  const auto locate = [&](int which) -> Peer::Buffer {
    const std::uint32_t window = a.window[which];
    const std::uint64_t address = a.at[which];
    if (group_.same_process(peer)) {
      // NOLINTNEXTLINE: our own address space
      auto* const there = reinterpret_cast<std::byte*>(address);
      // The user keeps buffers; tmp is kept here, as its owner may free it when its call has
      // failed.
      return window != 0 ? keep(there, window) : Peer::Buffer{there, 0, SIZE_MAX, 0, nullptr};
    }
    Peer::Buffer buffer{nullptr, address, 0, window, nullptr};
    if (!group_.same_host(peer)) return buffer;  // no step of the plan addresses it
    // If it has not come, or is gone, that only matters to a step that uses it.
    if (window != 0)
      map(buffer, peer, group_.host_peers().find_window(group_.member(peer), window));
    return buffer;
  };
  p.buffers = {locate(0), locate(1), locate(kTmpBuffer)};
}

Operation::Peer::Buffer Operation::keep(std::byte* tmp, std::uint32_t window) {
  const WindowMemory w = duplicate_window(tmp, window);
  if (w.id == 0) return {nullptr, 0, 0, window, nullptr};  // that matters to a step that uses it
  auto mapping = SharedMemory::map(FileDescriptor(w.fd), w.bytes);
  const auto at = static_cast<std::size_t>(tmp - w.base);
  return {mapping->data() + at, 0, w.bytes - at, 0, std::move(mapping)};
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

std::shared_ptr<SharedMemory> wait_for_window(RankGroup& group, int peer, std::uint32_t window) {
  // Told before it was named, it comes soon: longer than this takes a peer that is stopped.
  constexpr auto kPatience = std::chrono::seconds(10);
  const int member = group.member(peer);
  std::shared_ptr<SharedMemory> found;
  const auto is_there = [&] {
    // In this process it is there at once, or gone: its owner's call has failed.
    const bool may_come = !group.same_process(peer);
    if (may_come && (found = group.host_peers().find_window(member, window))) return true;
    if (const std::string trouble =
            may_come ? group.host_peers().window_trouble(member, window) : "";
        !trouble.empty()) {
      throw Error(ErrorCode::system,
                  fmt::format("rank {} cannot map window {} of rank {}: {}", group.rank(), window,
                              peer, trouble),
                  group.rank());
    }
    group.liveness().check_peers("waiting for a window");
    group.liveness().throw_if_failed();
    return false;
  };
  if (wait_until(deadline_after(kPatience), is_there)) return found;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("rank {} uses memory of rank {} (window {}) that is not there: was it "
                          "freed while an operation used it?",
                          group.rank(), peer, window),
              peer);
}

bool Operation::find_targets(const Action& action, const Move& m, std::size_t shift) {
  const CompiledOperand* operands = m.operands;
  targets_.resize(std::size_t{m.destinations} + m.sources);
  bool copies = false;
  for (std::size_t k = 0; k < targets_.size(); ++k) {
    targets_[k] = operands[k].where >= CompiledOperand::peer_in
                      ? peer_target(operands[k], m.elements * element_, shift)
                      : Target{pointer(action, operands[k], shift)};
    copies = copies || targets_[k].peer >= 0;
  }
  return copies;
}

Operation::Target Operation::peer_target(const CompiledOperand& p, std::size_t bytes,
                                         std::size_t shift) {
  Peer& peer = known(p.rank);
  const auto which =
      static_cast<std::size_t>(p.where) - static_cast<std::size_t>(CompiledOperand::peer_in);
  Peer::Buffer& buffer = peer.buffers[which];
  const std::size_t offset = p.offset + (p.where == CompiledOperand::peer_tmp ? 0 : shift);
  if (buffer.pointer == nullptr) {
    if (buffer.window == 0) return {nullptr, buffer.remote + offset, p.rank};
    map(buffer, p.rank, wait_for_window(group_, p.rank, buffer.window));
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
    constexpr auto kPatience = std::chrono::milliseconds(500);
    wait_until(deadline_after(kPatience), [&] {
      liveness.check_peers("copying another rank's memory");
      liveness.throw_if_failed();
      return false;
    });
    throw;
  }
}

}  // namespace

void write_plain_memory(RankGroup& group, int peer, const void* from, std::uint64_t to,
                        std::size_t bytes) {
  copy_unless_lost(group.liveness(), [&] { cma_write(group.pid(peer), from, to, bytes); });
}

void Operation::move_through_copies(const Move& move, const CombineOptions& options) {
  const std::size_t m = move.destinations;
  const std::size_t bytes = move.elements * element_;
  const auto pid = [&](const Target& t) { return group_.pid(t.peer); };
  const bool plain = move.sources == 1 && sources_[0].prescale == Prescale::none &&
                     !options.divide_result && move.format == Format::plain;
  const Target& from = targets_[m];
  const Target& to = targets_[0];
  if (plain && m == 1 && (from.peer >= 0) != (to.peer >= 0)) {
    for (std::size_t at = 0; at < bytes; at += kTouchedBytes) {
      const std::size_t length = std::min(kTouchedBytes, bytes - at);
      copy_unless_lost(liveness_, [&] {
        if (from.peer >= 0) {
          cma_read(pid(from), to.pointer + at, from.remote + at, length);
        } else {
          cma_write(pid(to), from.pointer + at, to.remote + at, length);
        }
      });
      check_still_valid();
    }
    return;
  }
  // Where `at` is, in bytes of plain elements, in a wide operand. (The remote ones are plain.)
  const auto place = [&](std::size_t k, std::size_t at) {
    const bool wide = move.operands[k].format == Format::wide;
    return wide ? at / element_ * size_of(accumulation_type(binding_->type)) : at;
  };
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
      sources_[k].data = t.peer >= 0 ? staging + k * piece : t.pointer + place(m + k, at);
    }
    std::size_t own = 0;
    bool remote = false;
    for (std::size_t k = 0; k < m; ++k) {
      if (targets_[k].peer < 0) destinations_[own++] = targets_[k].pointer + place(k, at);
      remote = remote || targets_[k].peer >= 0;
    }
    CombineOptions now = options;
    if (remote) {
      now.stream = 0;                 // it is read again at once
      destinations_[own++] = result;  // there is room: at least one of the m is not ours
    }
    combine_elements(move, own, length / element_, now);
    for (std::size_t k = 0; k < m; ++k) {
      const Target& t = targets_[k];
      if (t.peer < 0) continue;
      copy_unless_lost(liveness_, [&] { cma_write(pid(t), result, t.remote + at, length); });
    }
    check_still_valid();
  }
}

}  // namespace tutti
