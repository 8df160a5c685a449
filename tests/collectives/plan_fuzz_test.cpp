// What the verifier proves runs: random plans and mutants of plans that ship, each run by the host
// executor with threads as ranks, through Communicator::use_plan, and by the step logic of the CUDA
// executor. A plan that is proved and then runs wrong, hangs or crashes is a fault of one of them.
//
//     TUTTI_FUZZ_SEED=N    only that plan
//     TUTTI_FUZZ_CASES=N   so many plans, from seed 1 (or TUTTI_FUZZ_SEED) on
#include "tests/collectives/plan_fuzz.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

struct Counts {
  int proved = 0, refused = 0, mutants = 0;
};

/// Runs all candidates that are proved by `run`.
template <class Run>
void fuzz(std::uint64_t usual_count, Run&& run) {
  const Seeds seeds = seeds_for(usual_count);
  Counts counts;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const auto c = candidate(seed, {});
    if (!c || !is_proved(c->plan)) continue;
    name_seed(seed);
    ++counts.proved;
    if (c->origin != "random") ++counts.mutants;
    const Outcome o = run(c->plan, seed);
    if (o.refused) ++counts.refused;
    ASSERT_EQ(o.wrong, "") << "TUTTI_FUZZ_SEED=" << seed << " (" << c->origin << ")\n"
                           << to_text(c->plan);
  }
  fmt::print("{} of {} plans proved ({} of them mutants), {} refused\n", counts.proved, seeds.count,
             counts.mutants, counts.refused);
  if (seeds.count > 100) {
    EXPECT_GT(counts.mutants, 0);
    EXPECT_GT(counts.proved, 3 * counts.refused);
  }
}

/// Links as they are by default, and as few and as short as they can be.
Options options_for(std::uint64_t seed) {
  Options options;
  options.timeout =
      std::chrono::seconds(20);  // nothing here takes so long: a rank that waits is stuck
  if (seed % 3 == 1) options.slots = 2;
  if (seed % 3 == 2) options.slots = 4;
  if (seed % 2 == 1) options.slot_bytes = 1024;
  return options;
}

TEST(PlanFuzz, ProvedPlansRunOnTheHost) {
  fuzz(1500, [](const Plan& plan, std::uint64_t seed) {
    std::vector<std::atomic<int>> entered(plan.ranks.size());
    std::mutex mutex;
    Outcome all;
    try {
      run_thread_ranks(plan.header.ranks, options_for(seed), [&](Communicator& c) {
        const Outcome o = run_on_host(c, plan, seed, &entered);
        const std::lock_guard lock(mutex);
        all.refused = all.refused || o.refused;
        if (all.wrong.empty()) all.wrong = o.wrong;
      });
    } catch (const std::exception& e) {
      all.wrong = e.what();
    }
    return all;
  });
}

TEST(PlanFuzz, ProvedPlansRunByTheStepLogic) { fuzz(1500, run_on_device); }

}  // namespace
}  // namespace tutti::test
