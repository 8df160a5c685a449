#include "execute/host/operation.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/asymmetric_fence.h"
#include "core/compressed.h"
#include "core/memory.h"
#include "core/wide.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

/// The first `count` of a list that is kept for its memory.
template <class T>
T* room(std::vector<T>& list, std::size_t count) {
  if (list.size() < count) list.resize(count);
  return list.data();
}

inline bool ready(const Action& action) {
  for (const ReceiveLink& r : action.receives) {
    if (!r.link->ready()) return false;
  }
  for (const SendLink& s : action.sends) {
    if (!s.link->ready(action.bytes_out)) return false;
  }
  return true;
}

}  // namespace

Workspace::~Workspace() { release(); }

std::size_t Workspace::bytes() const {
  std::size_t sum = 0;
  for (const Piece& p : pieces_) sum += p.bytes;
  return sum;
}

void Workspace::release() {
  for (Piece& p : pieces_) deallocate(std::exchange(p, {}).data);
}

std::byte* Workspace::reserve(Use use, std::size_t bytes) {
  Piece& p = pieces_[use];
  if (p.bytes < bytes) {
    deallocate(p.data);
    p = {};
    p.data = static_cast<std::byte*>(allocate(bytes));
    p.bytes = bytes;
  }
  return p.data;
}

void Operation::bind(const Binding& binding) {
  binding_ = &binding;
  result_ = {};
  stream_ = binding.stream;
  if (binding.trial) {
    stream_ = binding.trial->next();
    begun_ = Clock::now();
  }
  if (binding.programs == nullptr || binding.programs != programs_) set_up();
  tile_ = 0;
  for (Lane& lane : lanes_) {
    lane.tile = 0;
    if (lane.tiles > 0) begin_tile(lane);
  }
  if (tmp_bytes_ > 0) tmp_ = workspace_.reserve(Workspace::kTmp, tmp_bytes_);
  const Signature& signature = binding.signature;
  progress_ = progress_of(signature.sequence, 0);
  if (signature.sequence == 0) {
    published_ = &unpublished_;
  } else {
    published_ = &control_.progress;
    if (binding.unchanged) {
      publish_sequence(control_, signature.sequence);
    } else {
      publish_signature(control_, signature);
      if (is_rooted(signature.collective)) {
        compare_with_peers(group_, signature.sequence);
        liveness_.throw_if_failed();
      }
    }
  }
  unrung_ = 0;
  unrung_doorbells_.clear();
  zero_copy_sends_.clear();
  posted_receives_.clear();
  may_send_input_ = may_send_all_ = !binding.windows;
  if (binding.windows) {
    if (!binding.pulled) peers_.resize(static_cast<std::size_t>(group_.size()));
    describe_buffers();
  }
}

void Operation::finish() {
  heap_hold_.release();
  zero_copy_sends_.clear();
  posted_receives_.clear();
  if (result_.bytes > 0) std::memcpy(result_.to, staged_.out.base, result_.bytes);
  if (!binding_->trial) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - begun_;
  binding_->trial->took(took.count());
}

void Operation::set_up() {
  if (binding_->condition != nullptr) return lanes_.clear();
  const RankPlan& plan = *binding_->plan;
  const ReduceKind kind = binding_->op.kind;
  const DataType type = binding_->type;
  programs_ = binding_->programs;
  element_ = size_of(type);
  tmp_bytes_ = tmp_bytes(plan, binding_->tiling, type);
  combine_ = Combiner(type, kind);
  canonical_ = binding_->canonical;
  // In the canonical order an average divides the sum, before that is rounded; and before it is
  // compressed.
  const bool divides_sum = canonical_ || plan.header.format == Format::compressed;
  scales_ = scales_inputs(kind, type) && !(divides_sum && kind == ReduceKind::avg);
  divides_ = kind == ReduceKind::avg && !scales_;
  far_sends_.clear();
  if (spans_hosts_ && programs_) {
    note_far_sends(programs_->whole.sends);
    note_far_sends(programs_->last.sends);
  }
  lanes_.resize(plan.lanes.size());
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = lanes_[l];
    lane.index = l;
    const bool by_lane = programs_ && !programs_->by_lane.empty();
    const Tiling& tiling = by_lane ? programs_->by_lane[l].tiling : binding_->tiling;
    lane.tiles = binding_->tiles_by_lane && !by_lane ? tiles_of(plan, shape(), l) : tiling.tiles;
    lane.tile_bytes = tiling.tile * element_;
    if (plan.lanes[l].empty()) lane.tiles = 0;
    if (programs_) {
      lane.own.reset();
      if (lane.tiles > 1) lane.whole = programs_->whole.lanes[l];
      if (lane.tiles > 0) lane.last = programs_->last.lanes[l];
    } else if (!lane.own) {
      lane.own = std::make_unique<TileProgram>();
    }
  }
}

std::span<const Action> Operation::compile_tile(Lane& lane) {
  *lane.own = compile(*binding_->plan, shape(), lane.tile, &group_, lane.index);
  if (spans_hosts_) note_far_sends(lane.own->sends);
  return lane.own->lanes[lane.index];
}

/// Up to a cache line, as memcpy() does it, without the way there.
inline void copy_line(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto ends = [&](auto word) {  // the first and the last so many bytes, which may overlap
    auto last = word;
    std::memcpy(&word, from, sizeof word);
    std::memcpy(&last, from + bytes - sizeof last, sizeof last);
    std::memcpy(to, &word, sizeof word);
    std::memcpy(to + bytes - sizeof last, &last, sizeof last);
  };
  struct Half {
    std::uint64_t words[4];
  };
  struct Quarter {
    std::uint64_t words[2];
  };
  if (bytes >= sizeof(Half)) return ends(Half{});
  if (bytes >= sizeof(Quarter)) return ends(Quarter{});
  if (bytes >= 8) return ends(std::uint64_t{});
  if (bytes >= 4) return ends(std::uint32_t{});
  for (std::size_t k = 0; k < bytes; ++k) to[k] = from[k];
}

inline void Operation::move(const Action& action, const Move& m, std::size_t shift) {
  const bool scaled = m.scaled && scales_;
  const bool divides = action.completes && divides_;
  const bool plain = m.sources == 1 && !scaled && !divides;
  const std::size_t bytes = m.elements * element_;
  if (plain && !m.remote && m.format == Format::plain && bytes <= kCacheLine) {
    const CompiledOperand* const operands = m.operands;
    const std::byte* const from = pointer(action, operands[m.destinations], shift);
    for (std::size_t k = 0; k < m.destinations; ++k) {
      std::byte* const to = pointer(action, operands[k], shift);
      if (to != from) copy_line(to, from, bytes);
    }
  } else {
    move_combined(action, m, shift, plain);
  }
}

inline void Operation::perform(const Action& action, std::size_t shift) {
  if (action.signals) return signal(action);
  if (is_pulled(action)) return pull(action, shift);
  for (const ReceiveLink& r : action.receives) accept(r, action.bytes_in, binding_->tag);
  if (!zero_copy_sends_.empty()) copy_pending_sends(action, shift);
  if (spans_hosts_ && std::max(action.bytes_out, action.bytes_in) >= kZeroCopyBytes &&
      perform_zero_copy(action, shift))
    return;
  if (action.bytes_out >= kBulkBytes && !action.sends.empty()) {
    move_bulk(action, shift);
  } else {
    past_cache_ = false;
    for (const Move& m : action.moves) move(action, m, shift);
  }
  for (const ReceiveLink& r : action.receives) {
    r.link->free();
    ring(*r.doorbell);
  }
  for (const SendLink& s : action.sends) s.link->publish(binding_->tag, action.bytes_out);
  if (spans_hosts_) return ring_later(action);
  for (const SendLink& s : action.sends) ring(*s.doorbell);
}

bool Operation::advance() {
  for (;;) {
    bool moved = false;
    std::size_t done = 0;
    for (Lane& lane : lanes_) {
      // Without windows the lanes run ahead of each other freely; tmp and links keep them right.
      const std::size_t end = end_of(lane);
      while (lane.tile < end && ready(*lane.next)) {
        perform(*lane.next, lane.tile * lane.tile_bytes);
        moved = true;
        published_->store(++progress_, std::memory_order_relaxed);
        if (++lane.next == lane.end && ++lane.tile < lane.tiles) begin_tile(lane);
      }
      if (lane.tile >= end) ++done;
    }
    if (!unrung_doorbells_.empty() && (!moved || done == lanes_.size())) ring_far();
    if (done == lanes_.size()) {
      if (binding_->windows && ++tile_ < binding_->tiling.tiles) continue;
      if (!is_over()) return false;
      finish();
      return true;
    }
    if (!moved) return false;
  }
}

bool Operation::can_advance() const {
  bool all_done = true;
  for (const Lane& lane : lanes_) {
    if (lane.tile >= end_of(lane)) continue;
    if (ready(*lane.next)) return true;
    all_done = false;
  }
  return all_done && is_over();
}

void Operation::move_bulk(const Action& action, std::size_t shift) {
  // The messages of a step are written at once, so in one way: as the first one's link wants it.
  Sender& first = *action.sends.front().link;
  const Sender::Way way = first.choose_way();
  past_cache_ = way.past_cache;
  const auto begun = way.timed ? Clock::now() : Clock::time_point{};
  for (const Move& m : action.moves) move(action, m, shift);
  if (!way.timed) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - begun;
  const std::size_t lines = action.bytes_out / kCacheLine * action.sends.size();
  first.took(took.count() / static_cast<double>(lines));
}

void Operation::signal(const Action& action) {
  const std::size_t bytes = binding_->windows ? sizeof(BufferAddresses) : 0;
  const bool uneven = binding_->tiles_by_lane && binding_->windows;
  // Ranks with different counts may disagree whether a block goes through a link or a window: the
  // tags keep a message of one kind from passing for one of the other.
  const std::uint32_t tag = uneven ? binding_->tag ^ 0x55555555U : binding_->tag;
  for (const ReceiveLink& r : action.receives) {
    accept(r, bytes, tag);
    if (binding_->windows) learn(r.rank, r.link->slot(bytes));
    if (uneven) {
      const std::uint64_t lent = known(r.rank).said.scalar;
      const std::size_t expected = binding_->out.elements(static_cast<std::uint32_t>(r.rank));
      if (lent != expected) mismatch(r.rank, lent * element_, tag, expected * element_);
    }
    r.link->free();
    ring(*r.doorbell);
  }
  for (const SendLink& s : action.sends) {
    if (binding_->windows) {
      const BufferAddresses told = told_to(s.rank);
      std::memcpy(s.link->slot(bytes), &told, bytes);
    }
    s.link->publish(tag, static_cast<std::uint32_t>(bytes));
    ring(*s.doorbell);
  }
}

CombineOptions Operation::combine_options(const Action& action) const {
  CombineOptions options;
  options.divisor = static_cast<std::uint32_t>(group_.size());
  options.divide_result = action.completes && divides_;
  options.canonical = canonical_;
  return options;
}

float* Operation::left_out(const Action& action, const Move& m) const {
  if (binding_->left_out == nullptr || !action.completes || m.format != Format::compressed) {
    return nullptr;
  }
  for (std::size_t k = m.not_plain; k < m.destinations; ++k) {
    if (m.operands[k].where != CompiledOperand::out) continue;
    const auto bytes = static_cast<const std::byte*>(destinations_[k]) - binding_->out.base;
    return binding_->left_out + static_cast<std::size_t>(bytes) / element_;
  }
  return nullptr;
}

void Operation::move_combined(const Action& action, const Move& m, std::size_t shift, bool plain) {
  CombineOptions options = combine_options(action);
  if (m.remote) return move_remote(action, m, shift, plain, options);
  const CompiledOperand* place = m.operands;
  void** const destinations = room(destinations_, m.destinations);
  Source* const from = room(sources_, m.sources);
  for (std::size_t k = 0; k < m.destinations; ++k) {
    destinations[k] = pointer(action, *place++, shift);
  }
  for (std::size_t k = 0; k < m.sources; ++k) from[k] = {pointer(action, *place++, shift)};
  if (m.scaled && scales_) scale_sources(m);
  options.left_out = left_out(action, m);
  options.left_out_times = binding_->left_out_times;
  combine_move(action, m, plain, options);
}

void Operation::combine_elements(const Move& m, std::size_t destinations, std::size_t elements,
                                 const CombineOptions& options) {
  const std::span to(destinations_.data(), destinations);
  const std::span<const Source> from(sources_.data(), m.sources);
  if (m.format == Format::plain) return combine_(to, from, elements, options);
  unsigned char* const not_plain = room(not_plain_sources_, m.sources);
  for (std::size_t k = 0; k < m.sources; ++k) {
    not_plain[k] = m.operands[m.destinations + k].format != Format::plain ? 1 : 0;
  }
  const std::span<const unsigned char> flags(not_plain, m.sources);
  if (m.format == Format::compressed) {
    combine_compressed(binding_->type, to, m.not_plain, from, flags, elements, options);
  } else {
    combine_wide(binding_->type, binding_->op.kind, to, m.not_plain, from, flags, elements,
                 options);
  }
}

/// Says that this rank reads or writes other ranks' memory, for as long as it lives. Throws where
/// the communicator has failed: then they take their memory back
/// (RankGroup::wait_until_untouched()).
class Operation::Touching {
 public:
  explicit Touching(Operation& operation) : touches_(operation.control_.touches) {
    if (!operation.light_) operation.light_ = join_heavy_fences();
    announce(touches_, *operation.light_);
    if (!operation.liveness_.failed()) return;
    stop();
    operation.liveness_.throw_failure();
  }
  ~Touching() { stop(); }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;

 private:
  /// release: all loads and stores before it have been done.
  void stop() { touches_.store(0, std::memory_order_release); }

  std::atomic<std::uint32_t>& touches_;
};

void Operation::move_remote(const Action& action, const Move& m, std::size_t shift, bool plain,
                            CombineOptions& options) {
  const bool copies = find_targets(action, m, shift);
  const Touching touching(*this);
  void** const destinations = room(destinations_, m.destinations);
  Source* const from = room(sources_, m.sources);
  const auto address = [&](std::size_t shifted) {
    for (std::size_t k = 0; k < m.destinations; ++k) {
      destinations[k] = targets_[k].pointer + shifted;
    }
    for (std::size_t k = 0; k < m.sources; ++k) {
      from[k] = {targets_[m.destinations + k].pointer + shifted};
    }
    if (m.scaled && scales_) scale_sources(m);
  };
  address(0);
  if (copies) {
    if (stream_ && action.sends.empty()) options.stream = m.destinations;
    move_through_copies(m, options);
    return check_still_valid();
  }
  // In pieces, as a failure has to wait for the one at hand. (Other formats have short moves.)
  const std::size_t piece = m.format == Format::plain ? kTouchedBytes / element_ : m.elements;
  Move part = m;
  for (std::size_t done = 0;;) {
    part.elements = std::min(piece, m.elements - done);
    CombineOptions now = options;
    combine_move(action, part, plain, now);
    check_still_valid();
    done += part.elements;
    if (done == m.elements) return;
    address(done * element_);
  }
}

inline void Operation::combine_move(const Action& action, const Move& m, bool plain,
                                    CombineOptions& options) {
  if (m.format != Format::plain) return combine_elements(m, m.destinations, m.elements, options);
  void** const destinations = destinations_.data();
  std::size_t count = m.destinations;
  // In place, a copy onto itself is nothing to do.
  if (plain) {
    count = static_cast<std::size_t>(
        std::remove(destinations, destinations + count, sources_[0].data) - destinations);
  }
  // Links come before memory; those that are written past the cache must come first.
  if (stream_ || past_cache_) {
    const std::size_t links = action.sends.size();
    const std::size_t memory = stream_ ? count - links : 0;
    options.stream = memory + (past_cache_ ? links : 0);
    if (memory > 0 && links > 0 && !past_cache_) {
      std::rotate(destinations, destinations + links, destinations + count);
    }
  }
  combine_({destinations, count}, {sources_.data(), m.sources}, m.elements, options);
}

void Operation::scale_sources(const Move& m) {
  const ReduceKind kind = binding_->op.kind;
  for (std::size_t k = 0; k < m.sources; ++k) {
    const CompiledOperand& p = m.operands[m.destinations + k];
    if (!p.scaled) continue;
    if (kind == ReduceKind::avg) {
      sources_[k].prescale = Prescale::divide;
    } else {
      sources_[k].prescale = Prescale::multiply;
      sources_[k].scalar =
          p.where == CompiledOperand::in ? binding_->op.scalar : known(p.rank).said.scalar;
    }
  }
}

void Operation::accept(const ReceiveLink& link, std::size_t bytes, std::uint32_t tag) {
  const std::uint32_t its = link.link->tag();
  const std::uint32_t got = link.link->bytes();
  if (its != tag || got != bytes) mismatch(link.rank, got, its, bytes);
}

}  // namespace tutti
