// hybrid_model.h on one rank, in plain loops.
#include <cmath>

#include "tests/parallel/hybrid_model.h"
#include "tests/parallel/hybrid_model_math.h"

namespace tutti::test {
namespace {

using Size = HybridSizes;

/// All parameters of a model, in one order; and how much of the weight decay each gets.
template <class F>
void for_each(Weights& w, const F& f) {
  f(w.embedding, 1);
  for (Weights::Block& b : w.blocks) {
    f(b.norm.gain, 0);
    f(b.norm.bias, 0);
    f(b.w1, 1);
    f(b.b1, 0);
    f(b.w2, 1);
    f(b.b2, 0);
  }
  f(w.norm.gain, 0);
  f(w.norm.bias, 0);
}

/// The mean loss of a batch, and its gradient.
double differentiate(const Weights& w, std::size_t step, Weights& g) {
  Matrix x(Size::rows, Size::width);
  for (std::size_t i = 0; i < Size::rows; ++i) {
    const auto t = static_cast<std::size_t>(token(step, i / Size::length, i % Size::length));
    for (std::size_t c = 0; c < Size::width; ++c) x(i, c) = w.embedding(t, c);
  }
  std::vector<Matrix> inputs, norms, hiddens;
  for (const Weights::Block& b : w.blocks) {
    inputs.push_back(x);
    norms.push_back(normalised(x, b.norm.gain.data(), b.norm.bias.data()));
    hiddens.push_back(each(plus_rows(norms.back() * transposed(b.w1), b.b1),
                           [](double v) { return std::tanh(v); }));
    x = x + plus_rows(hiddens.back() * transposed(b.w2), b.b2);
  }
  const Matrix last = normalised(x, w.norm.gain.data(), w.norm.bias.data());
  Matrix d = last * transposed(w.embedding);  // logits; then their gradient
  double loss = 0;
  for (std::size_t i = 0; i < Size::rows; ++i) {
    const auto t = static_cast<std::size_t>(token(step, i / Size::length, i % Size::length + 1));
    double sum = 0;
    for (std::size_t c = 0; c < Size::tokens; ++c) sum += std::exp(d(i, c));
    loss += (std::log(sum) - d(i, t)) / Size::rows;
    for (std::size_t c = 0; c < Size::tokens; ++c) d(i, c) = std::exp(d(i, c)) / sum / Size::rows;
    d(i, t) -= 1.0 / Size::rows;
  }
  g.embedding = transposed(d) * last;
  d = d * w.embedding;
  d = normalised_backward(x, w.norm.gain.data(), d, g.norm.gain.data(), g.norm.bias.data());
  for (std::size_t k = w.blocks.size(); k-- > 0;) {
    const Weights::Block& b = w.blocks[k];
    Weights::Block& gb = g.blocks[k];
    gb.w2 = transposed(d) * hiddens[k];
    gb.b2 = sum_of_rows(d);
    const Matrix dh = times(d * b.w2, each(hiddens[k], [](double v) { return 1 - v * v; }));
    gb.w1 = transposed(dh) * norms[k];
    gb.b1 = sum_of_rows(dh);
    d = d + normalised_backward(inputs[k], b.norm.gain.data(), dh * b.w1, gb.norm.gain.data(),
                                gb.norm.bias.data());
  }
  for (std::size_t i = 0; i < Size::rows; ++i) {
    const auto t = static_cast<std::size_t>(token(step, i / Size::length, i % Size::length));
    for (std::size_t c = 0; c < Size::width; ++c) g.embedding(t, c) += d(i, c);
  }
  return loss;
}

}  // namespace

Weights Weights::initial() {
  Weights w;
  double seed = 1;
  for_each(w, [&](Matrix& m, int decay) {
    m = Matrix(m.rows, m.columns, seed++);
    for (double& v : m.values) v = decay == 1 ? v * 0.7 : 0.1 * v;
  });
  const auto around_one = [](Matrix& m) {
    for (double& v : m.values) v += 1;
  };
  for (Block& b : w.blocks) around_one(b.norm.gain);
  around_one(w.norm.gain);
  return w;
}

TrainedAlone train_alone(std::size_t steps) {
  TrainedAlone result{Weights::initial(), {}, {}};
  Weights m, v;
  for (std::size_t step = 0; step < steps; ++step) {
    Weights g;
    result.losses.push_back(differentiate(result.weights, step, g));
    double squares = 0;
    for_each(g, [&](const Matrix& of, int) {
      for (const double x : of.values) squares += x * x;
    });
    const double norm = std::sqrt(squares);
    result.norms.push_back(norm);
    const double scale = norm > kHybridMostNorm ? kHybridMostNorm / norm : 1;
    std::vector<Matrix*> gs, ms, vs;
    for_each(g, [&](Matrix& x, int) { gs.push_back(&x); });
    for_each(m, [&](Matrix& x, int) { ms.push_back(&x); });
    for_each(v, [&](Matrix& x, int) { vs.push_back(&x); });
    const auto& o = kHybridAdamW;
    const auto n = static_cast<double>(step + 1);
    std::size_t at = 0;
    for_each(result.weights, [&](Matrix& w, int decay) {
      for (std::size_t i = 0; i < w.values.size(); ++i) {
        double &p = w.values[i], &first = ms[at]->values[i], &second = vs[at]->values[i];
        const double gradient = gs[at]->values[i] * scale;
        p -= o.learning_rate * o.weight_decay * decay * p;
        first = o.beta1 * first + (1 - o.beta1) * gradient;
        second = o.beta2 * second + (1 - o.beta2) * gradient * gradient;
        const double divisor = std::sqrt(second / (1 - std::pow(o.beta2, n))) + o.epsilon;
        p -= o.learning_rate * (first / (1 - std::pow(o.beta1, n))) / divisor;
      }
      ++at;
    });
  }
  return result;
}

}  // namespace tutti::test
