// Interleaved 1F1B (arXiv 2104.04473): a rank has several chunks of the model, so that a pipeline
// is full after a fraction of the time. Micro-batches go in rounds of as many as there are ranks:
// each round through the first chunk of all ranks, then through the second...
#include <algorithm>

#include "parallel/pipeline/generators/builder.h"

namespace tutti::parallel::pipeline {

Schedule interleaved(const Request& request) {
  const int p = request.ranks, v = request.chunks;
  std::vector<int> placement;
  for (int stage = 0; stage < p * v; ++stage) placement.push_back(stage % p);
  Schedule s = empty_schedule(request, placement);
  const int rounds = (request.micro_batches + p - 1) / p;
  const int all = rounds * p * v;
  for (int r = 0; r < p; ++r) {
    RankBuilder rank(s, r);
    const auto forward = [&](int i) { rank.forward(i / p % v * p + r); };
    const auto backward = [&](int i) { rank.backward((v - 1 - i / p % v) * p + r); };
    // As for 1F1B, and a whole round through all chunks but the last.
    const int warm_up = std::min(2 * (p - r - 1) + (v - 1) * p, all);
    for (int i = 0; i < warm_up; ++i) forward(i);
    for (int i = 0; i < all; ++i) {
      if (warm_up + i < all) forward(warm_up + i);
      backward(i);
    }
  }
  return s;
}

}  // namespace tutti::parallel::pipeline
