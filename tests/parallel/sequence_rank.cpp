// A rank of a job that divides a sequence, as a process: mixtures of sequence, data, sharded and
// tensor parallelism, compared with one rank.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "tests/parallel/sequence_model.h"
#include "tutti.h"

namespace {

using namespace tutti;
using parallel::sequence::KeysTravel;
using parallel::sequence::SequenceOrder;
using test::SequenceCase;

bool compare(Communicator& world) {
  const std::vector<double> alone = test::train_alone(true, 5);
  std::vector<SequenceCase> cases{
      {.ring = 4, .order = SequenceOrder::zigzag},
      {.heads = 2, .ring = 2, .order = SequenceOrder::zigzag},
      {.heads = 4, .sharded = true},
      {.heads = 2, .ring = 2, .keys = KeysTravel::all_gather, .order = SequenceOrder::zigzag}};
  for (SequenceCase& c : cases) {
    if (world.size() == 8) (c.sharded ? c.tp : c.dp) *= 2;
    const test::TrainedSequence got = test::train_sequence(world, c, alone);
    if (world.rank() == 0) fmt::print("{}: {:.1e}\n", c.text(), got.worst);
    if (got.worst <= 1e-10) continue;
    fmt::print(stderr, "rank {}: {}: {:.1e}\n", world.rank(), c.text(), got.worst);
    return false;
  }
  return true;
}

}  // namespace

int main() {
  try {
    auto world = Communicator::from_environment();
    return compare(world) ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
