// The canonical order of a sum or a product of floats (docs/determinism.md): a balanced binary tree
// over the sources, in their order. core/combine() has the same bits.
//
// The sources come one after another, and the levels work as the bits of a binary counter: a level
// keeps the result of 2^level sources, and the next 2^level sources are folded into it. Levels are
// registers, and no variable can number registers: so each level is a member of the one below.
#pragma once

#include "execute/cuda/element.h"
#include "execute/cuda/plan_block.h"

namespace tutti::device {

/// The elements of a float type, for kernels that form sums and products in this order. They are
/// kernels of their own, so that the others lose no register to it. An average divides the sum, and
/// a product with a factor is rounded to the type.
template <class E>
struct InCanonicalOrder : E {};
template <class E>
inline constexpr bool kInCanonicalOrder = false;
template <class E>
inline constexpr bool kInCanonicalOrder<InCanonicalOrder<E>> = true;

/// Levels enough for all sources that a move can have.
inline constexpr int kMostLevels = 9;
static_assert(kMostOperands <= 1 << kMostLevels);

/// A tree over at most 2^kLevels values of type V, a Widened.
template <class V, int kLevels>
class CanonicalTree {
 public:
  /// Value `n` of the tree, from 0; `last`: no other follows, and `value` becomes the result.
  TUTTI_HD void add(V& value, std::uint32_t n, bool last, bool product) {
    if (n % 2 == 1) {
      product ? value.multiply(kept_) : value.add(kept_);
    } else if (!last) {
      kept_ = value;
      return;
    }
    above_.add(value, n / 2, last, product);
  }

 private:
  V kept_{};
  CanonicalTree<V, kLevels - 1> above_;
};

template <class V>
class CanonicalTree<V, 0> {
 public:
  TUTTI_HD void add(V&, std::uint32_t, bool, bool) {}
};

}  // namespace tutti::device
