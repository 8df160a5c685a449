#include "parallel/gather_trace.h"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace tutti::parallel {

void gather_json(std::ostream& out, Axis& ranks, const Trace& own) {
  std::string text = events_json(own);
  const auto size = static_cast<std::size_t>(ranks.size());
  const std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(size);
  ranks.run(call_of(Collective::all_gather, &length, lengths.data(), 1, DataType::uint64));
  const std::uint64_t most = *std::ranges::max_element(lengths);
  text.resize(most);
  std::string all(ranks.rank() == 0 ? most * size : 0, '\0');
  ranks.run(call_of(Collective::gather, text.data(), all.data(), most, DataType::uint8));
  if (ranks.rank() != 0) return;
  std::vector<std::string> of_rank;
  for (std::size_t r = 0; r < size; ++r) of_rank.push_back(all.substr(r * most, lengths[r]));
  write_json(out, of_rank);
}

}  // namespace tutti::parallel
