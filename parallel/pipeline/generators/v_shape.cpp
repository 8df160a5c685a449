// Schedules with two stages on each rank, down the ranks and up again: rank 0 has the first stage
// and the last one. What a rank keeps for long (of the first) and for a short time (of the last)
// adds up to the same on all ranks.
//
// Both are laid out for at least as many micro-batches as their warm-up needs.
#include <algorithm>

#include "parallel/pipeline/generators/builder.h"

namespace tutti::parallel::pipeline {
namespace {

Schedule v_shape(const Request& request) {
  std::vector<int> placement;
  for (int r = 0; r < request.ranks; ++r) placement.push_back(r);
  for (int r = request.ranks - 1; r >= 0; --r) placement.push_back(r);
  return empty_schedule(request, placement);
}

}  // namespace

// ZB-V (arXiv 2401.10241, 2405.15362). Once a micro-batch is on its way up, each rank does the
// three parts of a stage's work on one, then those of the other stage, and is never idle.
Schedule zero_bubble_v(const Request& request) {
  const int p = request.ranks;
  const int m = std::max(request.micro_batches, 2 * p - 1);
  Schedule s = v_shape(request);
  for (int r = 0; r < p; ++r) {
    const int down = r, up = 2 * p - 1 - r;
    RankBuilder rank(s, r);
    const auto backward_apart = [&](int stage) {
      rank.inputs(stage);
      rank.weights();
    };
    for (int i = 0; i < 2 * (p - r) - 1; ++i) rank.forward(down);
    for (int i = 0; i < r; ++i) {
      rank.forward(up);
      rank.forward(down);
    }
    for (int i = 0; i < p - r; ++i) {
      rank.forward(up);
      backward_apart(up);
    }
    while (rank.forwards(up) < m) {
      if (rank.forwards(down) < m) rank.forward(down);
      backward_apart(down);
      rank.forward(up);
      backward_apart(up);
    }
    // The gradients of the last ones come on both ways at once; weights fill what is left.
    for (int i = 0; i < r; ++i) {
      rank.inputs(down);
      rank.inputs(up);
    }
    for (int i = 0; i < p - r; ++i) {
      rank.inputs(down);
      rank.weights();
    }
    while (rank.owed() > 0) rank.weights();
  }
  return s;
}

// DualPipe-V, the half of DualPipe (arXiv 2412.19437) that is left when its two directions are laid
// on one rank. A forward and the backward beside it, of different stages, can overlap on a device
// that does both at once; here they stand one after the other.
Schedule dualpipe_v(const Request& request) {
  const int p = request.ranks;
  const int m = std::max(request.micro_batches, 2 * p);
  Schedule s = v_shape(request);
  for (int r = 0; r < p; ++r) {
    const int down = r, up = 2 * p - 1 - r, below = p - 1 - r;
    RankBuilder rank(s, r);
    for (int i = 0; i < 2 * below; ++i) rank.forward(down);
    for (int i = 0; i < r + 1; ++i) {
      rank.forward(down);
      rank.forward(up);
    }
    for (int i = 0; i < below; ++i) {
      rank.inputs(up);
      rank.weights();
      rank.forward(up);
    }
    for (int i = 0; i < m - 2 * p + r + 1; ++i) {
      rank.forward(down);
      rank.backward(up);
      rank.forward(up);
      rank.backward(down);
    }
    for (int i = 0; i < below; ++i) {
      rank.backward(up);
      rank.forward(up);
      rank.backward(down);
    }
    // From the middle of what is left on, weights are put off, to fill the last waits.
    for (int i = 0; i < 2 * (r + 1); ++i) {
      const int stage = i % 2 == 0 ? up : down;
      i > r ? rank.inputs(stage) : rank.backward(stage);
    }
    for (int i = 0; i < below; ++i) {
      rank.weights();
      rank.inputs(down);
    }
    while (rank.owed() > 0) rank.weights();
  }
  return s;
}

}  // namespace tutti::parallel::pipeline
