#include "parallel/pipeline/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/timeline.h"

namespace tutti::parallel::pipeline {
namespace {

struct Refuted {
  std::string story;
};

template <typename... Args>
[[noreturn]] void refute(fmt::format_string<Args...> format, Args&&... args) {
  throw Refuted{fmt::format(format, std::forward<Args>(args)...)};
}

/// Where the work on one stage and micro-batch stands, by Work.
using WorkIds = std::array<ActionId, 4>;

class Verifier {
 public:
  explicit Verifier(const Schedule& schedule) : s_(schedule) {}

  void verify(Verdict& verdict) {
    check_numbers();
    find_actions();
    check_complete();
    check_links();
    verdict.matches = true;
    for (const auto& actions : s_.actions) verdict.actions += actions.size();
    const Messages messages = messages_of(s_);
    const Timeline timeline = timeline_of(s_, messages, {});
    if (timeline.never_start > 0) refute("{}", story_of_deadlock(s_, messages, timeline));
    for (const RankPair& pair : messages.pairs) verdict.messages += pair.messages.size();
    for (int r = 0; r < s_.ranks(); ++r) verdict.live.push_back(most_live(r));
    verdict.proved = true;
  }

 private:
  static void check_number(std::string_view what, std::int64_t number, std::int64_t most) {
    if (number >= 1 && number <= most) return;
    refute("the schedule has {} {}; it must have 1 to {}", number, what, most);
  }

  void check_numbers() const {
    check_number("ranks", static_cast<std::int64_t>(s_.actions.size()), Limits::ranks);
    check_number("stages", static_cast<std::int64_t>(s_.placement.size()), Limits::stages);
    check_number("micro-batches", s_.micro_batches, Limits::micro_batches);
    check_number("buffers", s_.buffers, Limits::buffers);
    check_number("live activations", s_.live, Limits::live);
    std::uint64_t actions = 0;
    for (const auto& of_rank : s_.actions) actions += of_rank.size();
    const auto needed =
        2 * static_cast<std::uint64_t>(s_.stages()) * static_cast<std::uint64_t>(s_.micro_batches);
    // What the proof takes grows with the actions that there are, not with what a text claims.
    if (std::max(actions, needed) > Limits::actions || needed > 4 * actions + 1000) {
      refute(
          "the schedule has {} actions; {} stages and {} micro-batches need {}, and {} is the most",
          actions, s_.stages(), s_.micro_batches, needed, Limits::actions);
    }
    for (int stage = 0; stage < s_.stages(); ++stage) {
      const int rank = s_.rank_of(stage);
      if (rank < 0 || rank >= s_.ranks()) {
        refute("stage {} is placed on rank {}, and there are ranks 0 to {}", stage, rank,
               s_.ranks() - 1);
      }
    }
  }

  WorkIds& ids(const Action& a) {
    return ids_[index(a.stage) * index(s_.micro_batches) + index(a.micro_batch)];
  }

  /// In range, on the right rank, none twice.
  void find_actions() {
    ids_.resize(index(s_.stages()) * index(s_.micro_batches));
    for (int r = 0; r < s_.ranks(); ++r) {
      const auto& actions = s_.actions[index(r)];
      for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
        const Action& a = actions[index(i)];
        const ActionId here{r, i};
        if (static_cast<int>(a.work) > 3) refute("rank {}, action {} is no action", r, i);
        if (a.stage < 0 || a.stage >= s_.stages()) {
          refute("{}: there are stages 0 to {}", describe(s_, here), s_.stages() - 1);
        }
        if (a.micro_batch < 0 || a.micro_batch >= s_.micro_batches) {
          refute("{}: there are micro-batches 0 to {}", describe(s_, here), s_.micro_batches - 1);
        }
        if (s_.rank_of(a.stage) != r) {
          refute("{}: stage {} is on rank {}", describe(s_, here), a.stage, s_.rank_of(a.stage));
        }
        ActionId& id = ids(a)[static_cast<std::size_t>(a.work)];
        if (!id.is_none()) {
          refute("{} stands twice; the first time as action {}", describe(s_, here), id.action);
        }
        id = here;
      }
    }
  }

  /// Every forward, every backward, in the order in which they can be.
  void check_complete() {
    for (int stage = 0; stage < s_.stages(); ++stage) {
      for (int m = 0; m < s_.micro_batches; ++m) {
        const auto [f, b, i, w] = ids({Work::forward, stage, m});
        const auto name = [&](Work work) { return to_string({work, stage, m}); };
        const int rank = s_.rank_of(stage);
        const auto missing = [&](const std::string& what, std::string_view why) {
          refute("{} is missing on rank {}: {} of stage {}, micro-batch {}", what, rank, why, stage,
                 m);
        };
        if (f.is_none()) missing(name(Work::forward), "the forward");
        if (!b.is_none() && !(i.is_none() && w.is_none())) {
          refute("{}, and {} too: a backward is done in one, or in its two parts", describe(s_, b),
                 describe(s_, i.is_none() ? w : i));
        }
        if (b.is_none() && i.is_none() && w.is_none()) {
          missing(name(Work::backward), "the backward");
        }
        if (b.is_none() && i.is_none()) {
          missing(name(Work::backward_inputs), "the backward of inputs");
        }
        if (b.is_none() && w.is_none()) {
          missing(name(Work::backward_weights), "the backward of weights");
        }
        const ActionId inputs = b.is_none() ? i : b;
        if (inputs.action < f.action) {
          refute("{} stands before its forward, action {}", describe(s_, inputs), f.action);
        }
        if (b.is_none() && w.action < i.action) {
          refute("{} stands before its backward of inputs, action {}", describe(s_, w), i.action);
        }
      }
    }
  }

  /// Stages that pass on to each other have the micro-batches in the same order.
  void check_links() {
    std::vector<std::vector<ActionId>> forwards(index(s_.stages())), backwards(index(s_.stages()));
    for (int r = 0; r < s_.ranks(); ++r) {
      for (int i = 0; i < static_cast<int>(s_.actions[index(r)].size()); ++i) {
        const Action& a = s_.actions[index(r)][index(i)];
        if (a.work == Work::forward) forwards[index(a.stage)].push_back({r, i});
        if (takes_gradient(a.work)) backwards[index(a.stage)].push_back({r, i});
      }
    }
    for (int stage = 0; stage + 1 < s_.stages(); ++stage) {
      check_link("activation", forwards[index(stage)], forwards[index(stage) + 1]);
      check_link("gradient", backwards[index(stage) + 1], backwards[index(stage)]);
    }
  }
  void check_link(std::string_view what, const std::vector<ActionId>& from,
                  const std::vector<ActionId>& to) const {
    for (std::size_t k = 0; k < from.size(); ++k) {
      const int sent = action(from[k]).micro_batch, expected = action(to[k]).micro_batch;
      if (sent == expected) continue;
      refute("{} takes {} {} of its link, and that is of micro-batch {}: it comes from {}",
             describe(s_, to[k]), what, k, sent, describe(s_, from[k]));
    }
  }
  const Action& action(ActionId p) const { return s_.actions[index(p.rank)][index(p.action)]; }

  int most_live(int rank) const {
    int live = 0, most = 0;
    const auto& actions = s_.actions[index(rank)];
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].work == Work::forward && ++live > s_.live) {
        refute("{} makes {} activations that rank {} keeps; the schedule declares {} at most",
               describe(s_, {rank, static_cast<int>(i)}), live, rank, s_.live);
      }
      most = std::max(most, live);
      if (ends_backward(actions[i].work)) --live;
    }
    return most;
  }

  const Schedule& s_;
  std::vector<WorkIds> ids_;
};

}  // namespace

Verdict verify(const Schedule& schedule) {
  Verdict verdict;
  try {
    Verifier(schedule).verify(verdict);
  } catch (const Refuted& wrong) {
    verdict.story = wrong.story;
  }
  return verdict;
}

void require_proof(const Schedule& schedule) {
  const Verdict verdict = verify(schedule);
  if (verdict.proved) return;
  throw Error(ErrorCode::unproven_plan, fmt::format("the pipeline schedule {} is not proved: {}",
                                                    schedule.name, verdict.story));
}

}  // namespace tutti::parallel::pipeline
