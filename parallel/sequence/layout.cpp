#include "parallel/sequence/layout.h"

namespace tutti::parallel::sequence {

std::size_t SequenceLayout::position(int of, std::size_t row) const {
  const auto r = static_cast<std::size_t>(of);
  if (order == SequenceOrder::contiguous) return r * rows + row;
  const std::size_t chunk = row < half() ? r : 2 * static_cast<std::size_t>(ranks) - 1 - r;
  return chunk * half() + row % half();
}

std::vector<Part> SequenceLayout::parts(int owner) const {
  const Range all{0, rows};
  if (owner == rank || !causal) return {{all, all, causal}};
  if (order == SequenceOrder::contiguous) {
    return owner < rank ? std::vector<Part>{{all, all, false}} : std::vector<Part>{};
  }
  // An earlier rank's first chunk comes before all of this rank's queries, its second one after
  // them. A later rank's chunks both lie between this rank's.
  return {owner < rank ? Part{all, {0, half()}, false} : Part{{half(), half()}, all, false}};
}

std::vector<Part> SequenceLayout::early() const {
  const Range first{0, half()}, second{half(), rows - half()};
  if (!causal) return {{second, {0, rows}, false}};
  std::vector<Part> result{{second, second, true}};
  if (first.count > 0) result.push_back({first, first, true});
  return result;
}

std::vector<Part> SequenceLayout::late() const {
  const Range first{0, half()}, second{half(), rows - half()};
  if (first.count == 0) return {};
  if (causal) return {{second, first, false}};
  return {{first, {0, rows}, false}};
}

std::vector<Part> SequenceLayout::gathered() const {
  const std::size_t whole = rows * static_cast<std::size_t>(ranks);
  if (!causal) return {{{0, rows}, {0, whole}, false}};
  const auto up_to = [&](Range queries) {
    return Part{queries, {0, position(rank, queries.end() - 1) + 1}, true};
  };
  if (order == SequenceOrder::contiguous) return {up_to({0, rows})};
  return {up_to({0, half()}), up_to({half(), half()})};
}

}  // namespace tutti::parallel::sequence
