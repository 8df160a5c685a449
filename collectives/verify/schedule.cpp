// Waiting on bounded links, and the story of a deadlock.
#include "collectives/verify/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::proof {

bool Schedule::is_ready(const NetworkStep& step) {
  LaneState& state = lanes_[step.lane];
  const auto operands = net_.operands(step);
  // A link that was once found ready stays so until this lane itself uses it.
  for (; state.ref < operands.size(); ++state.ref) {
    const Ref& ref = operands[state.ref];
    if (!ref.is_link()) continue;
    const LinkState& link = links_[ref.id];
    const std::uint32_t unread = link.sent - link.received;
    if (state.ref < step->destinations ? unread == net_.links[ref.id].capacity : unread == 0) {
      state.waits_for = ref.id;
      return false;
    }
  }
  state.ref = 0;
  return true;
}

void Schedule::move_links(const NetworkStep& step) {
  for (const Ref& ref : net_.sources(step)) {
    if (!ref.is_link()) continue;
    LinkState& link = links_[ref.id];
    ++link.received;
    if (++link.next_full == net_.links[ref.id].capacity) link.next_full = 0;
    wake(net_.links[ref.id].sending_lane, ref.id);
  }
  for (const Ref& ref : net_.destinations(step)) {
    if (!ref.is_link()) continue;
    LinkState& link = links_[ref.id];
    ++link.sent;
    if (++link.next_free == net_.links[ref.id].capacity) link.next_free = 0;
    wake(net_.links[ref.id].receiving_lane, ref.id);
  }
}

void Schedule::wake(std::uint32_t lane, std::uint32_t link) {
  if (lanes_[lane].waits_for != link) return;
  lanes_[lane].waits_for = kNone;
  runnable_.push_back(lane);
}

bool Schedule::is_receiving(std::uint32_t lane) const {
  return lanes_[lane].ref >= next_step(lane)->destinations;
}

std::string Schedule::deadlock() const {
  // Every lane that has not finished waits for a link. The lane at the other end has messages to
  // send or to read, hence has not finished either (form.cpp counts them). So a walk from lane to
  // awaited lane ends in a cycle.
  const auto waits_for = [&](std::uint32_t lane) {
    const Link& link = net_.links[lanes_[lane].waits_for];
    return is_receiving(lane) ? link.sending_lane : link.receiving_lane;
  };
  std::uint32_t lane = 0;
  while (lanes_[lane].waits_for == kNone) ++lane;
  std::vector<bool> seen(lanes_.size());
  for (; !seen[lane]; lane = waits_for(lane)) seen[lane] = true;
  std::vector<std::uint32_t> cycle;
  std::uint32_t at = lane;
  do {
    cycle.push_back(at);
    at = waits_for(at);
  } while (at != lane);
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());

  constexpr std::size_t kMostTold = 4;
  std::string story = "deadlock: ";
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    if (i == kMostTold && cycle.size() > kMostTold + 1) {
      story += fmt::format("and so on through {} more lanes; ", cycle.size() - kMostTold - 1);
      i = cycle.size() - 1;
    }
    const std::uint32_t self = cycle[i];
    const Link& link = net_.links[lanes_[self].waits_for];
    story += net_.step_name(self, lanes_[self].index);
    if (is_receiving(self)) {
      const NetworkLane& sender = net_.lanes[link.sending_lane];
      story += fmt::format(" waits for a message from rank {} lane {}", sender.rank, sender.lane);
    } else {
      story +=
          fmt::format(" waits for a free slot towards rank {}, whose {} slot(s) are all unread",
                      link.receiver, link.capacity);
    }
    story += i + 1 < cycle.size() ? "; " : ", which closes the circle";
  }
  return story;
}

}  // namespace tutti::proof
