// A gradient, with what was left out before, is the matrix M of m x n. Each step makes one step of
// a power iteration, from the Q of the step before:
//
//     P = average of M Q;  orthogonalise the columns of P;  Q = average of transposed M times P
//
// and P times transposed Q stands for the average of M. A bucket takes two all-reduces: all its P,
// with the gradients that are not compressed, and all its Q.
//
// All ranks compute the same from the same averages, so what they keep of it (Q) stays the same.
#include "parallel/data_parallel/power_sgd.h"

#include <cstring>
#include <vector>

#include "parallel/axis.h"
#include "parallel/data_parallel/matrix.h"

namespace tutti::parallel {
namespace {

/// A compressed gradient. Matrices are stored by rows; Q is stored transposed (r x n).
struct Compressed {
  std::size_t m = 0, n = 0;
  std::size_t error = 0, q = 0;  // what was left out (m x n) and Q: where, in floats
};

class PowerSgdReduction final : public Reduction {
 public:
  PowerSgdReduction(const PowerSgd& policy, std::span<const Parameter> parameters,
                    MemoryPool& memory)
      : policy_(policy), parameters_(parameters), memory_(memory), matrices_(parameters.size()) {
    std::size_t floats = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!compresses(policy, parameters[i])) continue;
      Compressed& c = matrices_[i];
      c.m = parameters[i].shape.front();
      c.n = parameters[i].count() / c.m;
      c.error = floats;
      c.q = floats + c.m * c.n;
      floats = c.q + r() * c.n;
    }
    state_ = memory_.zeros(floats * sizeof(float));
    discard();
  }

  void bind(const BucketLayout& layout, std::byte* gradients) override {
    Reduction::bind(layout, gradients);
    staged_.clear();
    std::size_t floats = 0;
    for (const Bucket& b : layout.buckets) {
      Staged s;
      for (const std::uint32_t i : b.gradients) {
        if (is_compressed(i)) s.is_compressed = true;
      }
      s.first = floats;
      for (const std::uint32_t i : b.gradients) {
        if (!s.is_compressed) break;
        s.first_count += is_compressed(i) ? matrices_[i].m * r() : parameters_[i].count();
        if (is_compressed(i)) s.second_count += matrices_[i].n * r();
      }
      s.second = s.first + s.first_count;
      floats = s.second + s.second_count;
      staged_.push_back(s);
    }
    staging_.reset();
    staging_ = memory_.zeros(floats * sizeof(float));
  }

  void begin(std::uint64_t step) override { active_ = step >= policy_.first_step; }
  int rounds() const override { return active_ ? 2 : 1; }

  Call prepare(std::size_t b, int round) override {
    const Staged& s = staged_[b];
    if (!active_ || !s.is_compressed) {
      return round == 0 ? Reduction::prepare(b, round) : nothing();
    }
    float* const first = staging() + s.first;
    float* const second = staging() + s.second;
    if (round == 0) {
      for_each(b, [&](std::uint32_t i, float* gradient, float* p, float*) {
        if (!is_compressed(i)) {
          std::memcpy(p, gradient, parameters_[i].count() * sizeof(float));
          return;
        }
        const Compressed& c = matrices_[i];
        add(c.m * c.n, error(c), gradient);
        multiply(gradient, q(c), c.m, c.n, r(), p);
      });
      return all_reduce(first, s.first_count);
    }
    for_each(b, [&](std::uint32_t i, float* gradient, float* p, float* new_q) {
      if (!is_compressed(i)) return;
      const Compressed& c = matrices_[i];
      orthogonalise(p, c.m, r());
      multiply_transposed(gradient, p, c.m, c.n, r(), new_q);
    });
    return all_reduce(second, s.second_count);
  }

  void complete(std::size_t b) override {
    if (!active_ || !staged_[b].is_compressed) return;
    for_each(b, [&](std::uint32_t i, float* gradient, float* p, float* new_q) {
      if (!is_compressed(i)) {
        std::memcpy(gradient, p, parameters_[i].count() * sizeof(float));
        return;
      }
      const Compressed& c = matrices_[i];
      split(p, new_q, c.m, c.n, r(), gradient, error(c));
      std::memcpy(q(c), new_q, r() * c.n * sizeof(float));
      replace_zero_rows(q(c), r(), c.n, i);
    });
  }

  void discard() override {
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      if (!is_compressed(i)) continue;
      const Compressed& c = matrices_[i];
      std::memset(error(c), 0, c.m * c.n * sizeof(float));
      std::memset(q(c), 0, r() * c.n * sizeof(float));
      replace_zero_rows(q(c), r(), c.n, i);
    }
  }

 private:
  /// What a bucket sends in its two rounds: where in the staging buffer, in floats.
  struct Staged {
    bool is_compressed = false;  // one of its gradients
    std::size_t first = 0, first_count = 0;
    std::size_t second = 0, second_count = 0;
  };

  std::size_t r() const { return policy_.rank; }
  bool is_compressed(std::size_t i) const { return matrices_[i].m != 0; }
  float* state() const { return reinterpret_cast<float*>(state_.data()); }
  float* staging() const { return reinterpret_cast<float*>(staging_.data()); }
  float* error(const Compressed& c) const { return state() + c.error; }
  float* q(const Compressed& c) const { return state() + c.q; }

  /// Calls visit(gradient's index, its memory, its P or copy, its new Q).
  template <class Visit>
  void for_each(std::size_t b, const Visit& visit) const {
    auto* gradient = reinterpret_cast<float*>(data(b));
    float* p = staging() + staged_[b].first;
    float* new_q = staging() + staged_[b].second;
    for (const std::uint32_t i : bucket(b).gradients) {
      visit(i, gradient, p, new_q);
      gradient += parameters_[i].count();
      p += is_compressed(i) ? matrices_[i].m * r() : parameters_[i].count();
      if (is_compressed(i)) new_q += matrices_[i].n * r();
    }
  }

  static Call all_reduce(float* data, std::size_t count) {
    return call_of(Collective::all_reduce, data, data, count, DataType::float32, ReduceKind::avg);
  }
  static Call nothing() { return all_reduce(nullptr, 0); }

  const PowerSgd policy_;
  const std::span<const Parameter> parameters_;
  MemoryPool& memory_;
  std::vector<Compressed> matrices_;  // by parameter
  std::vector<Staged> staged_;        // by bucket
  Buffer state_;                      // errors and Q
  Buffer staging_;
  bool active_ = false;  // in this step
};

}  // namespace

bool compresses(const PowerSgd& policy, const Parameter& parameter) {
  if (parameter.type != DataType::float32 || parameter.shape.size() < 2) return false;
  const std::size_t m = parameter.shape.front();
  if (m == 0 || parameter.count() == 0) return false;
  const std::size_t n = parameter.count() / m;
  return policy.rank <= m && policy.rank <= n && (m + n) * policy.rank < m * n;
}

std::unique_ptr<Reduction> make_power_sgd(const PowerSgd& policy,
                                          std::span<const Parameter> parameters,
                                          MemoryPool& memory) {
  return std::make_unique<PowerSgdReduction>(policy, parameters, memory);
}

}  // namespace tutti::parallel
