// Symbolic execution of steps, and what each collective promises.
#include "collectives/verify/result.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/text/text.h"

namespace tutti::proof {

SymbolicRun::SymbolicRun(const Network& network, const Schedule& schedule,
                         const VerifyOptions& options)
    : net_(network),
      schedule_(schedule),
      // In the canonical order a scaled input is rounded as it is read: as a copy of it is.
      values_(network.buffers, options.scales && options.invariant == Invariance::none,
              options.invariant != Invariance::float32_up),
      reduces_(is_reduction(network.header().collective)),
      format_(network.header().format),
      invariant_(reduces_ ? options.invariant : Invariance::none),
      memory_(network.buffers.locations(), kNothing),
      slots_(network.slot_chunks, kNothing),
      message_size_(network.slots),
      message_is_wide_(network.slots) {}

void SymbolicRun::step(const NetworkStep& step, std::uint32_t) {
  try {
    check_messages(step);
    for (std::uint32_t i = 0; i < step->count; ++i) move_chunk(step, i);
  } catch (const Refuted& wrong) {
    throw Refuted{net_.step_name(step.lane, step.index) + " " + wrong.story};
  }
}

void SymbolicRun::check_messages(const NetworkStep& step) {
  // move_chunk compares chunks: a message at its sender and at its receiver must both be as large
  // as the step says.
  const auto form = [](bool wide) { return wide ? "partial sums" : "results"; };
  for (const Ref& ref : net_.sources(step)) {
    if (!ref.is_link()) continue;
    const std::uint32_t sent = message_size_[schedule_.full_slot(ref.id)];
    if (sent != step->count) {
      throw Refuted{fmt::format("expects {} chunk(s) from rank {}, whose message has {}",
                                step->count, net_.links[ref.id].sender, sent)};
    }
    const bool is_wide = message_is_wide_[schedule_.full_slot(ref.id)];
    if (step->count > 0 && format_ == Format::wide && is_wide != step->takes_wide) {
      throw Refuted{fmt::format("expects {} from rank {}, whose message holds {}",
                                form(step->takes_wide), net_.links[ref.id].sender, form(is_wide))};
    }
  }
  for (const Ref& ref : net_.destinations(step)) {
    if (!ref.is_link()) continue;
    message_size_[schedule_.free_slot(ref.id)] = step->count;
    message_is_wide_[schedule_.free_slot(ref.id)] = step->sends_wide;
  }
}

void SymbolicRun::move_chunk(const NetworkStep& step, std::uint32_t i) {
  sources_.clear();
  for (std::uint32_t s = 0; s < step->sources; ++s) sources_.push_back(read(step, s, i));
  Value v = reduces_ ? reduce(step) : sources_[0];
  if (format_ == Format::compressed) v = compress(step, v);
  const Value wide = format_ == Format::wide && !step->completes ? unrounded() : v;
  const Buffers& buffers = net_.buffers;
  const std::uint32_t shape = step->shape_chunk + step.shift + i;
  if (!buffers.all_chunks_are_equal() &&
      values_.size_class(v) !=
          buffers.size_class(net_.lanes[step.lane].rank, step->shape_space, shape)) {
    throw Refuted{fmt::format("moves {} as if it were as large as {}[{}]", values_.text(v),
                              name(step->shape_space), shape)};
  }
  for (const Ref& ref : net_.destinations(step)) {
    if (ref.is_link()) {
      slots_[schedule_.free_chunks(ref.id) + i] = step->sends_wide ? wide : v;
    } else {
      memory_[step.location(ref) + i] = buffers.is_tmp(step.location(ref)) ? wide : v;
    }
  }
}

Value SymbolicRun::read(const NetworkStep& step, std::uint32_t source, std::uint32_t i) const {
  const Ref& ref = net_.sources(step)[source];
  if (ref.is_link()) return slots_[schedule_.full_chunks(ref.id) + i];
  const Value stored = ref.has_location() ? memory_[step.location(ref) + i] : kNothing;
  // An `in` that was written to is one that coincides with `out`. It is no input any more, and an
  // operator that scales inputs (avg, pre_multiplied_sum) would scale it once more.
  if (ref.is_in() && stored == kNothing) return values_.input(step.input(ref) + i);
  if (stored != kNothing && !(ref.is_in() && reduces_)) return stored;
  Operand o = net_.operand(step.lane, step.index, step->destinations + source);
  o.chunk += i;
  throw Refuted{fmt::format("reads {}, {}", to_text(o, 1),
                            stored == kNothing ? "which nothing has written"
                                               : "which was overwritten: in place it is `out`")};
}

Value SymbolicRun::reduce(const NetworkStep& step) {
  const bool copies = sources_.size() == 1;
  const Value v = copies ? values_.copied(sources_[0]) : values_.combine(sources_);
  // A copy completes a reduction only where there is nothing to add: a single rank's input.
  const bool completes = (!copies || net_.sources(step)[0].is_in()) && values_.is_complete(v);
  if (completes == step->completes) return v;
  const std::uint32_t chunk = values_.chunk(v);
  if (completes) {
    throw Refuted{fmt::format("completes the reduction of in[{}], but is not marked so", chunk)};
  }
  if (values_.is_complete(v)) {
    throw Refuted{
        fmt::format("is marked to complete the reduction of in[{}], which was complete", chunk)};
  }
  throw Refuted{
      fmt::format("is marked to complete the reduction of in[{}], which lacks the input "
                  "of {}",
                  chunk, rank_names(values_.missing(v)))};
}

Value SymbolicRun::compress(const NetworkStep& step, Value v) {
  const auto is_compressed = [&](const Ref& ref) {
    return ref.is_link() || (ref.has_location() && net_.buffers.is_tmp(step.location(ref)));
  };
  if (std::ranges::none_of(net_.destinations(step), is_compressed)) return v;
  if (step->sources > 1) return values_.compressed(v);
  // A compressed value goes on as it is; an input is not rounded to its type in between.
  return is_compressed(net_.sources(step)[0]) ? v : values_.compressed(sources_[0]);
}

Value SymbolicRun::unrounded() {
  return sources_.size() == 1 ? sources_[0] : values_.combine(sources_, true);
}

void SymbolicRun::check_results() const {
  const PlanHeader& h = net_.header();
  for (int r = 0; r < h.ranks; ++r) {
    const std::uint32_t chunks = net_.buffers.chunks(r, Space::out);
    for (std::uint32_t c = 0; c < chunks; ++c) check_result(r, c);
  }
}

std::uint32_t SymbolicRun::roundings() const {
  std::uint32_t most = 0;
  for (int r = 0; r < net_.plan.header.ranks; ++r) {
    for (std::uint32_t c = 0; c < net_.buffers.chunks(r, Space::out); ++c) {
      most = std::max(most, values_.depth(memory_[net_.buffers.location(r, Space::out, c)]));
    }
  }
  return most;
}

void SymbolicRun::check_result(int rank, std::uint32_t chunk) const {
  const PlanHeader& h = net_.header();
  const Value v = memory_[net_.buffers.location(rank, Space::out, chunk)];
  if (v == kNothing) {
    throw Refuted{fmt::format("out[{}] of rank {} is never written", chunk, rank)};
  }
  const auto block = static_cast<int>(chunk / h.pieces);
  const std::uint32_t piece = chunk % h.pieces;
  const std::uint32_t own_block = static_cast<std::uint32_t>(rank) * h.pieces + piece;
  int source = 0;              // the expected input is that of rank `source`,
  std::uint32_t from = piece;  // its in[from]
  switch (h.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return check_sum(rank, chunk, v);
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return check_sum(rank, chunk, v);
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::gather:
      source = block;
      break;
    case Collective::broadcast:
      source = h.root;
      break;
    case Collective::scatter:
      source = h.root;
      from = own_block;
      break;
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      source = block;
      from = own_block;
      break;
    case Collective::send_recv:
      source = rank == 0 ? h.ranks - 1 : rank - 1;
      break;
    case Collective::barrier:
      return;  // has no out
  }
  if (v != values_.input(net_.buffers.input(source, from))) {
    throw Refuted{fmt::format("out[{}] of rank {} should be in[{}]@{}, but is {}", chunk, rank,
                              from, source, values_.text(v))};
  }
}

void SymbolicRun::check_sum(int rank, std::uint32_t chunk, Value v) const {
  const PlanHeader& h = net_.header();
  const bool are_equal = h.collective == Collective::all_reduce;
  const Value first = are_equal ? memory_[net_.buffers.location(0, Space::out, chunk)] : kNothing;
  if (rank > 0 && v == first) return;  // which is right
  const bool scatters =
      h.collective != Collective::all_reduce && h.collective != Collective::reduce;
  const std::uint32_t from = scatters ? static_cast<std::uint32_t>(rank) * h.pieces + chunk : chunk;
  if (values_.chunk(v) != from) {
    throw Refuted{
        fmt::format("out[{}] of rank {} should be the sum of all ranks' in[{}], but is {}", chunk,
                    rank, from, values_.text(v))};
  }
  if (!values_.is_complete(v)) {
    throw Refuted{fmt::format("out[{}] of rank {} lacks the input of {}", chunk, rank,
                              rank_names(values_.missing(v)))};
  }
  if (are_equal && v != first) {
    throw Refuted{fmt::format(
        "out[{}] can have other bits on rank 0 than on rank {}: {} on the one, {} on the other; "
        "the order must be the same, and each input be added directly from in, or as a copy, on "
        "both",
        chunk, rank, values_.text(first), values_.text(v))};
  }
  if (format_ == Format::compressed && h.ranks > 1) check_is_in_8_bits(rank, chunk, v);
  if (invariant_ != Invariance::none) check_is_canonical(rank, chunk, v);
}

void SymbolicRun::check_is_in_8_bits(int rank, std::uint32_t chunk, Value v) const {
  // A sum that stays with its owner is not compressed.
  const bool stays = net_.header().collective == Collective::reduce_scatter;
  if (stays ? values_.is_sum_of_8_bits(v) : values_.is_sum_in_8_bits(v)) return;
  throw Refuted{fmt::format(
      "out[{}] of rank {} is {}, but in a compressed plan it should be {}: each input compressed "
      "once, by its rank; one sum, in the order of the ranks; and that {}",
      chunk, rank, values_.text(v),
      stays ? "compress(in@0) + compress(in@1) + ..."
            : "compress(compress(in@0) + compress(in@1) + ...)",
      stays ? "not compressed" : "compressed once")};
}

void SymbolicRun::check_is_canonical(int rank, std::uint32_t chunk, Value v) const {
  const bool in_one_step = values_.depth(v) <= 1;
  if (values_.is_canonical(v) && (in_one_step || invariant_ == Invariance::float32_up)) return;
  throw Refuted{fmt::format(
      "out[{}] of rank {} has bits that depend on the plan: it is {}, but the canonical expression "
      "is {}",
      chunk, rank, values_.tree_text(v), values_.canonical_text(values_.chunk(v)))};
}

}  // namespace tutti::proof
