// A rank of a job on several hosts, by the launcher's word alone: none of Tutti's variables is set.
// It makes `worlds` communicators, the first argument, and sums over each. Prints one line:
// "LAUNCHER RANK SIZE: WAY; SUM", where WAY is how it found the others.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/environment.h"
#include "comm/communicator.h"
#include "comm/named_calls.h"
#include "core/error.h"

int main(int argc, char** argv) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("TUTTI_")) continue;
    fmt::print(stderr, "{} is set\n", *entry);
    return 2;
  }
  const int worlds = argc > 1 ? std::atoi(argv[1]) : 1;
  tutti::Options options;
  options.rendezvous_timeout = std::chrono::seconds(argc > 2 ? std::atoi(argv[2]) : 20);
  try {
    const auto place = tutti::placement_from_environment();
    const std::string way = tutti::way_across_hosts(place);
    std::vector<tutti::Communicator> made;
    long sum = 0;
    for (int world = 0; world < worlds; ++world) {
      made.push_back(tutti::Communicator::from_environment(options));
      std::vector<long> x{(place.rank + 1) * (world + 1), 7};
      made.back().all_reduce(x);
      sum += x[0];
    }
    fmt::print("{} {} {}: {}; {}\n", place.launcher, place.rank, place.size,
               way.substr(0, std::min(way.find(" ("), way.find(" at "))), sum);
    return 0;
  } catch (const tutti::Error& error) {
    fmt::print("error: {}\n", error.what());
    return 1;
  }
}
