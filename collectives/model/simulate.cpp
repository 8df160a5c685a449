// See simulate.h. All that happens at one moment is noted before workers look at it, so that the
// order in which it is noted changes nothing.
#include "collectives/model/simulate.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <span>

#include "collectives/model/fair_share.h"
#include "collectives/model/wires.h"

namespace tutti {
namespace {

class Simulation {
 public:
  Simulation(const Scenario& s, bool record)
      : s_(s),
        record_(record),
        lanes_(s.lanes.size()),
        workers_(s.workers.size()),
        arrived_(s.queues.size()),
        taken_(arrived_.size()),
        used_(s.slots > 0 ? arrived_.size() : 0),
        waits_(s.cores > 0 ? workers_.size() : 0),
        cores_(at(s.cores)),
        wires_(s.wires, arrived_.size(), workers_.size()),
        share_(s.rates) {
    course_.moved.resize(s.rates.size());
    if (record) course_.steps.resize(s.steps.size());
  }

  Course run() {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      const Scenario::Lane& lane = s_.lanes[l];
      lanes_[l] = {lane.begin, lane.begin < lane.end ? s_.in_turn : 0};
      course_.unfinished += lanes_[l].turns > 0 ? 1 : 0;
    }
    double now = 0;
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) claim(w, now);
    do {
      do {
        while (is_due(now)) {
          const Event e = events_.top();
          events_.pop();
          note(e, now);
        }
        run_woken(now);
      } while (is_due(now) || !woken_.empty());
      settle(now);
    } while (find_moment(now));
    return std::move(course_);
  }

 private:
  enum class What : std::uint8_t { arrival, credit, flow, worker };
  struct Event {
    double time = 0;
    int number = 0;  // of the queue, flow, or worker
    std::uint32_t version : 30 = 0;
    What what : 2 = What::worker;
    friend bool operator>(const Event& a, const Event& b) { return a.time > b.time; }
  };
  struct LaneState {
    std::uint32_t step = 0, turns = 0;  // that are left
  };
  enum class Phase : std::uint8_t { idle, queued, switching, busy, done };
  struct WorkerState {
    std::uint32_t lane = 0;     // that it works on
    std::uint32_t sending = 0;  // messages that share links
    Phase phase = Phase::idle;
    bool woken = false;
  };
  struct Sending {
    int queue = 0, worker = 0, route = 0;
    double bytes = 0, rate = 0, since = 0;
  };
  struct Core {
    int holder = -1, last = -1;
    double idle_since = 0;
    std::deque<int> waiting;
  };
  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const Scenario::Worker& worker(int w) const { return s_.workers[at(w)]; }
  const Scenario::Queue& queue(int q) const { return s_.queues[at(q)]; }

  void push(double time, What what, int number, std::uint32_t version = 0) {
    Event e;
    e.time = time;
    e.number = number;
    e.version = version & kVersions;
    e.what = what;
    events_.push(e);
  }
  bool is_old(const Event& e) const {
    return e.what == What::flow && (share_.version(e.number) & kVersions) != e.version;
  }
  bool is_due(double now) const {
    return !events_.empty() && events_.top().time <= now + s_.moment;
  }
  /// The next one at which anything happens; false: nothing does any more. Ends of flows that were
  /// foretold and have moved since are no moments.
  bool find_moment(double& now) {
    while (!events_.empty() && is_old(events_.top())) events_.pop();
    pass_wires(events_.empty() ? kNever : events_.top().time);
    if (events_.empty()) return false;
    now = events_.top().time;
    return true;
  }

  void note(const Event& e, double now) {
    switch (e.what) {
      case What::arrival:
        ++arrived_[at(e.number)];
        course_.end = std::max(course_.end, now);
        return wake(queue(e.number).receiver, e.version);
      case What::credit:
        --used_[at(e.number)];
        return wake(queue(e.number).sender, e.version);
      case What::flow:
        return is_old(e) ? void() : end_flow(e.number, now);
      case What::worker:
        return due(e.number);
    }
  }

  /// What a worker may wait for has come. On a core that it shares it takes its turn to look at
  /// whatever was sent while it waited (in `wait`), and at nothing else that it cannot go on with.
  void wake(int w, std::uint32_t wait) {
    if (w < 0 || workers_[at(w)].phase != Phase::idle) return;
    const bool looks = s_.cores == 0 || (wait != 0 && (waits_[at(w)] & kVersions) == wait);
    if (looks || ready_lane(w) >= 0) due(w);
  }
  void due(int w) {
    if (workers_[at(w)].woken) return;
    workers_[at(w)].woken = true;
    woken_.push_back(w);
  }

  void run_woken(double now) {
    std::ranges::sort(woken_);
    running_.swap(woken_);
    for (const int w : running_) {
      WorkerState& state = workers_[at(w)];
      state.woken = false;
      if (state.phase == Phase::idle) {
        claim(w, now);
      } else {
        if (state.phase == Phase::busy) end_step(w, now);
        go_on(w, now);
      }
      pass_wires(now);
    }
    running_.clear();
  }

  void claim(int w, double now) {
    if (worker(w).core == Scenario::kOwnCore) return go_on(w, now);
    Core& core = cores_[at(worker(w).core)];
    if (core.holder < 0) return take(core, w, now);
    core.waiting.push_back(w);
    workers_[at(w)].phase = Phase::queued;
  }

  void take(Core& core, int w, double now) {
    const bool other = core.last >= 0 && core.last != w;
    core.holder = core.last = w;
    if (!other) return go_on(w, now);
    workers_[at(w)].phase = Phase::switching;
    push(now + s_.switching, What::worker, w);
  }

  /// Does steps that take no time, until one does, or none can begin.
  void go_on(int w, double now) {
    for (;;) {
      const int lane = ready_lane(w);
      if (lane < 0) break;
      if (!begin(w, static_cast<std::uint32_t>(lane), now)) return;
    }
    workers_[at(w)].phase = has_ended(w) ? Phase::done : Phase::idle;
    if (worker(w).core == Scenario::kOwnCore) return;
    ++waits_[at(w)];
    Core& core = cores_[at(worker(w).core)];
    core.holder = -1;
    if (core.waiting.empty()) return;
    const int next = core.waiting.front();
    core.waiting.pop_front();
    take(core, next, now);
  }

  std::span<const LaneState> lanes_of(int w) const {
    return {&lanes_[worker(w).first_lane], worker(w).lanes};
  }
  bool has_ended(int w) const {
    return std::ranges::all_of(lanes_of(w), [](const LaneState& l) { return l.turns == 0; });
  }
  /// -1: none.
  int ready_lane(int w) const {
    for (const LaneState& l : lanes_of(w)) {
      if (l.turns > 0 && is_ready(s_.steps[l.step], worker(w).first_queue)) {
        return static_cast<int>(&l - lanes_.data());
      }
    }
    return -1;
  }

  bool is_ready(const Scenario::Step& step, int queues) const {
    const Scenario::End* const ends = s_.ends.data() + step.first;
    for (std::uint32_t i = 0; i < step.sources; ++i) {
      const std::size_t q = at(queues + ends[i].queue);
      if (arrived_[q] <= taken_[q]) return false;
    }
    for (std::uint32_t i = step.sources;
         s_.slots > 0 && i < std::uint32_t{step.sources} + step.sends; ++i) {
      if (used_[at(queues + ends[i].queue)] >= s_.slots) return false;
    }
    return true;
  }

  /// Whether the worker goes on at once.
  bool begin(int w, std::uint32_t lane, double now) {
    WorkerState& state = workers_[at(w)];
    state.lane = lane;
    const Scenario::Step& step = s_.steps[lanes_[lane].step];
    const int queues = worker(w).first_queue;
    const Scenario::End* const ends = s_.ends.data() + step.first;
    const double start = s_.wires > 0 ? take_in(w, step, now) : now;
    for (std::uint32_t i = 0; i < step.sources; ++i) ++taken_[at(queues + ends[i].queue)];
    const double end = start + s_.costs[step.cost].work;
    if (record_) course_.steps[lanes_[lane].step] = {start, end};
    state.phase = Phase::busy;
    const double goes_on = send(w, step, end);
    if (worker(w).core != Scenario::kOwnCore) cores_[at(worker(w).core)].idle_since = goes_on;
    if (state.sending > 0) return false;
    if (goes_on > now) {
      push(goes_on, What::worker, w);
      return false;
    }
    end_step(w, now);
    return true;
  }

  void end_step(int w, double now) {
    course_.end = std::max(course_.end, now);
    LaneState& lane = lanes_[workers_[at(w)].lane];
    hand_over(w, s_.steps[lane.step], now);
    const Scenario::Lane& of = s_.lanes[workers_[at(w)].lane];
    if (++lane.step < of.end) return;
    lane.step = of.begin;
    if (--lane.turns == 0) --course_.unfinished;
  }

  /// What a step that ends at `end` frees and sends. Returns when the worker goes on: a message by
  /// wire keeps it busy after the step.
  double send(int w, const Scenario::Step& step, double end) {
    const Scenario::Cost& cost = s_.costs[step.cost];
    const int queues = worker(w).first_queue;
    const Scenario::End* const ends = s_.ends.data() + step.first;
    for (std::uint32_t i = 0; s_.slots > 0 && i < step.sources; ++i) {
      const int q = queues + ends[i].queue;
      if (is_at_once(cost, queue(q).credit)) continue;
      push(end + queue(q).credit, What::credit, q, wait_of(queue(q).sender));
    }
    double goes_on = end;
    for (std::uint32_t i = step.sources; i < std::uint32_t{step.sources} + step.sends; ++i) {
      const int q = queues + ends[i].queue;
      if (s_.slots > 0) ++used_[at(q)];
      const Scenario::Route& route = s_.routes[at(ends[i].route)];
      if (route.wires.out >= 0) {
        depart(q, route, cost.message, goes_on);
        goes_on += cost.message.send;
      } else if (route.links.empty() || cost.bytes <= 0) {
        const double delay = latency(route, cost.bytes);
        if (is_at_once(cost, delay)) continue;
        push(end + delay, What::arrival, q, wait_of(queue(q).receiver));
      } else {
        start_flow(w, q, ends[i].route, cost.bytes, end);
      }
    }
    return goes_on;
  }

  /// Whether what a step frees and sends is there when it ends. (Workers that share cores look at
  /// it in their turn.)
  bool is_at_once(const Scenario::Cost& cost, double delay) const {
    return delay <= 0 && cost.bytes <= 0 && s_.cores == 0;
  }
  void hand_over(int w, const Scenario::Step& step, double now) {
    const Scenario::Cost& cost = s_.costs[step.cost];
    if (!is_at_once(cost, 0)) return;
    const Scenario::End* end = s_.ends.data() + step.first;
    const int queues = worker(w).first_queue;
    Event e;
    for (std::uint32_t i = 0; i < std::uint32_t{step.sources} + step.sends; ++i, ++end) {
      const bool frees = i < step.sources;
      if (frees && s_.slots == 0) continue;
      e.number = queues + end->queue;
      e.what = frees ? What::credit : What::arrival;
      if ((frees ? queue(e.number).credit : s_.routes[at(end->route)].latency) <= 0) note(e, now);
    }
  }

  /// Which of its waits a worker is in that waits now; 0: it does not.
  std::uint32_t wait_of(int w) const {
    const bool waits = s_.cores > 0 && w >= 0 && workers_[at(w)].phase == Phase::idle;
    return waits ? waits_[at(w)] & kVersions : 0;
  }

  static double latency(const Scenario::Route& route, double bytes) {
    return route.latency + std::min(bytes, route.slice) / route.slice_rate;
  }

  // --- Links that are shared fairly

  void start_flow(int w, int q, int route, double bytes, double now) {
    const std::vector<int>& links = s_.routes[at(route)].links;
    const int flow = share_.start(now, bytes, links, worker(w).order);
    if (flow >= static_cast<int>(sending_.size())) sending_.resize(at(flow) + 1);
    sending_[at(flow)] = {q, w, route, bytes, 0, now};
    ++workers_[at(w)].sending;
    for (const int l : links) course_.moved[at(l)] += bytes;
  }

  void end_flow(int flow, double now) {
    record_rate(flow, now, 0);
    share_.end(flow);
    const Sending& s = sending_[at(flow)];
    push(now + latency(s_.routes[at(s.route)], s.bytes), What::arrival, s.queue);
    if (--workers_[at(s.worker)].sending == 0) due(s.worker);
  }

  void settle(double now) {
    for (const FairShare::Change& c : share_.update(now)) {
      push(c.ends, What::flow, c.flow, c.version);
      record_rate(c.flow, now, share_.rate(c.flow));
    }
  }

  void record_rate(int flow, double now, double rate) {
    if (!record_) return;
    Sending& s = sending_[at(flow)];
    if (s.rate > 0 && now > s.since) {
      course_.flows.push_back({s.worker, s.route, {s.since, now}, s.rate});
    }
    s.since = now;
    s.rate = rate;
  }

  // --- Wires, which messages pass in turn

  void depart(int q, const Scenario::Route& route, const MessageCost& message, double now) {
    wires_.depart(q, queue(q).receiver, route.wires, message, now);
  }

  /// All that goes from a wire to another until `time`, or until it arrives somewhere.
  void pass_wires(double time) {
    while (s_.wires > 0 && wires_.next() <= time && wires_.next() < kNever) {
      const Wires::Arrival a = wires_.pass();
      push(a.time, What::arrival, a.queue, wait_of(queue(a.queue).receiver));
      time = std::min(time, events_.top().time);
    }
  }

  /// A worker that has waited has taken in what came meanwhile; now it takes in the rest of the
  /// messages of `step`.
  double take_in(int w, const Scenario::Step& step, double now) {
    wires_.take_in(w, cores_[at(worker(w).core)].idle_since, now);
    for (std::uint32_t i = 0; i < step.sources; ++i) {
      const int q = worker(w).first_queue + s_.ends[step.first + i].queue;
      now += wires_.finish(w, q, taken_[at(q)]);
    }
    return now;
  }

  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr std::uint32_t kVersions = (1U << 30U) - 1;

  const Scenario& s_;
  const bool record_;
  std::vector<LaneState> lanes_;
  std::vector<WorkerState> workers_;
  std::vector<std::uint32_t> arrived_, taken_, used_;  // by queue; used_: slots
  std::vector<std::uint32_t> waits_;  // by worker that has a core to share: how often it has waited
  std::vector<Core> cores_;
  Wires wires_;
  FairShare share_;
  std::vector<Sending> sending_;  // by flow
  std::vector<int> woken_, running_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Course course_;
};

}  // namespace

Course simulate(const Scenario& scenario, bool record) {
  return Simulation(scenario, record).run();
}

}  // namespace tutti
