// A rank of domain parallelism, as a process: it trains the model of the tests on blocks of a
// field, with 4 or 8 ranks, and compares with one rank. Exits with 0 if it has learned the same.
#include <fmt/format.h>

#include <cstdio>

#include "tests/parallel/domain_model.h"
#include "tutti.h"

namespace {

using namespace tutti;
using parallel::domain::Edge;

bool compare(const test::TrainedDomain& got, const test::DomainModel& model, int rank) {
  const double worst = test::difference(got, test::train_alone(model));
  if (rank == 0 || worst > 1e-10) fmt::print("rank {}: {}: {:.1e}\n", rank, model.text(), worst);
  return worst <= 1e-10;
}

}  // namespace

int main() {
  try {
    auto world = Communicator::from_environment();
    const int rank = world.rank(), replicas = world.size() / 4;
    parallel::Mesh mesh(world, {{"dp", replicas}, {"y", 2}, {"x", 2}}, {{"y", "x"}});
    for (const Edge edge : {Edge::zero, Edge::periodic}) {
      for (const bool max : {true, false}) {
        const test::DomainModel model{{{"y", 14, 2, edge, {6, 8}}, {"x", 11, 2}}, max, 4};
        if (!compare(test::train_hybrid(mesh, model), model, rank)) return 1;
      }
    }
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
