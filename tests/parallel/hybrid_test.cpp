// Mixtures of data, tensor and pipeline parallelism of eight ranks train as one rank does: within
// 1e-12 of its parameters, norms and losses in float64, and with the same bits on all ranks that
// have copies, in each run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "hybrid_model.h"
#include "hybrid_model_math.h"
#include "parallel/hybrid/shared_gradients.h"
#include "parallel/mesh.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;

const TrainedAlone& alone() {
  static const TrainedAlone trained = train_alone(5);
  return trained;
}

/// What each rank has at the end.
std::vector<TrainedHybrid> train(const HybridCase& c) {
  std::vector<TrainedHybrid> all(static_cast<std::size_t>(c.dp * c.tp * c.pp));
  run_thread_ranks(c.dp * c.tp * c.pp, [&](Communicator& world) {
    all[static_cast<std::size_t>(world.rank())] = train_hybrid(world, c, alone());
  });
  return all;
}

/// What the tests below have measured, for docs/parallel.md.
void print(int mixtures, double worst) {
  fmt::print("{} mixtures of eight ranks: {:.1e} at most\n", mixtures, worst);
}

double furthest(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return HUGE_VAL;
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(got[i] - expected[i]) / std::abs(expected[i]));
  }
  return most;
}

/// Returns the largest difference to one rank.
double expect_as_one_rank(const HybridCase& c) {
  const auto ranks = train(c);
  double worst = 0;
  for (const TrainedHybrid& r : ranks) {
    worst = std::max({worst, r.worst, furthest(r.norms, alone().norms)});
    if (!r.losses.empty()) worst = std::max(worst, furthest(r.losses, alone().losses));
    EXPECT_EQ(r.unequal, "") << c.text();
    EXPECT_EQ(r.norms, ranks[0].norms) << c.text();  // the same bits
  }
  EXPECT_LE(worst, 1e-12) << c.text();
  const auto again = train(c);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(again[r].parameters, ranks[r].parameters) << c.text();
  }
  return worst;
}

TEST(Hybrid, TheModelLearnsAndSomeOfItsStepsAreClipped) {
  EXPECT_LT(alone().losses.back(), alone().losses.front());
  EXPECT_GT(*std::ranges::max_element(alone().norms), kHybridMostNorm);
  EXPECT_LT(*std::ranges::min_element(alone().norms), kHybridMostNorm);
}

TEST(Hybrid, OneRankIsOneRank) {
  for (const int zero : {0, 1, 3}) expect_as_one_rank({.zero = zero});
}

TEST(Hybrid, EightRanksAreOneRankInAnyMixture) {
  struct Mixture {
    int dp, tp, pp, micro_batches;
    const char* schedule = "1f1b";
    int chunks = 0;
  };
  double worst = 0;
  int zero = 0, cases = 0;
  for (const Mixture& m :
       {Mixture{2, 2, 2, 4}, Mixture{4, 2, 1, 2}, Mixture{2, 1, 4, 4}, Mixture{1, 2, 4, 8},
        Mixture{8, 1, 1, 1}, Mixture{1, 8, 1, 2}, Mixture{2, 4, 1, 2}, Mixture{1, 4, 2, 4},
        Mixture{4, 1, 2, 2}, Mixture{2, 2, 2, 2, "gpipe"}, Mixture{2, 2, 2, 4, "interleaved", 2}}) {
    for (const bool sequence : {false, true}) {
      if (sequence && m.tp == 1) continue;
      // Each engine of the data axis in turn, and both layouts.
      HybridCase c{.dp = m.dp, .tp = m.tp, .pp = m.pp, .micro_batches = m.micro_batches};
      c.sequence = sequence;
      c.schedule = m.schedule;
      c.chunks = m.chunks;
      c.zero = zero++ % 4;
      c.layout = cases % 3 == 1 ? Layout::by_parameter : Layout::flat;
      c.pieces = cases++ % 2 == 0 ? 1 : 2;
      worst = std::max(worst, expect_as_one_rank(c));
    }
  }
  print(cases, worst);
}

// Eight stages, and schedules in which a rank has the first stage and the last one, or does the
// backward of the weights when it has nothing better to do.
TEST(Hybrid, EveryScheduleTrainsAsOneRank) {
  struct Scheduled {
    const char* schedule;
    int dp, tp, pp, micro_batches, chunks = 0;
  };
  double worst = 0;
  int zero = 0;
  for (const Scheduled& s :
       {Scheduled{"1f1b", 1, 1, 8, 8}, Scheduled{"interleaved", 2, 1, 4, 8, 2},
        Scheduled{"zb-h1", 2, 2, 2, 4}, Scheduled{"zb-h2", 2, 1, 4, 8},
        Scheduled{"zb-v", 1, 2, 4, 8}, Scheduled{"zb-v", 2, 2, 2, 4},
        Scheduled{"dualpipe-v", 2, 1, 4, 8}, Scheduled{"dualpipe-v", 2, 2, 2, 2}}) {
    HybridCase c{.dp = s.dp, .tp = s.tp, .pp = s.pp, .micro_batches = s.micro_batches};
    c.schedule = s.schedule;
    c.chunks = s.chunks;
    c.sequence = s.tp > 1;
    c.zero = zero++ % 4;
    worst = std::max(worst, expect_as_one_rank(c));
  }
  print(zero, worst);
}

TEST(Hybrid, EveryEngineOfTheDataAxisTrainsAsOneRank) {
  double worst = 0;
  int cases = 0;
  for (const int zero : {0, 1, 2, 3}) {
    for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
      if (zero == 0 && layout == Layout::by_parameter) continue;
      HybridCase c{.dp = 2, .tp = 2, .pp = 2, .micro_batches = 4, .sequence = true};
      c.zero = zero;
      c.layout = layout;
      worst = std::max(worst, expect_as_one_rank(c));
      ++cases;
    }
  }
  print(cases, worst);
}

// One rank's gradient is not a number: no rank makes the step.
TEST(Hybrid, AllRanksSeeThatAGradientIsNotFinite) {
  for (const int zero : {0, 2, 3}) {
    HybridCase c{.dp = 2, .tp = 2, .pp = 2, .micro_batches = 2, .sequence = true};
    c.zero = zero;
    c.steps = 2;
    c.not_finite_in = 1;
    const auto ranks = train(c);
    c.steps = 1;
    const auto before = train(c);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ASSERT_EQ(ranks[r].norms.size(), 2u);
      EXPECT_FALSE(std::isfinite(ranks[r].norms[1]));
      EXPECT_EQ(ranks[r].parameters, before[r].parameters);
    }
  }
}

// One file shows what a rank did: its actions, what travelled on which axis, and what it waited
// for.
TEST(Hybrid, AStepIsInOneTrace) {
  HybridCase c{.dp = 2, .tp = 2, .pp = 2, .micro_batches = 4, .sequence = true};
  c.zero = 3;
  c.steps = 2;
  std::vector<std::shared_ptr<Trace>> traces;
  for (int r = 0; r < 8; ++r) traces.push_back(std::make_shared<Trace>(r));
  run_thread_ranks(8, [&](Communicator& world) {
    HybridCase mine = c;
    mine.trace = traces[static_cast<std::size_t>(world.rank())];
    train_hybrid(world, mine, alone());
  });
  std::ostringstream out;
  write_json(out, traces);
  for (const auto& trace : traces) {
    std::map<std::string, int> events;  // by track
    std::set<std::string> actions, travelled;
    for (const Trace::Event& e : trace->events()) {
      ++events[e.track];
      if (e.track == "pipeline") actions.insert(e.name);
      if (e.track == "tp") travelled.insert(e.name.substr(0, e.name.find(':')));
    }
    // A rank's stage has a forward and a backward of each micro-batch, in both steps.
    EXPECT_EQ(events["pipeline"], 2 * 2 * 4);
    const std::string stage = trace->rank() < 4 ? "0" : "1";
    EXPECT_EQ(actions.count(stage + "F3") + actions.count(stage + "B0"), 2u);
    EXPECT_EQ(actions.size(), 8u);
    for (const char* track : {"pp", "dp", "tp", "dp waits", "tp waits"}) {
      EXPECT_GT(events[track], 0) << track;
    }
    EXPECT_EQ(travelled.count(trace->rank() < 4 ? "linear 'up 0'" : "linear 'up 7'"), 1u);
  }
  for (const char* part : {"\"rank 7\"", "\"1B3\"", "linear 'down 2': reduce_scatter"}) {
    EXPECT_NE(out.str().find(part), std::string::npos) << part;
  }
}

// --- The parts -----------------------------------------------------------------------------------

TEST(SharedGradients, AreAddedUpWhereTheyAreParts) {
  run_thread_ranks(4, [](Communicator& world) {
    Mesh mesh(world, {{"pp", 2}, {"tp", 2}});
    PipelineEnds ends(mesh.axis("pp"));
    ASSERT_NE(ends.axis(), nullptr);
    SharedGradients shared({.tensor = &mesh.axis("tp"), .ends = ends.axis()},
                           {{"own"},
                            {"equal", Copies::equal},
                            {"partial", Copies::partial},
                            {"tied", Copies::none, true},
                            {"both", Copies::partial, true}});
    const double self = world.rank();
    double own = self, equal = 7, partial = self, tied = 10 * self, both = 100 * self;
    const std::vector<SharedGradients::Run> runs{{&own, 1, DataType::float64},
                                                 {&equal, 1, DataType::float64},
                                                 {&partial, 1, DataType::float64},
                                                 {&tied, 1, DataType::float64},
                                                 {&both, 1, DataType::float64}};
    Axis& tp = mesh.axis("tp");
    tp.reset_traffic();
    shared.reduce(runs);
    const int stage = mesh.coordinate("pp"), part = mesh.coordinate("tp");
    EXPECT_EQ(own, self);
    EXPECT_EQ(equal, 7);
    EXPECT_EQ(partial, stage == 0 ? 0 + 1 : 2 + 3);
    EXPECT_EQ(tied, part == 0 ? 10 * (0 + 2) : 10 * (1 + 3));
    EXPECT_EQ(both, 100 * (0 + 1 + 2 + 3));
    // All that tensor parallelism adds up goes in one call.
    EXPECT_EQ(tp.traffic()[Collective::all_reduce], (Traffic::Count{1, 16, 16}));
    // own: 4 ranks; equal and partial: of a stage; tied: of a part; both: one.
    const double squares = (0 + 1 + 4 + 9) + 2 * 49 + (1 + 25) + (400 + 1600) + 600 * 600;
    Axis* const axes[] = {&mesh.axis("tp"), &mesh.axis("pp")};
    EXPECT_EQ(shared.norm(runs, axes), std::sqrt(squares));
    // The first one's values at the start.
    own = equal = partial = tied = both = self + 1;
    shared.begin(runs);
    EXPECT_EQ(own, self + 1);
    EXPECT_EQ(equal, stage == 0 ? 1 : 3);
    EXPECT_EQ(partial, stage == 0 ? 1 : 3);
    EXPECT_EQ(tied, part + 1);
    EXPECT_EQ(both, 1);
  });
}

TEST(SharedGradients, RanksThatDifferAreToldSo) {
  run_thread_ranks(2, [](Communicator& world) {
    CommunicatorAxis axis(world);
    const bool odd = world.rank() == 1;
    const Error tensor = error_of([&] {
      SharedGradients({.tensor = &axis}, {{"norm", odd ? Copies::equal : Copies::partial}});
    });
    EXPECT_EQ(tensor.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(tensor.what()).find("norm, copies equal"), std::string::npos)
        << tensor.what();
    const Error ends = error_of([&] {
      SharedGradients({.ends = &axis},
                      {{"embedding", Copies::none, true}, {"own"}, {"output", Copies::none, odd}});
    });
    EXPECT_EQ(ends.code(), ErrorCode::mismatch);
    SharedGradients good({.ends = &axis}, {{"embedding", Copies::none, true}});
    EXPECT_EQ(error_of([&] { good.reduce({}); }).code(), ErrorCode::invalid_argument);
    // Shards of the same length, of other elements.
    double values[4] = {};
    const std::vector<SharedGradients::Run> others{{values, 4, DataType::float64, odd ? 4u : 0u}};
    const Error elements = error_of([&] { good.begin(others); });
    EXPECT_EQ(elements.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(elements.what()).find("embedding: 4 elements from 4 on"),
              std::string::npos)
        << elements.what();
    // A sharded engine whose gradients are not there yet.
    const std::vector<SharedGradients::Run> none{{nullptr, 3, DataType::float64}};
    EXPECT_EQ(error_of([&] { good.reduce(none); }).code(), ErrorCode::invalid_argument);
  });
}

TEST(PipelineEndsOf, AreTwoRanksOrNone) {
  run_thread_ranks(3, [](Communicator& world) {
    CommunicatorAxis axis(world);
    PipelineEnds ends(axis), turned(axis, 2, 0), same(axis, 1, 1);
    EXPECT_EQ(ends.axis() != nullptr, world.rank() != 1);
    if (ends.axis() != nullptr) {
      EXPECT_EQ(ends.axis()->rank(), world.rank() == 0 ? 0 : 1);
      EXPECT_EQ(turned.axis()->rank(), world.rank() == 2 ? 0 : 1);
    }
    EXPECT_EQ(same.axis(), nullptr);
  });
}

}  // namespace
}  // namespace tutti::test
