// A rank of the stress test whose ranks are processes: checked random calls for so many seconds.
//
//     stress_rank SECONDS [kept]
//
// `kept`: on memory that is allocated once. Exits with 1 when a result is wrong or a call fails.
#include <fmt/format.h>

#include <cstdlib>
#include <exception>

#include "comm/communicator.h"
#include "tests/comm/random_calls.h"

int main(int argc, char** argv) {
  using namespace tutti;
  const unsigned seed = test::stress_seed();
  try {
    Communicator comm = Communicator::from_environment();
    if (comm.rank() == 0) fmt::print("TUTTI_TEST_SEED={}\n", seed);
    const auto memory = argc > 2 ? test::MemoryUse::kept : test::MemoryUse::any;
    const auto steps = test::make_random_calls(comm, seed, memory, std::atof(argv[1]));
    if (comm.rank() == 0) fmt::print("{} steps\n", steps);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "TUTTI_TEST_SEED={}: {}\n", seed, e.what());
    return 1;
  }
}
