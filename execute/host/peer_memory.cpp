#include "execute/host/peer_memory.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/cut.h"
#include "core/asymmetric_fence.h"
#include "core/wait.h"
#include "core/wide.h"
#include "transport/host/cma.h"

namespace tutti {
namespace {

constexpr int kTmpBuffer = 2;  // of a rank's buffers in, out and tmp

}  // namespace

const Binding& PeerMemory::bind() {
  const Binding& binding = mover_.binding();
  const PlanHeader& h = binding.plan->header;
  if (!binding.pulled) peers_.resize(static_cast<std::size_t>(group_.size()));
  result_ = {};
  mine_.scalar = mine_here_.scalar = binding.op.scalar;
  heap_hold_.take();
  bool in_heap = false;
  // Whether the others can address it.
  const auto describe = [&](int which, std::byte* base, std::size_t bytes) {
    mine_.at[which] = mine_here_.at[which] = reinterpret_cast<std::uint64_t>(base);
    const std::uint32_t announced = std::exchange(mine_.window[which], 0);
    mine_here_.window[which] = 0;
    const bool kept = which == kTmpBuffer && !binding.buffers;
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
  const Binding* bound = &binding;
  if (binding.buffers) {
    const int rank = group_.rank();
    const std::size_t element = mover_.element_bytes();
    const std::size_t in =
        binding.in.extent(in_blocks(h.collective, h.ranks, rank, h.root)) * element;
    const std::size_t out =
        binding.out.extent(out_blocks(h.collective, h.ranks, rank, h.root)) * element;
    const bool reaches_in = describe(0, binding.in.base, in);
    const bool reaches_out = describe(1, binding.out.base, out);
    if (!reaches_in || !reaches_out) {
      stage(reaches_in ? 0 : in, reaches_out ? 0 : out);
      bound = &staged_;
      describe(0, staged_.in.base, in);
      describe(1, staged_.out.base, out);
    }
  }
  const std::span<std::byte> tmp = mover_.tmp();
  describe(kTmpBuffer, tmp.data(), tmp.size());
  if (!in_heap) heap_hold_.release();
  return *bound;
}

void PeerMemory::finish() {
  heap_hold_.release();
  if (result_.bytes > 0) std::memcpy(result_.to, staged_.out.base, result_.bytes);
}

BufferAddresses PeerMemory::told_to(int peer) const {
  BufferAddresses told = group_.same_process(peer) ? mine_here_ : mine_;
  const Binding& binding = mover_.binding();
  if (binding.tiles_by_lane) {  // only this rank knows where the peer's block lies
    const auto block = static_cast<std::uint32_t>(peer);
    told.at[0] += binding.in.offset(block) * mover_.element_bytes();
    told.scalar = binding.in.elements(block);
  }
  if (binding.pulled) told.scalar = binding.in.count;
  return told;
}

void PeerMemory::stage(std::size_t in, std::size_t out) {
  staged_ = mover_.binding();
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

std::uint64_t PeerMemory::learn(int peer, const std::byte* payload) {
  BufferAddresses a;
  std::memcpy(&a, payload, sizeof a);
  Peer& p = known(peer);
  // A window's id is never another one's, so what was found for it stays right. (tmp of this
  // process has one as well: other memory may lie at the same address later.)
  if (a == p.said) return a.scalar;
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
  return a.scalar;
}

PeerMemory::Peer::Buffer PeerMemory::keep(std::byte* tmp, std::uint32_t window) {
  const WindowMemory w = duplicate_window(tmp, window);
  if (w.id == 0) return {nullptr, 0, 0, window, nullptr};  // that matters to a step that uses it
  auto mapping = SharedMemory::map(FileDescriptor(w.fd), w.bytes);
  const auto at = static_cast<std::size_t>(tmp - w.base);
  return {mapping->data() + at, 0, w.bytes - at, 0, std::move(mapping)};
}

void PeerMemory::map(Peer::Buffer& buffer, int peer, std::shared_ptr<SharedMemory> window) {
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

bool PeerMemory::find_targets(const Action& action, const Move& m, std::size_t shift) {
  const CompiledOperand* operands = m.operands;
  targets_.resize(std::size_t{m.destinations} + m.sources);
  bool copies = false;
  for (std::size_t k = 0; k < targets_.size(); ++k) {
    targets_[k] = operands[k].where >= CompiledOperand::peer_in
                      ? peer_target(operands[k], m.elements * mover_.element_bytes(), shift,
                                    k < m.destinations)
                      : Target{mover_.pointer(action, operands[k], shift)};
    copies = copies || targets_[k].peer >= 0;
  }
  return copies;
}

PeerMemory::Target PeerMemory::peer_target(const CompiledOperand& p, std::size_t bytes,
                                           std::size_t shift, bool writes) {
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
  if (writes && buffer.mapping) buffer.mapping->meet(buffer.pointer + offset, bytes);
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

/// Says that this rank reads or writes other ranks' memory, for as long as it lives. Throws where
/// the communicator has failed: then they take their memory back
/// (RankGroup::wait_until_untouched()).
class PeerMemory::Touching {
 public:
  explicit Touching(PeerMemory& memory) : touches_(memory.group_.control().touches) {
    if (!memory.light_) memory.light_ = join_heavy_fences();
    announce(touches_, *memory.light_);
    if (!memory.liveness_.failed()) return;
    stop();
    memory.liveness_.throw_failure();
  }
  ~Touching() { stop(); }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;

 private:
  /// release: all loads and stores before it have been done.
  void stop() { touches_.store(0, std::memory_order_release); }

  std::atomic<std::uint32_t>& touches_;
};

void PeerMemory::check_still_valid() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // nothing is read after this
  liveness_.throw_if_failed();
}

Mover::Operands PeerMemory::address(const Move& m, std::size_t shifted) {
  const Mover::Operands at = mover_.operands(m);
  for (std::size_t k = 0; k < m.destinations; ++k) {
    at.destinations[k] = targets_[k].pointer + shifted;
  }
  for (std::size_t k = 0; k < m.sources; ++k) {
    at.sources[k] = {targets_[m.destinations + k].pointer + shifted};
  }
  if (!mover_.scales(m)) return at;
  mover_.scale_sources(m);
  for (std::size_t k = 0; k < m.sources; ++k) {
    const CompiledOperand& p = m.operands[m.destinations + k];
    if (at.sources[k].prescale == Prescale::multiply && p.where != CompiledOperand::in) {
      at.sources[k].scalar = known(p.rank).said.scalar;
    }
  }
  return at;
}

void PeerMemory::move(const Action& action, const Move& m, std::size_t shift) {
  CombineOptions options = mover_.combine_options(action);
  const bool copies = find_targets(action, m, shift);
  const Touching touching(*this);
  const Mover::Operands at = address(m, 0);
  if (copies) {
    if (mover_.writes_past_cache() && action.sends.empty()) options.stream = m.destinations;
    move_through_copies(m, at, options);
    return check_still_valid();
  }
  // In pieces, as a failure has to wait for the one at hand. (Other formats have short moves.)
  const std::size_t element = mover_.element_bytes();
  const std::size_t piece = m.format == Format::plain ? kTouchedBytes / element : m.elements;
  Move part = m;
  for (std::size_t done = 0;;) {
    part.elements = std::min(piece, m.elements - done);
    CombineOptions now = options;
    mover_.combine(action, part, now);
    check_still_valid();
    done += part.elements;
    if (done == m.elements) return;
    address(m, done * element);
  }
}

void PeerMemory::move_through_copies(const Move& move, const Mover::Operands& at_hand,
                                     const CombineOptions& options) {
  const std::size_t m = move.destinations;
  const std::size_t element = mover_.element_bytes();
  const std::size_t bytes = move.elements * element;
  const auto pid = [&](const Target& t) { return group_.pid(t.peer); };
  const bool plain = move.sources == 1 && at_hand.sources[0].prescale == Prescale::none &&
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
    return wide ? at / element * size_of(accumulation_type(mover_.binding().type)) : at;
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
      at_hand.sources[k].data = t.peer >= 0 ? staging + k * piece : t.pointer + place(m + k, at);
    }
    std::size_t own = 0;
    bool remote = false;
    for (std::size_t k = 0; k < m; ++k) {
      if (targets_[k].peer < 0) at_hand.destinations[own++] = targets_[k].pointer + place(k, at);
      remote = remote || targets_[k].peer >= 0;
    }
    CombineOptions now = options;
    if (remote) {
      now.stream = 0;                        // it is read again at once
      at_hand.destinations[own++] = result;  // there is room: at least one of the m is not ours
    }
    mover_.combine_elements(move, own, length / element, now);
    for (std::size_t k = 0; k < m; ++k) {
      const Target& t = targets_[k];
      if (t.peer < 0) continue;
      copy_unless_lost(liveness_, [&] { cma_write(pid(t), result, t.remote + at, length); });
    }
    check_still_valid();
  }
}

}  // namespace tutti
