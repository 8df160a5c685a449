#include "parallel/reshard/predict.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::parallel::reshard {

Prediction predict(const Plan& plan, const Rates& rates) {
  const std::size_t ranks = plan.hosts.size();
  const std::size_t hosts = ranks == 0 ? 0 : index(*std::ranges::max_element(plan.hosts) + 1);
  Prediction p{0, std::vector<double>(ranks), std::vector<double>(hosts)};
  std::vector<double> out(hosts), in(hosts);  // until when a link is busy
  // When the last message into a piece was there, of those that relays read.
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> arrived;
  for (const Move& m : plan.moves) {
    if (m.relay) arrived[{m.tensor, m.source}] = 0;
  }
  for (const Message& m : plan.messages) {
    const auto bytes = static_cast<double>(m.bytes);
    const std::size_t from = index(plan.hosts[index(m.from)]), to = index(plan.hosts[index(m.to)]);
    double ready = 0;
    for (const Move& move : plan.moves_of(m)) {
      if (move.relay) ready = std::max(ready, arrived[{move.tensor, move.source}]);
    }
    if (from != to) {
      out[from] = std::max(out[from], ready) + bytes / rates.link;
      p.sending[from] += bytes / rates.link;
      in[to] = std::max(in[to] + bytes / rates.link, out[from] + rates.latency);
      ready = in[to];
    }
    double& end = p.ranks[index(m.to)];
    end = std::max(end, ready) + bytes / rates.memory;
    p.end = std::max(p.end, end);
    if (arrived.empty()) continue;
    for (const Move& move : plan.moves_of(m)) {
      const auto piece = arrived.find({move.tensor, move.target});
      if (piece != arrived.end()) piece->second = end;
    }
  }
  return p;
}

}  // namespace tutti::parallel::reshard
