#include "verify.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "text.h"

namespace small {
namespace {

/// What a chunk or a message holds while the plan runs with words in place of numbers.
struct Value {
  std::string expression;   // "(in[0]@1 + in[0]@2)"
  std::vector<int> ranks;   // whose inputs are in it, with repetitions
  std::uint32_t input = 0;  // which chunk of theirs
  std::uint32_t piece = 0;  // of a block: its size depends on that
  bool complete = false;    // a step said so
};

class Run {
 public:
  explicit Run(const Plan& plan) : plan_(plan) {}

  void check() {
    if (plan_.ranks() < 1 || plan_.pieces < 1 || plan_.slots < 1) {
      throw Refuted("a plan needs at least one rank, one piece and one slot");
    }
    for (rank_ = 0; rank_ < plan_.ranks(); ++rank_) {
      for (const Step& step : steps(rank_)) check_form(step);
    }
    at_.assign(plan_.steps.size(), 0);
    out_.assign(plan_.steps.size(), {});
    for (auto& chunks : out_) chunks.resize(chunks_of(Space::out));

    // Every rank goes as far as it can, until none can go on.
    for (bool moved = true; moved;) {
      moved = false;
      for (rank_ = 0; rank_ < plan_.ranks(); ++rank_) {
        while (at() < steps(rank_).size() && !obstacle(steps(rank_)[at()])) {
          make(steps(rank_)[at()]);
          ++at();
          moved = true;
        }
      }
    }
    check_end();
    check_results();
  }

 private:
  const std::vector<Step>& steps(int rank) const {
    return plan_.steps[static_cast<std::size_t>(rank)];
  }
  std::size_t& at() { return at_[static_cast<std::size_t>(rank_)]; }
  std::deque<Value>& link(int sender, int receiver) { return links_[{sender, receiver}]; }
  std::uint32_t chunks_of(Space space) const {
    const auto blocks = space == Space::in ? in_blocks : out_blocks;
    return blocks(plan_.collective, plan_.ranks()) * plan_.pieces;
  }
  [[noreturn]] void refute(const Step& step, const std::string& what) const {
    throw Refuted("rank " + std::to_string(rank_) + ", step '" + to_text(step) + "': " + what);
  }

  /// What can be said of a step by itself.
  void check_form(const Step& step) const {
    std::optional<std::uint32_t> piece;
    const auto check = [&](const Operand& o) {
      if (o.is_link()) {
        if (o.peer < 0 || o.peer >= plan_.ranks()) refute(step, "there is no such rank");
        if (o.peer == rank_) refute(step, "a link leads to another rank");
        return;
      }
      if (o.chunk >= chunks_of(o.space)) refute(step, "there is no such chunk");
      if (piece && *piece != o.chunk % plan_.pieces) refute(step, "its chunks have not one size");
      piece = o.chunk % plan_.pieces;
    };
    if (step.sources.empty() || step.destinations.empty()) refute(step, "it moves nothing");
    for (const auto* side : {&step.destinations, &step.sources}) {
      for (auto o = side->begin(); o != side->end(); ++o) {
        check(*o);
        if (std::find(side->begin(), o, *o) != o) refute(step, "an operand stands there twice");
      }
    }
    for (const Operand& o : step.destinations) {
      if (o.space == Space::in) refute(step, "it writes `in`");
      const bool reads_it = std::ranges::find(step.sources, o) != step.sources.end();
      if (!o.is_link() && reads_it) refute(step, "it reads and writes the same chunk");
    }
    if (!piece)
      refute(step, "it has no chunk of this rank, so nobody knows how many bytes it moves");
  }

  /// What the step has to wait for, if anything.
  std::optional<std::string> obstacle(const Step& step) {
    for (const Operand& o : step.sources) {
      if (o.is_link() && link(o.peer, rank_).empty()) {
        return "a message from rank " + std::to_string(o.peer);
      }
    }
    for (const Operand& o : step.destinations) {
      if (o.is_link() && link(rank_, o.peer).size() >= plan_.slots) {
        return "a free slot to rank " + std::to_string(o.peer);
      }
    }
    return std::nullopt;
  }

  Value read(const Step& step, const Operand& o) {
    if (o.is_link()) {
      const Value value = link(o.peer, rank_).front();
      link(o.peer, rank_).pop_front();
      return value;
    }
    if (o.space == Space::out) {
      const auto& chunk = out_[static_cast<std::size_t>(rank_)][o.chunk];
      if (!chunk)
        refute(step, "it reads out[" + std::to_string(o.chunk) + "], which nobody has written");
      return *chunk;
    }
    return {to_text_of_input(o.chunk), {rank_}, o.chunk, o.chunk % plan_.pieces, false};
  }
  std::string to_text_of_input(std::uint32_t chunk) const {
    return "in[" + std::to_string(chunk) + "]@" + std::to_string(rank_);
  }

  void make(const Step& step) {
    Value sum = read(step, step.sources[0]);
    for (std::size_t i = 1; i < step.sources.size(); ++i) {
      const Value next = read(step, step.sources[i]);
      if (!reduces(plan_.collective)) refute(step, "an all_gather adds nothing up");
      if (sum.complete || next.complete) refute(step, "it adds to a sum that is complete");
      if (sum.input != next.input) {
        refute(step, "it adds up different chunks: " + sum.expression + " and " + next.expression);
      }
      sum.expression += " + " + next.expression;
      sum.ranks.insert(sum.ranks.end(), next.ranks.begin(), next.ranks.end());
      if (sum.ranks.size() > plan_.steps.size()) refute(step, "it adds some rank's input twice");
    }
    if (step.sources.size() > 1) sum.expression = "(" + sum.expression + ")";
    if (step.completes) {
      if (!reduces(plan_.collective) || sum.complete) refute(step, "`<=` has no place here");
      sum.complete = true;
    }
    for (const auto* side : {&step.destinations, &step.sources}) {
      for (const Operand& o : *side) {
        if (!o.is_link() && o.chunk % plan_.pieces != sum.piece) {
          refute(step, "the message and the chunk have different sizes");
        }
      }
    }
    for (const Operand& o : step.destinations) {
      if (o.is_link()) {
        link(rank_, o.peer).push_back(sum);
      } else {
        out_[static_cast<std::size_t>(rank_)][o.chunk] = sum;
      }
    }
  }

  void check_end() {
    std::string story;
    for (rank_ = 0; rank_ < plan_.ranks(); ++rank_) {
      if (at() == steps(rank_).size()) continue;
      const Step& step = steps(rank_)[at()];
      story += "\n  rank " + std::to_string(rank_) + " waits in step '" + to_text(step) + "' for " +
               obstacle(step).value();
    }
    if (!story.empty()) throw Refuted("a deadlock, in every timing:" + story);
    for (const auto& [ends, messages] : links_) {
      if (messages.empty()) continue;
      throw Refuted("rank " + std::to_string(ends.second) +
                    " does not receive all messages of rank " + std::to_string(ends.first) + ": " +
                    messages.front().expression + " is left over");
    }
  }

  void check_results() {
    std::map<std::uint32_t, std::string> expressions;  // by the input's chunk
    for (rank_ = 0; rank_ < plan_.ranks(); ++rank_) {
      for (std::uint32_t chunk = 0; chunk < chunks_of(Space::out); ++chunk) {
        const auto fail = [&](const std::string& what) {
          throw Refuted("out[" + std::to_string(chunk) + "] of rank " + std::to_string(rank_) +
                        " " + what);
        };
        const auto& value = out_[static_cast<std::size_t>(rank_)][chunk];
        if (!value) fail("is never written");
        const std::uint32_t block = chunk / plan_.pieces, piece = chunk % plan_.pieces;
        const auto own = static_cast<std::uint32_t>(rank_);
        // Which chunk of whose inputs should it be?
        const bool gather = plan_.collective == Collective::all_gather;
        const bool scatter = plan_.collective == Collective::reduce_scatter;
        const std::uint32_t input = scatter ? own * plan_.pieces + piece : piece;
        std::vector<int> wanted;
        for (int r = 0; r < plan_.ranks(); ++r) {
          if (!gather || static_cast<int>(block) == r) wanted.push_back(r);
        }
        std::vector<int> ranks = value->ranks;
        std::ranges::sort(ranks);
        if (value->input != input || ranks != wanted)
          fail("is " + value->expression + ", which is wrong");
        if (reduces(plan_.collective) && !value->complete) fail("is right, but no step says `<=`");
        // An all_gather's outputs are copies, which have no order.
        const auto [first, is_new] = expressions.try_emplace(input, value->expression);
        if (!gather && !is_new && first->second != value->expression) {
          fail("is " + value->expression + ", and on another rank " + first->second +
               ": they may round differently");
        }
      }
    }
  }

  const Plan& plan_;
  int rank_ = 0;                                            // whose turn it is
  std::vector<std::size_t> at_;                             // by rank: its next step
  std::vector<std::vector<std::optional<Value>>> out_;      // by rank
  std::map<std::pair<int, int>, std::deque<Value>> links_;  // by sender and receiver
};

}  // namespace

Proved verify(Plan plan) {
  Run(plan).check();
  return Proved(std::move(plan));
}

}  // namespace small
