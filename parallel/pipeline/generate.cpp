#include "parallel/pipeline/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/error.h"
#include "parallel/pipeline/generators/builder.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/verify.h"

namespace tutti::parallel::pipeline {
namespace {

constexpr std::array<Generator, 7> kGenerators = {{
    {"gpipe", "all forwards, then all backwards", 1, false, "(p-1)(F+B)", "m", gpipe},
    {"1f1b", "a backward as soon as it can be, then the next forward", 1, false, "(p-1)(F+B)", "p",
     one_forward_one_backward},
    {"interleaved", "1F1B with several stages on each rank", 2, true, "(p-1)(F+B)/v if p|m",
     "p+(p-1)/v", interleaved},
    {"zb-h1", "1F1B whose last waits are filled with the weights' backwards", 1, false,
     "(p-1)(I+max(F-W,0))", "p", zero_bubble_h1},
    {"zb-h2", "the same with more forwards first", 1, false, "(p-1)max(I-W+|F-W|,0)", "2p-1",
     zero_bubble_h2},
    {"zb-v", "two stages on each rank, down and up again; weights fill the waits", 2, false,
     "0 if F=I=W", "p", zero_bubble_v},
    {"dualpipe-v", "down and up again; forwards beside backwards, which may overlap", 2, false,
     "(p-1)F/2 if F=I=W", "p+1/2", dualpipe_v},
}};

void check(const Generator& g, const Request& r) {
  const auto in_range = [&](std::string_view what, std::int64_t number, std::int64_t most) {
    if (number >= 1 && number <= most) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: there are 1 to {} {}, not {}", g.name, most, what, number));
  };
  in_range("ranks", r.ranks, Limits::ranks);
  in_range("micro-batches", r.micro_batches, Limits::micro_batches);
  if (!g.any_chunks && r.chunks != g.chunks) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} has {} on each rank, not {}", g.name,
                    g.chunks == 1 ? "1 stage" : fmt::format("{} stages", g.chunks), r.chunks));
  }
  in_range("stages on each rank", r.chunks, Limits::stages / r.ranks);
  // Some are laid out for more micro-batches than there are.
  const std::int64_t laid_out = std::max(r.micro_batches, 2 * r.ranks);
  const std::int64_t actions = laid_out * r.ranks * r.chunks * 3;
  if (actions > static_cast<std::int64_t>(Limits::actions)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} for {} ranks and {} micro-batches has about {} actions, and a "
                            "schedule has {} at most: ask for fewer",
                            g.name, r.ranks, r.micro_batches, actions, Limits::actions));
  }
}

bool same_times(const Timeline& a, const Timeline& b) {
  if (b.never_start > 0) return false;
  for (std::size_t r = 0; r < a.actions.size(); ++r) {
    for (std::size_t i = 0; i < a.actions[r].size(); ++i) {
      if (a.actions[r][i].start != b.actions[r][i].start) return false;
    }
  }
  return true;
}

/// The fewest that cost no time. More cost none either, so they are found by halving.
int enough_buffers(Schedule& s) {
  constexpr Costs kCosts{1, 1, 1, 0.5};
  const Messages messages = messages_of(s);
  s.buffers = s.micro_batches;
  const Timeline best = timeline_of(s, messages, kCosts);
  int too_few = 0, enough = s.micro_batches;
  while (enough - too_few > 1) {
    s.buffers = too_few + (enough - too_few) / 2;
    (same_times(best, timeline_of(s, messages, kCosts)) ? enough : too_few) = s.buffers;
  }
  return enough;
}

int most_live(const Schedule& s) {
  int most = 0;
  for (const auto& actions : s.actions) {
    int live = 0;
    for (const Action& a : actions) {
      if (a.work == Work::forward) most = std::max(most, ++live);
      if (ends_backward(a.work)) --live;
    }
  }
  return most;
}

}  // namespace

std::span<const Generator> generators() { return kGenerators; }

const Generator* find_generator(std::string_view name) {
  const auto found = std::find_if(kGenerators.begin(), kGenerators.end(),
                                  [&](const Generator& g) { return g.name == name; });
  return found == kGenerators.end() ? nullptr : &*found;
}

Schedule generate(const Generator& generator, const Request& request) {
  Request r = request;
  if (r.chunks == 0) r.chunks = generator.chunks;
  check(generator, r);
  Schedule s = generator.make(r);
  s.name = generator.name;
  s.buffers = enough_buffers(s);
  s.live = most_live(s);
  return s;
}

}  // namespace tutti::parallel::pipeline
