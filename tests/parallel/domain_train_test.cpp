// A network on a field that is cut into blocks learns what one rank learns, to 1e-10 after five
// steps in float64, and has the same bits in each run and on all ranks.
#include <gtest/gtest.h>

#include "tests/parallel/domain_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace test;
using parallel::CommunicatorAxis;
using parallel::Mesh;
using parallel::domain::Edge;

constexpr double kClose = 1e-10;
constexpr Edge kZero = Edge::zero, kPeriodic = Edge::periodic;

struct Case {
  int ranks;
  DomainModel model;
};

std::vector<Case> cases() {
  return {
      {1, {{{"x", 21, 1, kPeriodic}}}},
      {2, {{{"x", 24, 2}}, false}},
      {4, {{{"x", 37, 4, kPeriodic}}}},
      {4, {{{"x", 40, 4, kZero, {13, 7, 11, 9}}}}},
      {5, {{{"x", 20, 5, kZero, {3, 1, 8, 2, 6}}}, false}},
      {4, {{{"y", 12, 2}, {"x", 14, 2}}}},
      {4, {{{"y", 13, 2, kPeriodic}, {"x", 11, 2, kPeriodic}}}},
      {6, {{{"y", 12, 2, kZero, {5, 7}}, {"x", 18, 3, kPeriodic}}, false}},
      {4, {{{"y", 16, 4}, {"x", 9, 1, kPeriodic}}}},
      {8, {{{"z", 8, 2}, {"y", 9, 2, kPeriodic}, {"x", 8, 2}}, true, 1}},
      {4, {{{"z", 9, 2, kZero, {3, 6}}, {"y", 6, 1}, {"x", 8, 2, kPeriodic}}, false, 1}},
  };
}

TEST(DomainTraining, LearnsWhatOneRankDoes) {
  for (const Case& c : cases()) {
    const TrainedDomain alone = train_alone(c.model);
    run_thread_ranks(c.ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const TrainedDomain got = train_domain(axis, c.model);
      EXPECT_LE(difference(got, alone), kClose) << c.model.text();
      // The same bits again, and on all ranks.
      const TrainedDomain again = train_domain(axis, c.model);
      EXPECT_EQ(got.output, again.output);
      EXPECT_EQ(got.parameters, again.parameters);
      std::vector<double> first = got.parameters;
      comm.broadcast(first.data(), first.data(), first.size(), DataType::float64, 0);
      EXPECT_EQ(got.parameters, first);
    });
  }
}

/// The test can fail: without halos, the difference is plain.
TEST(DomainTraining, NeedsItsHalos) {
  const DomainModel periodic{{{"x", 24, 2, kPeriodic}}}, zero{{{"x", 24, 2, kZero}}};
  EXPECT_GT(difference(train_alone(periodic), train_alone(zero)), 1e-3);
}

/// Blocks of 2 x 2 and two replicas, on eight ranks, with the data-parallel engine.
TEST(DomainTraining, MixesWithDataParallelism) {
  const DomainModel model{{{"y", 13, 2}, {"x", 12, 2, kPeriodic}}};
  const TrainedDomain alone = train_alone(model);
  run_thread_ranks(8, [&](Communicator& comm) {
    Mesh mesh(comm, {{"dp", 2}, {"y", 2}, {"x", 2}}, {{"y", "x"}});
    const TrainedDomain got = train_hybrid(mesh, model);
    EXPECT_LE(difference(got, alone), kClose);
    EXPECT_EQ(got.first_sample, static_cast<std::size_t>(mesh.coordinate("dp")));
    std::vector<double> first = got.parameters;
    comm.broadcast(first.data(), first.data(), first.size(), DataType::float64, 0);
    EXPECT_EQ(got.parameters, first);
  });
}

}  // namespace
}  // namespace tutti
