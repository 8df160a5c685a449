#include "tests/collectives/plan_fuzz.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "collectives/verify.h"
#include "core/error.h"
#include "core/memory.h"
#include "tests/collectives/plan_mutations.h"
#include "tests/collectives/random_plans.h"
#include "tests/comm/matrix.h"

namespace tutti::test {
namespace {

using Random = std::mt19937_64;

std::uint32_t below(Random& random, std::size_t n) {
  return static_cast<std::uint32_t>(random() % n);
}

std::optional<Candidate> shipped(Random& random, int ranks) {
  const auto all = algorithms();
  const Algorithm& a = all[below(random, all.size())];
  PlanRequest request;
  request.collective = a.collective;
  request.ranks = ranks;
  request.root = is_rooted(a.collective) ? static_cast<int>(below(random, request.ranks)) : 0;
  if (a.lanes) request.lanes = 1 + below(random, 3) * below(random, 6);
  if (a.collective == Collective::send_recv) return std::nullopt;
  try {
    return Candidate{generate_plan(a, request), fmt::format("{} {}", name(a.collective), a.name)};
  } catch (const Error&) {
    return std::nullopt;  // not every algorithm serves every number of ranks
  }
}

std::optional<test::Spot> any_spot(Random& random, const Plan& plan) {
  test::Spot spot;
  spot.rank = static_cast<int>(below(random, plan.ranks.size()));
  const RankPlan& part = plan.ranks[static_cast<std::size_t>(spot.rank)];
  spot.lane = below(random, part.lanes.size());
  const auto& lane = part.lanes[spot.lane];
  if (lane.empty()) return std::nullopt;
  spot.step = below(random, lane.size());
  const std::size_t operands = std::size_t{lane[spot.step].destinations} + lane[spot.step].sources;
  if (operands == 0) return std::nullopt;
  spot.operand = below(random, operands);
  return spot;
}

bool mutate(Random& random, Candidate& c) {
  const auto all = test::mutations();
  const test::Mutation& m = all[below(random, all.size())];
  const auto spot = any_spot(random, c.plan);
  if (!spot || !m.apply(c.plan, *spot, static_cast<int>(below(random, 2)))) return false;
  c.origin += fmt::format("; {} (rank {} lane {} step {} operand {})", m.name, spot->rank,
                          spot->lane, spot->step, spot->operand);
  return true;
}

/// Floats with sums that depend on the order: the same bits on all ranks?
std::string compare_bits(Communicator& c, Random& random) {
  std::vector<float, Allocator<float>> in(1000), out(in.size());
  Random own(random() + static_cast<std::uint64_t>(c.rank()));
  for (float& x : in) x = static_cast<float>(own() % 1'000'003) / 7919.0F;
  c.all_reduce(in.data(), out.data(), in.size(), DataType::float32);
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const float x : out) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3ULL;
  }
  std::vector<std::uint64_t> all(static_cast<std::size_t>(c.size()));
  c.all_gather(&hash, all.data(), 1, DataType::uint64);
  return std::ranges::all_of(all, [&](std::uint64_t h) { return h == hash; })
             ? ""
             : "float sums have other bits on other ranks";
}

std::string check_barrier(Communicator& c, std::vector<std::atomic<int>>* entered) {
  for (int round = 1; round <= 20; ++round) {
    if (entered != nullptr) (*entered)[static_cast<std::size_t>(c.rank())] = round;
    c.barrier();
    if (entered == nullptr) continue;
    for (const auto& e : *entered) {
      if (e < round) return "a rank has left the barrier before another one came";
    }
  }
  return {};
}

volatile std::uint64_t seed_at_hand = 0;
constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGABRT, SIGFPE};
std::array<struct sigaction, kCrashes.size()> handlers_before;  // a sanitizer's

void say_seed(int number) {
  char text[96];
  const int n =
      std::snprintf(text, sizeof text, "signal %d in the plan with TUTTI_FUZZ_SEED=%llu\n", number,
                    static_cast<unsigned long long>(seed_at_hand));
  if (n > 0) static_cast<void>(!write(2, text, static_cast<std::size_t>(n)));
  // What crashed does so again when this returns.
  for (std::size_t i = 0; i < kCrashes.size(); ++i) {
    if (kCrashes[i] == number) sigaction(number, &handlers_before[i], nullptr);
  }
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

std::optional<Candidate> candidate(std::uint64_t seed, const CandidateSizes& sizes) {
  Random random(seed * 0x9e3779b97f4a7c15ULL);
  for (int skip = 0; skip < 4; ++skip) random();
  const int most = sizes.ranks > 0 ? sizes.ranks : 4;
  const bool is_random = below(random, 2) == 0;
  std::optional<Candidate> c;
  if (is_random) {
    test::RandomPlanSizes s;
    s.most_ranks = most;
    s.most_lanes = below(random, 8) == 0 ? 3 * sizes.most_lanes : sizes.most_lanes;
    s.most_pieces = below(random, 4) == 0 ? 40 : 8;
    c = Candidate{test::random_plan(random, s), "random"};
    if (sizes.ranks > 0 && c->plan.header.ranks != sizes.ranks) return std::nullopt;
  } else {
    c = shipped(random, sizes.ranks > 0 ? sizes.ranks : 1 + static_cast<int>(below(random, 4)));
    if (!c) return std::nullopt;
  }
  const std::uint32_t changes = is_random ? below(random, 3) : 1 + below(random, 2);
  for (std::uint32_t i = 0; i < changes; ++i) {
    if (!mutate(random, *c)) return std::nullopt;
  }
  return c;
}

bool is_proved(const Plan& plan) {
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place(plan.header.collective)) continue;
    if (!verify(plan, {.in_place = in_place}).proved) return false;
  }
  return true;
}

Outcome run_on_host(Communicator& comm, const Plan& plan, std::uint64_t seed,
                    std::vector<std::atomic<int>>* entered) {
  Random random(seed);
  const PlanHeader& h = plan.header;
  try {
    comm.use_plan(to_text(plan));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::invalid_argument) return {true, {}};
    return {false, e.what()};
  }
  if (h.collective == Collective::barrier) return {false, check_barrier(comm, entered)};
  Matrix m;
  m.collectives = {h.collective};
  m.types = {static_cast<DataType>(below(random, kDataTypes)), DataType::int32};
  m.kinds = {static_cast<ReduceKind>(below(random, kReduceKinds)), ReduceKind::avg};
  m.bytes = {0, 4, 1 + random() % 200, 1 + random() % 5000, 1 + random() % 60'000};
  m.window_memory = true;
  m.misalign = below(random, 2);
  m.root = h.root;
  const Tally tally = run_matrix(comm, m);
  if (tally.wrong > 0) return {false, tally.first};
  if (h.collective != Collective::all_reduce) return {};
  return {false, compare_bits(comm, random)};
}

Seeds seeds_for(std::uint64_t usual_count) {
  const char* const one = std::getenv("TUTTI_FUZZ_SEED");
  Seeds s{number_from("TUTTI_FUZZ_SEED", 1),
          number_from("TUTTI_FUZZ_CASES", one != nullptr ? 1 : usual_count)};
  fmt::print("seeds {} to {}; TUTTI_FUZZ_SEED=N runs one of them again\n", s.first,
             s.first + s.count - 1);
  return s;
}

void name_seed(std::uint64_t seed) {
  if (seed_at_hand == 0) {
    struct sigaction action {};
    action.sa_handler = say_seed;
    for (std::size_t i = 0; i < kCrashes.size(); ++i) {
      sigaction(kCrashes[i], &action, &handlers_before[i]);
    }
  }
  seed_at_hand = seed;
}

}  // namespace tutti::test
