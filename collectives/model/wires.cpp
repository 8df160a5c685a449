// See wires.h.
#include "collectives/model/wires.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

std::size_t wire_index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

Wires::Wires(int wires, std::size_t queues, std::size_t receivers)
    : busy_(wire_index(wires)),
      departed_(wires > 0 ? queues : 0),
      coming_(wires > 0 ? receivers : 0) {}

void Wires::depart(int queue, int receiver, const Path& way, const MessageCost& m, double now) {
  double& busy = busy_[wire_index(way.out)];
  const double begins = std::max(busy, now + m.first * m.send);
  busy = begins + m.wire;
  departures_.push(
      {queue, receiver, way, begins, std::max(busy, now + m.send + m.last * m.wire), m});
}

double Wires::next() const {
  return departures_.empty() ? std::numeric_limits<double>::infinity() : departures_.top().begins;
}

Wires::Arrival Wires::pass() {
  const Departure d = departures_.top();
  departures_.pop();
  double& busy = busy_[wire_index(d.way.in)];
  const double begins = std::max(busy, d.begins);
  busy = begins + d.cost.wire;
  const double arrives = std::max(busy, d.ends) + d.way.latency;
  const std::uint32_t number = departed_[wire_index(d.queue)]++;
  if (d.cost.receive > 0) {
    coming_[wire_index(d.receiver)].push_back(
        {d.queue, number, begins + d.cost.last * d.cost.wire + d.way.latency, arrives,
         d.cost.receive, d.cost.receive, d.cost.last * d.cost.receive});
  }
  return {d.queue, arrives};
}

void Wires::take_in(int receiver, double idle_since, double now) {
  for (Coming& c : coming_[wire_index(receiver)]) {
    const double from = std::max(idle_since, c.begins);
    const double most = c.work - c.last;  // up to `now`
    const double here = now < c.arrives ? most * (now - c.begins) / (c.arrives - c.begins) : most;
    const double done = std::min(now - from, here - (c.work - c.left));
    if (done <= 0) continue;
    c.left -= done;
    idle_since = from + done;
  }
}

double Wires::finish(int receiver, int queue, std::uint32_t number) {
  std::vector<Coming>& coming = coming_[wire_index(receiver)];
  const auto found = std::ranges::find_if(
      coming, [&](const Coming& c) { return c.queue == queue && c.number == number; });
  if (found == coming.end()) return 0;
  const double left = found->left;
  coming.erase(found);
  return left;
}

}  // namespace tutti
