#include "parallel/sequence/kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/convert.h"

namespace tutti::parallel::sequence {
namespace {

template <class T>
std::vector<T> widened(const void* data, DataType type, std::size_t count) {
  std::vector<T> values(count);
  convert(data, type, values.data(), wide(type), count);
  return values;
}

/// A block with wide tensors.
template <class T>
struct Wide {
  explicit Wide(const Block& block)
      : b(block),
        q(widened<T>(b.q, b.type, b.queries * b.batch * b.heads * b.dim)),
        k(widened<T>(b.k, b.type, b.keys * b.batch * b.kv_heads * b.dim)),
        v(widened<T>(b.v, b.type, k.size())),
        scale(T{1} / std::sqrt(static_cast<T>(b.dim))) {}

  std::size_t visible(std::size_t query) const {
    return b.causal ? b.keys - b.queries + query + 1 : b.keys;
  }
  /// The number of a query among all of a tensor, and of the key that it meets.
  std::size_t query(std::size_t i, std::size_t batch, std::size_t head) const {
    return (i * b.batch + batch) * b.heads + head;
  }
  std::size_t key(std::size_t j, std::size_t batch, std::size_t head) const {
    return (j * b.batch + batch) * b.kv_heads + head / (b.heads / b.kv_heads);
  }
  T dot(const T* x, const T* y) const {
    T sum{0};
    for (std::size_t d = 0; d < b.dim; ++d) sum += x[d] * y[d];
    return sum;
  }
  template <class Body>
  void for_each_query(const Body& body) const {
    for (std::size_t i = 0; i < b.queries; ++i) {
      for (std::size_t n = 0; n < b.batch; ++n) {
        for (std::size_t h = 0; h < b.heads; ++h) body(i, n, h);
      }
    }
  }

  const Block& b;
  std::vector<T> q, k, v;
  T scale;
};

template <class T>
void plain_forward(const ForwardBlock& f) {
  const Wide<T> w(f.block);
  const std::size_t dim = w.b.dim;
  std::vector<T> out(w.q.size()), scores(w.b.keys);
  w.for_each_query([&](std::size_t i, std::size_t n, std::size_t h) {
    const std::size_t at = w.query(i, n, h), visible = w.visible(i);
    T most = -std::numeric_limits<T>::infinity(), sum{0};
    for (std::size_t j = 0; j < visible; ++j) {
      scores[j] = w.scale * w.dot(&w.q[at * dim], &w.k[w.key(j, n, h) * dim]);
      most = std::max(most, scores[j]);
    }
    for (std::size_t j = 0; j < visible; ++j) {
      const T weight = std::exp(scores[j] - most);
      sum += weight;
      const T* const value = &w.v[w.key(j, n, h) * dim];
      for (std::size_t d = 0; d < dim; ++d) out[at * dim + d] += weight * value[d];
    }
    for (std::size_t d = 0; d < dim; ++d) out[at * dim + d] /= sum;
    static_cast<T*>(f.lse)[at] = most + std::log(sum);
  });
  convert(out.data(), wide(w.b.type), f.out, w.b.type, out.size());
}

template <class T>
void plain_backward(const BackwardBlock& g) {
  const Wide<T> w(g.block);
  const std::size_t dim = w.b.dim;
  const std::vector<T> dout = widened<T>(g.dout, w.b.type, w.q.size());
  std::vector<T> dq(w.q.size()), dk(w.k.size()), dv(w.v.size());
  w.for_each_query([&](std::size_t i, std::size_t n, std::size_t h) {
    const std::size_t at = w.query(i, n, h);
    const T lse = static_cast<const T*>(g.lse)[at], delta = static_cast<const T*>(g.delta)[at];
    for (std::size_t j = 0; j < w.visible(i); ++j) {
      const std::size_t key = w.key(j, n, h) * dim;
      const T p = std::exp(w.scale * w.dot(&w.q[at * dim], &w.k[key]) - lse);
      const T ds = w.scale * p * (w.dot(&dout[at * dim], &w.v[key]) - delta);
      for (std::size_t d = 0; d < dim; ++d) {
        dq[at * dim + d] += ds * w.k[key + d];
        dk[key + d] += ds * w.q[at * dim + d];
        dv[key + d] += p * dout[at * dim + d];
      }
    }
  });
  convert(dq.data(), wide(w.b.type), g.dq, w.b.type, dq.size());
  convert(dk.data(), wide(w.b.type), g.dk, w.b.type, dk.size());
  convert(dv.data(), wide(w.b.type), g.dv, w.b.type, dv.size());
}

}  // namespace

Kernel plain_kernel() {
  return {
      .forward =
          [](const ForwardBlock& f) {
            f.block.type == DataType::float64 ? plain_forward<double>(f) : plain_forward<float>(f);
          },
      .backward =
          [](const BackwardBlock& g) {
            g.block.type == DataType::float64 ? plain_backward<double>(g)
                                              : plain_backward<float>(g);
          },
  };
}

}  // namespace tutti::parallel::sequence
