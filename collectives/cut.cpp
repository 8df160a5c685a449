#include "collectives/cut.h"

#include <set>
#include <utility>

namespace tutti {

std::size_t slots_in_use(const RankPlan& plan, ConnectionShape links) {
  std::set<std::pair<std::int32_t, std::uint8_t>> out, in;  // by peer and channel
  for (const auto& lane : plan.lanes) {
    for (const Step& step : lane) {
      if (step.count == 0) continue;
      for (const Operand& o : plan.destinations(step)) {
        if (o.is_link()) out.emplace(o.rank, o.channel);
      }
      for (const Operand& o : plan.sources(step)) {
        if (o.is_link()) in.emplace(o.rank, o.channel);
      }
    }
  }
  return std::max(out.size(), in.size()) * links.data_bytes();
}

}  // namespace tutti
