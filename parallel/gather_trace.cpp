#include "parallel/gather_trace.h"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/agreement.h"

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
  std::string problem;
  if (ranks.rank() == 0) {
    std::vector<std::string> of_rank;
    for (std::size_t r = 0; r < size; ++r) of_rank.push_back(all.substr(r * most, lengths[r]));
    try {
      write_json(out, of_rank);
    } catch (const Error& e) {
      problem = e.what();
    }
  }
  problem = Agreement(ranks).text_of(0, problem);
  if (!problem.empty()) throw Error(ErrorCode::system, problem, ranks.world_rank(0));
}

}  // namespace tutti::parallel
