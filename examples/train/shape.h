// Sizes of the model.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace train {

struct Shape {
  std::int64_t vocabulary = 256, length = 128, width = 128, heads = 4, layers = 4;
  std::int64_t experts = 0, top_k = 2;  // of a block, and of these each token's; 0: one MLP for all
  bool tied = false;                    // the logits' matrix is that of the tokens
  double dropout = 0;                   // of what each part of a block adds
  at::ScalarType type = at::kFloat;

  /// Throws tutti::Error(invalid_argument) for what is no model.
  void check() const;
  std::int64_t parameters() const;
};

}  // namespace train
