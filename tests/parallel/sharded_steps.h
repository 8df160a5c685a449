// Units of equal size, and steps of training by hand, for tests of what goes wrong in them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/optimizer/optimizer.h"
#include "parallel/sharded/sharded.h"

namespace tutti::parallel {

inline std::vector<Unit> three_units() {
  return {{.name = "first", .parameters = {{"w", 64, 8}, {"b", 8, 8}}},
          {.name = "second", .parameters = {{"w", 64, 8}, {"b", 8, 8}}},
          {.name = "third", .parameters = {{"w", 64, 8}, {"b", 8, 8}}}};
}

inline void forward(ShardedDataParallel& model, std::size_t u) {
  model.before_forward(u);
  model.after_forward(u);
}
inline void backward(ShardedDataParallel& model, std::size_t u) {
  model.before_backward(u);
  model.after_backward(u);
}
inline void good_step(ShardedDataParallel& model) {
  for (std::size_t u = 0; u < 3; ++u) forward(model, u);
  for (std::size_t u = 3; u-- > 0;) backward(model, u);
  model.finish_backward();
  model.step(Sgd());
}

}  // namespace tutti::parallel
