// Layers of the model of domain parallelism on one block of a field, in plain loops: a convolution,
// pooling, and a norm over the whole field.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "parallel/domain/halo_layout.h"

namespace tutti::test::layers {

using parallel::domain::Box;
using parallel::domain::Range;
using parallel::domain::Stencil;

// --- Fields of 3 dimensions; those that a model does not have are of one cell --------------------

using Cell = std::array<std::int64_t, 3>;
using Box3 = std::array<Range, 3>;

inline Box3 box3(const Box& box) {
  Box3 b{Range{0, 1}, Range{0, 1}, Range{0, 1}};
  std::copy(box.begin(), box.end(), b.end() - static_cast<std::ptrdiff_t>(box.size()));
  return b;
}

template <class Use>
void each(const Box3& b, const Use& use) {
  for (std::int64_t z = b[0].begin; z < b[0].end; ++z) {
    for (std::int64_t y = b[1].begin; y < b[1].end; ++y) {
      for (std::int64_t x = b[2].begin; x < b[2].end; ++x) use(Cell{z, y, x});
    }
  }
}

struct Field {
  Field(const Box& b, std::size_t o)
      : box(box3(b)),
        cells(static_cast<std::size_t>(parallel::domain::cells(b))),
        outer(o),
        values(o * cells) {}
  double& at(std::size_t o, const Cell& c) {
    const auto index =
        ((c[0] - box[0].begin) * box[1].size() + c[1] - box[1].begin) * box[2].size() + c[2] -
        box[2].begin;
    return values[o * cells + static_cast<std::size_t>(index)];
  }
  Box3 box;
  std::size_t cells, outer;
  std::vector<double> values;
};

// --- Layers --------------------------------------------------------------------------------------

struct Window {
  explicit Window(std::span<const Stencil> s) : taps{Range{0, 1}, Range{0, 1}, Range{0, 1}} {
    for (std::size_t d = 0; d < s.size(); ++d) {
      const std::size_t to = 3 - s.size() + d;
      stencils[to] = s[d];
      taps[to] = {0, s[d].kernel};
    }
  }
  /// Calls use(the number of a tap, the input cell).
  template <class Use>
  void each_tap(const Cell& output, const Use& use) const {
    std::size_t tap = 0;
    each(taps, [&](const Cell& k) {
      Cell c;
      for (std::size_t d = 0; d < 3; ++d) {
        c[d] = output[d] * stencils[d].stride - stencils[d].padding + k[d] * stencils[d].dilation;
      }
      use(tap++, c);
    });
  }
  std::array<Stencil, 3> stencils{};
  Box3 taps;
};

/// Weights: out x in x taps.
struct Convolution {
  void forward(const Box& outputs, Field& x, const double* w, Field& y, std::size_t samples) const {
    const std::size_t in = x.outer / samples, out = y.outer / samples;
    each(box3(outputs), [&](const Cell& cell) {
      for (std::size_t n = 0; n < samples; ++n) {
        for (std::size_t o = 0; o < out; ++o) {
          double sum = 0;
          for (std::size_t i = 0; i < in; ++i) {
            window.each_tap(cell, [&](std::size_t tap, const Cell& c) {
              sum += w[(o * in + i) * taps + tap] * x.at(n * in + i, c);
            });
          }
          y.at(n * out + o, cell) = sum;
        }
      }
    });
  }
  void backward(Field& x, const double* w, Field& dy, Field& dx, double* dw,
                std::size_t samples) const {
    const std::size_t in = x.outer / samples, out = dy.outer / samples;
    each(dy.box, [&](const Cell& cell) {
      for (std::size_t n = 0; n < samples; ++n) {
        for (std::size_t o = 0; o < out; ++o) {
          const double d = dy.at(n * out + o, cell);
          for (std::size_t i = 0; i < in; ++i) {
            window.each_tap(cell, [&](std::size_t tap, const Cell& c) {
              const std::size_t at = (o * in + i) * taps + tap;
              dx.at(n * in + i, c) += w[at] * d;
              dw[at] += x.at(n * in + i, c) * d;
            });
          }
        }
      }
    });
  }
  Window window;
  std::size_t taps;
};

struct Pool {
  void forward(Field& x, Field& y) const {
    each(y.box, [&](const Cell& cell) {
      for (std::size_t o = 0; o < y.outer; ++o) {
        double sum = 0, most = 0;
        window.each_tap(cell, [&](std::size_t tap, const Cell& c) {
          sum += x.at(o, c);
          most = tap == 0 ? x.at(o, c) : std::max(most, x.at(o, c));
        });
        y.at(o, cell) = max ? most : sum / taps;
      }
    });
  }
  void backward(Field& x, Field& y, Field& dy, Field& dx) const {
    each(dy.box, [&](const Cell& cell) {
      for (std::size_t o = 0; o < dy.outer; ++o) {
        window.each_tap(cell, [&](std::size_t, const Cell& c) {
          const double share = max ? (x.at(o, c) == y.at(o, cell) ? 1 : 0) : 1 / taps;
          dx.at(o, c) += share * dy.at(o, cell);
        });
      }
    });
  }
  Window window;
  double taps;
  bool max;
};

/// Each sample and channel gets mean 0 and variance 1 over the whole field.
struct Norm {
  void forward(Field& x, Field& y) {
    std::vector<double> mean(x.outer), square(x.outer);
    scale.assign(x.outer, 0);
    const auto each_value = [&](const auto& use) {
      for (std::size_t i = 0; i < x.values.size(); ++i) use(i / x.cells, x.values[i], y.values[i]);
    };
    each_value([&](std::size_t o, double& value, double&) { mean[o] += value / cells; });
    sum(mean);
    each_value([&](std::size_t o, double& value, double& out) {
      out = value - mean[o];
      square[o] += out * out / cells;
    });
    sum(square);
    for (std::size_t o = 0; o < x.outer; ++o) scale[o] = 1 / std::sqrt(square[o] + 1e-5);
    each_value([&](std::size_t o, double&, double& out) { out *= scale[o]; });
  }
  /// dy becomes dx.
  void backward(Field& y, Field& dy) {
    std::vector<double> sums(2 * y.outer);
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      sums[2 * (i / y.cells)] += dy.values[i] / cells;
      sums[2 * (i / y.cells) + 1] += dy.values[i] * y.values[i] / cells;
    }
    sum(sums);
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      const std::size_t o = i / y.cells;
      dy.values[i] = scale[o] * (dy.values[i] - sums[2 * o] - y.values[i] * sums[2 * o + 1]);
    }
  }
  double cells;  // of the field
  std::function<void(std::span<double>)> sum;
  std::vector<double> scale;
};

}  // namespace tutti::test::layers
