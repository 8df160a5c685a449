// A rank, as a process, of the exercises of windows (put_exercises.h):
//
//     put_rank [SECONDS [SEED]]
//
// First each exercise, then a storm. Exits with 1 when something is wrong.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/comm/put_exercises.h"

using namespace tutti;

int main(int argc, char** argv) {
  try {
    auto comm = Communicator::from_environment();
    const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
    const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    using test::PutMemory;
    for (const PutMemory kind :
         {PutMemory::owned, PutMemory::allocated, PutMemory::registered, PutMemory::plain}) {
      test::put_all_to_all(comm, kind);
      test::put_in_order(comm, kind, 100);
    }
    test::put_many(comm);
    const auto time = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
    test::put_storm(comm, seed, time);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
