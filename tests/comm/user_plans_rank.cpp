// One rank of the tests of users' plans as a process: plans of many links, and random ones.
#include <fmt/format.h>

#include <cstdio>

#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "tests/collectives/plan_fuzz.h"
#include "tests/comm/user_plans.h"

int main() {
  using namespace tutti;
  try {
    Communicator comm = Communicator::from_environment();
    test::exercise_many_links(comm);
    const test::Seeds seeds = test::seeds_for(300);
    std::uint64_t proved = 0;
    // One after the other on one communicator: their links are the same ones again and again.
    for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
      const auto c = test::candidate(seed, {.ranks = comm.size()});
      if (!c || !test::is_proved(c->plan)) continue;
      test::name_seed(seed);
      const test::Outcome o = test::run_on_host(comm, c->plan, seed, nullptr);
      if (!o.wrong.empty()) {
        throw std::runtime_error(fmt::format("TUTTI_FUZZ_SEED={} ({}): {}\n{}", seed, c->origin,
                                             o.wrong, to_text(c->plan)));
      }
      ++proved;
    }
    if (comm.rank() == 0) fmt::print("{} plans proved and run\n", proved);
    return proved > 0 ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
