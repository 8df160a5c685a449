#include "bench/perf/bits.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "bench/perf/numbers.h"
#include "bench/perf/table.h"

namespace tutti::perf {

Bits::Bits(Communicator& communicator, const RankMemory& memory, Collective collective,
           DataType type, ReduceKind kind, int root)
    : communicator_(communicator),
      memory_(memory),
      op_(Data({type, kind, communicator.size(), 1}).op(communicator.rank())),
      seen_(kPeriod),
      bits_(kPeriod) {
  setup_.collective = collective;
  setup_.type = type;
  setup_.ranks = communicator.size();
  setup_.rank = communicator.rank();
  setup_.root = root;
}

std::uint64_t Bits::input(std::size_t position) const {
  const std::uint64_t hash =
      mix((position % kPeriod + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(setup_.rank));
  if (!is_float(setup_.type)) return truncate(setup_.type, hash);
  // Large and small ones, so that almost every sum depends on its order.
  const auto value = static_cast<float>(std::ldexp(static_cast<double>(hash >> 40), -24) + 0.0625);
  const double scaled = hash % 3 == 0 ? value : value / 32;
  return encode(setup_.type, (hash & 4) != 0 ? -scaled : scaled);
}

void Bits::add(std::size_t bytes) {
  setup_.shape = shape_of(setup_.collective, bytes, setup_.type, setup_.ranks);
  const std::size_t size = size_of(setup_.type);
  for (const bool in_place : {false, true}) {
    setup_.in_place = in_place;
    std::byte* const to = memory_.receive(setup_.type);
    std::byte* const from =
        in_place ? to + in_place_input(setup_) * size : memory_.send(setup_.type);
    for (std::size_t i = 0; i < setup_.shape.in; ++i) {
      store(setup_.type, from + i * size, input(i));
    }
    BoundCall bound(setup_, op_);
    for (const Call& call : bound.on(memory_.send(setup_.type), to)) communicator_.run(call);
    if (setup_.collective == Collective::reduce && setup_.rank != setup_.root) continue;
    const bool scatters = setup_.collective == Collective::reduce_scatter;
    const std::size_t first =
        scatters ? static_cast<std::size_t>(setup_.rank) * setup_.shape.count : 0;
    look(to + (in_place ? in_place_output(setup_) * size : 0), first, setup_.shape.out);
  }
}

void Bits::look(const std::byte* found, std::size_t first, std::size_t count) {
  const std::size_t size = size_of(setup_.type);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = load(setup_.type, found + i * size);
    const std::size_t at = (first + i) % kPeriod;
    if (seen_[at] == 0) {
      seen_[at] = 1;
      bits_[at] = bits;
    } else if (bits_[at] != bits) {
      ++differ_;
    }
  }
}

Bits::Result Bits::finish() {
  // Of each element of the period, the bits that the ranks that saw it have: the least and the
  // most of them.
  std::vector<std::uint64_t> least(kPeriod), most(kPeriod), seen(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    least[i] = seen_[i] != 0 ? bits_[i] : ~std::uint64_t{0};
    most[i] = seen_[i] != 0 ? bits_[i] : 0;
  }
  communicator_.all_reduce(least.data(), least.data(), kPeriod, DataType::uint64, ReduceKind::min);
  communicator_.all_reduce(most.data(), most.data(), kPeriod, DataType::uint64, ReduceKind::max);
  communicator_.all_reduce(seen_.data(), seen.data(), kPeriod, DataType::uint64, ReduceKind::max);
  std::uint64_t differ = 0;
  communicator_.all_reduce(&differ_, &differ, 1, DataType::uint64);
  std::uint64_t hash = 0;
  std::size_t elements = 0;
  for (std::size_t i = 0; i < kPeriod; ++i) {
    if (seen[i] == 0) continue;
    ++elements;
    hash = mix(hash ^ (least[i] + (i + 1) * 0x9e3779b97f4a7c15u));
    if (least[i] != most[i]) ++differ;
  }
  Result result;
  result.agree = differ == 0;
  result.text = fmt::format("# Bits   : {} {} of {}, {} ranks: ", program_name(setup_.collective),
                            label(std::optional(op_.kind)), label(setup_.type), setup_.ranks);
  if (!result.agree) {
    result.text += fmt::format("not the same for all sizes ({} elements differ)", differ);
  } else if (elements < kPeriod) {
    result.text += fmt::format("{:016x}, of {} elements: ask for {} or more to compare", hash,
                               elements, kPeriod);
  } else {
    result.text += fmt::format("{:016x}", hash);
  }
  return result;
}

}  // namespace tutti::perf
