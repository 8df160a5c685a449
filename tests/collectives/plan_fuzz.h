// Fuzzing what runs plans: random plans, and plans that ship with one or two places spoilt. Those
// that the verifier proves are run for real, and every result is compared.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "collectives/plan.h"
#include "comm/communicator.h"

namespace tutti::test {

/// A plan that may be wrong, and what it is; the same for the same seed.
struct Candidate {
  Plan plan;
  std::string origin;
};
struct CandidateSizes {
  int ranks = 0;  // 0: any number up to 4
  std::uint32_t most_lanes = 12;
};
/// None where a mutation had nothing to change, or no plan is made for so many ranks.
std::optional<Candidate> candidate(std::uint64_t seed, const CandidateSizes& sizes);

/// Whether it is proved, in place as well where the collective has that.
bool is_proved(const Plan& plan);

/// What has become of a proved plan.
struct Outcome {
  bool refused = false;  // it asks for more than there is
  std::string wrong;     // "": nothing
};

/// Runs it on a communicator of as many ranks. Collective. `entered`: of threads, by rank, to see
/// that a barrier is one.
Outcome run_on_host(Communicator& comm, const Plan& plan, std::uint64_t seed,
                    std::vector<std::atomic<int>>* entered);

/// The same by the step logic of the CUDA executor, with threads for thread blocks. In
/// cuda_plan_fuzz.cpp.
Outcome run_on_device(const Plan& plan, std::uint64_t seed);

/// TUTTI_FUZZ_SEED, or `seed`; the first of TUTTI_FUZZ_CASES seeds, or of so many.
struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
};
Seeds seeds_for(std::uint64_t usual_count);

/// Makes a crash say which seed it was.
void name_seed(std::uint64_t seed);

}  // namespace tutti::test
