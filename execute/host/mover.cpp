#include "execute/host/mover.h"

#include <algorithm>
#include <utility>

#include "core/compressed.h"
#include "core/memory.h"
#include "core/wide.h"

namespace tutti {
namespace {

/// The first `count` of a list that is kept for its memory.
template <class T>
T* room(std::vector<T>& list, std::size_t count) {
  if (list.size() < count) list.resize(count);
  return list.data();
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

void Mover::set_up(const Binding& binding) {
  const ReduceKind kind = binding.op.kind;
  element_ = size_of(binding.type);
  tmp_bytes_ = tmp_bytes(*binding.plan, binding.tiling, binding.type);
  combine_ = Combiner(binding.type, kind);
  canonical_ = binding.canonical;
  // In the canonical order an average divides the sum, before that is rounded; and before it is
  // compressed.
  const bool divides_sum = canonical_ || binding.plan->header.format == Format::compressed;
  scales_ = scales_inputs(kind, binding.type) && !(divides_sum && kind == ReduceKind::avg);
  divides_ = kind == ReduceKind::avg && !scales_;
}

CombineOptions Mover::combine_options(const Action& action) const {
  CombineOptions options;
  options.divisor = static_cast<std::uint32_t>(ranks_);
  options.divide_result = action.completes && divides_;
  options.canonical = canonical_;
  return options;
}

float* Mover::left_out(const Action& action, const Move& m) const {
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

Mover::Operands Mover::operands(const Move& m) {
  return {room(destinations_, m.destinations), room(sources_, m.sources)};
}

void Mover::move_combined(const Action& action, const Move& m, std::size_t shift) {
  CombineOptions options = combine_options(action);
  const CompiledOperand* place = m.operands;
  const Operands at = operands(m);
  for (std::size_t k = 0; k < m.destinations; ++k) {
    at.destinations[k] = pointer(action, *place++, shift);
  }
  for (std::size_t k = 0; k < m.sources; ++k) at.sources[k] = {pointer(action, *place++, shift)};
  if (scales(m)) scale_sources(m);
  options.left_out = left_out(action, m);
  options.left_out_times = binding_->left_out_times;
  combine(action, m, options);
}

void Mover::combine_elements(const Move& m, std::size_t destinations, std::size_t elements,
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

void Mover::combine(const Action& action, const Move& m, CombineOptions& options) {
  if (m.format != Format::plain) return combine_elements(m, m.destinations, m.elements, options);
  void** const destinations = destinations_.data();
  std::size_t count = m.destinations;
  // In place, a copy onto itself is nothing to do.
  if (is_copy(action, m)) {
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

void Mover::scale_sources(const Move& m) {
  const bool divides = binding_->op.kind == ReduceKind::avg;
  for (std::size_t k = 0; k < m.sources; ++k) {
    if (!m.operands[m.destinations + k].scaled) continue;
    sources_[k].prescale = divides ? Prescale::divide : Prescale::multiply;
    if (!divides) sources_[k].scalar = binding_->op.scalar;
  }
}

}  // namespace tutti
