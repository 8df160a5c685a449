// What generators write with: the next micro-batch of a stage's work, rank by rank.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

/// The actions of one rank. A schedule may be laid out for more micro-batches than there are:
/// without the superfluous ones it is still right, as the others keep their order.
class RankBuilder {
 public:
  RankBuilder(Schedule& schedule, int rank)
      : actions_(schedule.actions[static_cast<std::size_t>(rank)]),
        micro_batches_(schedule.micro_batches) {}

  // Of the stage's next micro-batch.
  void forward(int stage) { add({Work::forward, stage, forwards_[stage]++}); }
  void backward(int stage) { add({Work::backward, stage, backwards_[stage]++}); }
  /// Owes the weights' part from now on.
  void inputs(int stage) {
    const int m = backwards_[stage]++;
    add({Work::backward_inputs, stage, m});
    owed_.push_back({Work::backward_weights, stage, m});
  }
  /// What has been owed longest.
  void weights() {
    add(owed_.front());
    owed_.pop_front();
  }
  std::size_t owed() const { return owed_.size(); }
  int forwards(int stage) { return forwards_[stage]; }

 private:
  void add(const Action& a) {
    if (a.micro_batch < micro_batches_) actions_.push_back(a);
  }

  std::vector<Action>& actions_;
  int micro_batches_;
  std::map<int, int> forwards_, backwards_;  // by stage
  std::deque<Action> owed_;
};

/// A schedule without actions.
inline Schedule empty_schedule(const Request& request, std::vector<int> placement) {
  Schedule s;
  s.micro_batches = request.micro_batches;
  s.placement = std::move(placement);
  s.actions.resize(static_cast<std::size_t>(request.ranks));
  return s;
}

// One stage on each rank.
Schedule gpipe(const Request& request);
Schedule one_forward_one_backward(const Request& request);
Schedule zero_bubble_h1(const Request& request);
Schedule zero_bubble_h2(const Request& request);
// Several: stage s is on rank s % ranks.
Schedule interleaved(const Request& request);
// Two: down the ranks and up again.
Schedule zero_bubble_v(const Request& request);
Schedule dualpipe_v(const Request& request);

}  // namespace tutti::parallel::pipeline
