// A rank that finds its place in the environment, meets the others `worlds` times, checks every
// card, and prints one line: "LAUNCHER RANK SIZE". Arguments: [worlds [seconds of patience [tag]]].
// The ranks of a program have one tag, a number; $TAG is another way to say it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "bootstrap/environment.h"
#include "bootstrap/rendezvous.h"
#include "core/error.h"

namespace {

/// Its length differs from rank to rank, too.
std::vector<std::byte> card_of(int rank, int world, int tag) {
  std::vector<int> values(static_cast<std::size_t>(3 + rank % 5), rank);
  values[0] = rank * 1009 + world;
  values[1] = world;
  values[2] = tag;
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

int main(int argc, char** argv) {
  const int worlds = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::chrono::seconds patience(argc > 2 ? std::atoi(argv[2]) : 20);
  const char* const said = std::getenv("TAG");
  const int tag = std::atoi(argc > 3 ? argv[3] : said != nullptr ? said : "0");
  try {
    const auto place = tutti::placement_from_environment();
    for (int world = 0; world < worlds; ++world) {
      const auto shared = tutti::unique_id_from_environment(place, patience);
      const auto roster = tutti::rendezvous(shared.id, place.rank, place.size,
                                            card_of(place.rank, world, tag), patience);
      tutti::forget(shared);
      for (int rank = 0; rank < place.size; ++rank) {
        if (!std::ranges::equal(roster.card(rank), card_of(rank, world, tag))) {
          fmt::print(stderr, "rank {}: the card of rank {} is wrong\n", place.rank, rank);
          return 2;
        }
      }
    }
    fmt::print("{} {} {}\n", place.launcher, place.rank, place.size);
    return 0;
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
