// What a call through the C interface costs above the same call in C++: an all_reduce of 8 bytes, a
// block of calls of one after a block of the other, on one communicator.
//
//     tutti run -n 2 c_overhead [turns [calls]]
//
// Prints the medians of the turns, and median and quartiles of their differences, in ns.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/median.h"
#include "bindings/c/boundary.h"
#include "core/memory.h"

namespace {

template <class Call>
double nanoseconds(int calls, Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
             .count() /
         calls;
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = std::clamp(argc > 1 ? std::atoi(argv[1]) : 101, 1, 100000);
  const int calls = std::clamp(argc > 2 ? std::atoi(argv[2]) : 20000, 1, 100000000);
  tutti_comm* c = nullptr;
  if (tutti_comm_from_environment(nullptr, &c) != TUTTI_OK) {
    fmt::print(stderr, "c_overhead: {}\n", tutti_error_message());
    return 1;
  }
  tutti::Communicator& cpp = c->communicator;

  auto* const x = static_cast<std::int64_t*>(tutti::allocate(4096));
  tutti_result result = TUTTI_OK;
  const auto in_c = [&] { result |= tutti_all_reduce(c, x, x, 1, TUTTI_INT64, TUTTI_MAX); };
  const auto in_cpp = [&] {
    cpp.all_reduce(x, x, 1, tutti::DataType::int64, tutti::ReduceKind::max);
  };
  std::vector<double> times[2], differences;
  for (int turn = 0; turn < turns; ++turn) {
    double of[2];
    for (const int way : {turn % 2, 1 - turn % 2}) {
      of[way] = way == 0 ? nanoseconds(calls, in_cpp) : nanoseconds(calls, in_c);
      times[way].push_back(of[way]);
    }
    differences.push_back(of[1] - of[0]);
  }
  std::sort(differences.begin(), differences.end());
  if (cpp.rank() == 0) {
    fmt::print(
        "{} ranks: C++ {:.1f} ns, C {:.1f} ns; C above C++ {:.1f} ns, quartiles {:.1f} to {:.1f}\n",
        cpp.size(), tutti::median(times[0]), tutti::median(times[1]), tutti::median(differences),
        differences[differences.size() / 4], differences[3 * differences.size() / 4]);
  }
  tutti::deallocate(x);
  return result != TUTTI_OK || tutti_comm_free(c) != TUTTI_OK;
}
