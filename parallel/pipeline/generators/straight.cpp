// Schedules with one stage on each rank. They have one shape: a rank warms up with some forwards,
// then does backwards and forwards in turn. They differ in how many forwards come first, and in
// when the weights' part of a backward is done.
#include "parallel/pipeline/generators/builder.h"

namespace tutti::parallel::pipeline {
namespace {

struct Shape {
  int warm_up = 1;     // forwards before the first backward
  bool split = false;  // backwards are done in two parts
  int lag = 0;         // backwards of inputs whose weights' part is put off
};

template <typename ShapeOf>
Schedule straight(const Request& request, ShapeOf shape_of) {
  std::vector<int> placement;
  for (int r = 0; r < request.ranks; ++r) placement.push_back(r);
  Schedule s = empty_schedule(request, placement);
  for (int r = 0; r < request.ranks; ++r) {
    const Shape shape = shape_of(r);
    RankBuilder rank(s, r);
    for (int i = 0; i < shape.warm_up; ++i) rank.forward(r);
    for (int i = 0; i < s.micro_batches; ++i) {
      if (shape.split) {
        rank.inputs(r);
        if (i >= shape.lag) rank.weights();
      } else {
        rank.backward(r);
      }
      rank.forward(r);
    }
    while (rank.owed() > 0) rank.weights();
  }
  return s;
}

}  // namespace

// arXiv 1811.06965
Schedule gpipe(const Request& request) {
  return straight(request, [&](int) { return Shape{request.micro_batches}; });
}

// arXiv 1806.03377 (with a flush, 2006.09503): each rank begins as many forwards as there are ranks
// from it to the last, which is how many are under way when its first gradient comes.
Schedule one_forward_one_backward(const Request& request) {
  return straight(request, [&](int rank) { return Shape{request.ranks - rank}; });
}

// arXiv 2401.10241, handcrafted schedules. H1 keeps as much as 1F1B does: a later rank, which warms
// up with fewer forwards, puts off as many more parts of weights, and fills its last wait with
// them.
Schedule zero_bubble_h1(const Request& request) {
  return straight(request, [&](int rank) { return Shape{request.ranks - rank, true, rank}; });
}

// H2 warms up until the first gradient is back, so that no rank waits for it.
Schedule zero_bubble_h2(const Request& request) {
  return straight(request, [&](int rank) {
    return Shape{2 * (request.ranks - rank) - 1, true, 2 * rank};
  });
}

}  // namespace tutti::parallel::pipeline
