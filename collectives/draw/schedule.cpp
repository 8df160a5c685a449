#include "collectives/draw/schedule.h"

#include <algorithm>
#include <unordered_map>

namespace tutti::drawing {
namespace {

/// The life of the k-th message of a link.
struct Slot {
  StepId sender;
  double arrives = -1;
  double freed = -1;
};

struct Link {
  std::vector<Slot> slots;  // by message, not modulo the slots of the plan
  std::uint32_t receives = 0;
  std::vector<std::uint32_t> waiting;  // lanes, to be looked at again when something happens here
};

/// A lane that is part of the way through its operands. Which message of a link an operand means
/// is settled when the lane comes to it; that is the order of the plan, because a link has one
/// sending and one receiving lane.
struct Lane {
  std::uint32_t rank = 0;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
  std::vector<std::uint32_t> messages;  // of the step's operands that were looked at
  bool claimed = false;                 // the last of them is still waited for
  double ready = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const Plan& plan) : plan_(plan) {}

  Schedule run() {
    schedule_.times.resize(plan_.ranks.size());
    for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
      const auto& lanes = plan_.ranks[r].lanes;
      schedule_.times[r].resize(lanes.size());
      for (std::uint32_t l = 0; l < lanes.size(); ++l) {
        schedule_.times[r][l].resize(lanes[l].size());
        schedule_.steps += lanes[l].size();
        runnable_.push_back(static_cast<std::uint32_t>(lanes_.size()));
        lanes_.push_back({r, l, 0, {}, false, 0});
      }
    }
    while (!runnable_.empty()) {
      const std::uint32_t lane = runnable_.back();
      runnable_.pop_back();
      advance(lane);
    }
    for (const Lane& lane : lanes_) {
      schedule_.never_start += plan_.ranks[lane.rank].lanes[lane.lane].size() - lane.step;
    }
    return std::move(schedule_);
  }

 private:
  Link& link(int sender, int receiver, std::uint8_t channel) {
    const std::uint64_t key = (static_cast<std::uint64_t>(sender) << 40) |
                              (static_cast<std::uint64_t>(receiver) << 8) | channel;
    return links_[key];
  }
  Link& link_of(const Lane& lane, const Operand& o, bool sends) {
    const int self = static_cast<int>(lane.rank);
    return sends ? link(self, o.rank, o.channel) : link(o.rank, self, o.channel);
  }

  /// Runs the lane until it has to wait.
  void advance(std::uint32_t index) {
    Lane& lane = lanes_[index];
    const RankPlan& rank = plan_.ranks[lane.rank];
    const auto& steps = rank.lanes[lane.lane];
    for (; lane.step < steps.size(); ++lane.step) {
      const Step& step = steps[lane.step];
      if (!is_ready(index, rank, step)) return;
      finish(lane, rank, step);
    }
  }

  bool is_ready(std::uint32_t index, const RankPlan& rank, const Step& step) {
    Lane& lane = lanes_[index];
    const std::size_t operands = std::size_t{step.destinations} + step.sources;
    for (std::size_t i = lane.messages.size() - (lane.claimed ? 1 : 0); i < operands; ++i) {
      const Operand& o = rank.operands[step.first_operand + i];
      const bool sends = i < step.destinations;
      if (!lane.claimed) {
        lane.messages.push_back(0);
        if (!o.is_link()) continue;
        Link& l = link_of(lane, o, sends);
        lane.messages.back() = sends ? static_cast<std::uint32_t>(l.slots.size()) : l.receives++;
        if (sends) l.slots.emplace_back();
      }
      Link& l = link_of(lane, o, sends);
      const double when = sends ? slot_free(l, lane.messages[i]) : arrival(l, lane.messages[i]);
      lane.claimed = when < 0;
      if (lane.claimed) {
        l.waiting.push_back(index);
        return false;
      }
      lane.ready = std::max(lane.ready, when);
    }
    return true;
  }

  double slot_free(const Link& l, std::uint32_t message) const {
    const std::uint32_t slots = std::max(plan_.header.slots, 1u);
    return message < slots ? 0 : l.slots[message - slots].freed;
  }
  static double arrival(const Link& l, std::uint32_t message) {
    return message < l.slots.size() ? l.slots[message].arrives : -1;
  }

  void finish(Lane& lane, const RankPlan& rank, const Step& step) {
    const StepId id{lane.rank, lane.lane, lane.step};
    const double end = lane.ready + (step.count == 0 ? kSignalStep : kDataStep);
    schedule_.times[id.rank][id.lane][id.step] = {lane.ready, end};
    schedule_.end = std::max(schedule_.end, end);
    for (std::size_t i = 0; i < lane.messages.size(); ++i) {
      const Operand& o = rank.operands[step.first_operand + i];
      if (!o.is_link()) continue;
      const bool sends = i < step.destinations;
      Link& l = link_of(lane, o, sends);
      Slot& slot = l.slots[lane.messages[i]];
      if (sends) {
        slot.sender = id;
        slot.arrives = end + kFlight;
      } else {
        slot.freed = end;
        schedule_.messages.push_back({slot.sender, id});
      }
      runnable_.insert(runnable_.end(), l.waiting.begin(), l.waiting.end());
      l.waiting.clear();
    }
    lane.messages.clear();
    lane.ready = end;
  }

  const Plan& plan_;
  Schedule schedule_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> runnable_;
  std::unordered_map<std::uint64_t, Link> links_;
};

}  // namespace

Schedule make_schedule(const Plan& plan) { return Scheduler(plan).run(); }

}  // namespace tutti::drawing
