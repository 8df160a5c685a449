#include "tests/parallel/domain_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/hybrid/shared_gradients.h"
#include "tests/parallel/domain_layers.h"

namespace tutti::test {
namespace {

using namespace parallel;
using namespace parallel::domain;
using namespace layers;

constexpr std::size_t kIn = 2, kHidden = 3, kOut = 2;

// --- How halos come ------------------------------------------------------------------------------

/// One halo; the geometry is that of the ranks, the cells come somehow.
class Exchange {
 public:
  Exchange(const HaloLayout& layout, int rank)
      : own(layout.input().box(rank)),
        padded(layout.padded(rank)),
        output(layout.output().box(rank)),
        interior(layout.interior(rank)),
        border(layout.border(rank)) {}
  virtual ~Exchange() = default;
  virtual void start(Field& x) = 0;
  virtual void finish() = 0;
  virtual void backward(Field& dx) = 0;
  const Box own, padded, output, interior;
  const std::vector<Box> border;
};

class OnAxis final : public Exchange {
 public:
  OnAxis(Axis& axis, const HaloShape& shape)
      : OnAxis(axis.rank(), std::make_unique<Halo>(axis, shape)) {}
  void start(Field& x) override { halo_->start(x.values.data()); }
  void finish() override { halo_->finish(); }
  void backward(Field& dx) override { halo_->exchange_backward(dx.values.data()); }

 private:
  OnAxis(int rank, std::unique_ptr<Halo> halo)
      : Exchange(halo->layout(), rank), halo_(std::move(halo)) {}
  std::unique_ptr<Halo> halo_;
};

/// One rank, without Halo.
class Alone final : public Exchange {
 public:
  explicit Alone(const HaloShape& shape)
      : Exchange(HaloLayout(1, shape), 0), dimensions_(shape.dimensions) {}
  void start(Field& x) override {
    each_beyond(x, [](double& halo, double* cell) { halo = cell ? *cell : 0; });
  }
  void finish() override {}
  void backward(Field& dx) override {
    each_beyond(dx, [](double& halo, double* cell) {
      if (cell) *cell += halo;
    });
  }

 private:
  /// Calls use(a cell outside of the field, the cell that it stands for or null).
  template <class Use>
  void each_beyond(Field& x, const Use& use) {
    const std::size_t first = 3 - dimensions_.size();
    each(x.box, [&](const Cell& c) {
      Cell in = c;
      bool zero = false;
      for (std::size_t d = 0; d < dimensions_.size(); ++d) {
        const std::int64_t n = dimensions_[d].cells;
        std::int64_t& at = in[first + d];
        if (at >= 0 && at < n) continue;
        zero = zero || dimensions_[d].edge == Edge::zero;
        at = (at % n + n) % n;
      }
      if (in == c) return;
      for (std::size_t o = 0; o < x.outer; ++o) use(x.at(o, c), zero ? nullptr : &x.at(o, in));
    });
  }
  std::vector<Dimension> dimensions_;
};

// --- The model --------------------------------------------------------------------------------

double wave(const Cell& c, std::size_t o, double seed) {
  return std::sin(seed + 1.3 * static_cast<double>(c[0]) + 0.7 * static_cast<double>(c[1]) +
                  0.9 * static_cast<double>(c[2]) * static_cast<double>(1 + c[1]) +
                  2.1 * static_cast<double>(o));
}

template <class Make>
TrainedDomain train(const DomainModel& model, const DomainRanks& ranks, const Make& make) {
  const std::size_t samples = ranks.samples, d = model.dimensions.size();
  const std::vector<Stencil> first(d, {.kernel = 3, .padding = 1}),
      pooled(d, {.kernel = 2, .stride = 2}),
      last(d, {.kernel = 3, .stride = 2, .dilation = 2, .padding = 2});
  const auto shape = [&](const char* name, auto dimensions, const auto& s, std::size_t channels) {
    return HaloShape{
        name, {dimensions.begin(), dimensions.end()}, s, samples * channels, 1, DataType::float64};
  };
  const HaloShape shape1 = shape("conv1", std::span(model.dimensions), first, kIn);
  const auto e1 = make(shape1);
  const int count = e1.ranks;
  const HaloLayout layout1(count, shape1);
  const HaloShape shape2 = shape("pool", layout1.output().dimensions(), pooled, kHidden);
  const auto e2 = make(shape2);
  const HaloLayout layout2(count, shape2);
  const HaloShape shape3 = shape("conv2", layout2.output().dimensions(), last, kHidden);
  const auto e3 = make(shape3);
  const HaloLayout layout3(count, shape3);

  std::size_t taps = 1;
  double field = 1, outputs = 1;
  for (std::size_t i = 0; i < d; ++i) {
    taps *= 3;
    field *= static_cast<double>(model.dimensions[i].cells);
    outputs *= static_cast<double>(layout3.output().dimensions()[i].cells);
  }
  const Convolution conv1{Window(first), taps}, conv2{Window(last), taps};
  const Pool pool{Window(pooled), static_cast<double>(1 << d), model.max_pool};
  Norm norm{field, ranks.sum, {}};
  std::vector<double> w((kHidden * kIn + kOut * kHidden) * taps);
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = 0.4 * std::sin(3.7 * static_cast<double>(i) + 1);
  }
  double* const w2 = w.data() + kHidden * kIn * taps;

  TrainedDomain trained;
  for (std::size_t step = 0; step < model.steps; ++step) {
    Field x(e1.exchange->padded, samples * kIn), h(e1.exchange->output, samples * kHidden), t = h;
    each(box3(e1.exchange->own), [&](const Cell& c) {
      for (std::size_t o = 0; o < x.outer; ++o) {
        x.at(o, c) = wave(c, ranks.first_sample * kIn + o, static_cast<double>(step));
      }
    });
    e1.exchange->start(x);
    conv1.forward(e1.exchange->interior, x, w.data(), h, samples);
    e1.exchange->finish();
    for (const Box& box : e1.exchange->border) conv1.forward(box, x, w.data(), h, samples);
    norm.forward(h, t);
    const auto fill = [](Exchange& e, Field& block) {  // with its halo
      e.start(block);
      e.finish();
    };
    Field tp(e2.exchange->padded, t.outer), p(e2.exchange->output, t.outer);
    each(t.box, [&](const Cell& c) {
      for (std::size_t o = 0; o < t.outer; ++o) tp.at(o, c) = std::tanh(t.at(o, c));
    });
    fill(*e2.exchange, tp);
    pool.forward(tp, p);
    Field pp(e3.exchange->padded, p.outer), y(e3.exchange->output, samples * kOut);
    each(p.box, [&](const Cell& c) {
      for (std::size_t o = 0; o < p.outer; ++o) pp.at(o, c) = p.at(o, c);
    });
    fill(*e3.exchange, pp);
    conv2.forward(e3.exchange->output, pp, w2, y, samples);

    trained.output = y.values;
    Field dy = y;  // of the mean of squares, to waves
    each(y.box, [&](const Cell& c) {
      for (std::size_t o = 0; o < y.outer; ++o) {
        const double target = wave(c, ranks.first_sample * kOut + o, 0.5);
        dy.at(o, c) = (y.at(o, c) - target) / (outputs * static_cast<double>(samples));
      }
    });
    std::vector<double> dw(w.size());
    Field dpp(e3.exchange->padded, p.outer), dtp(e2.exchange->padded, t.outer), dt = t;
    Field dx(e1.exchange->padded, x.outer), dp = p;
    conv2.backward(pp, w2, dy, dpp, dw.data() + kHidden * kIn * taps, samples);
    e3.exchange->backward(dpp);
    each(p.box, [&](const Cell& c) {
      for (std::size_t o = 0; o < p.outer; ++o) dp.at(o, c) = dpp.at(o, c);
    });
    pool.backward(tp, p, dp, dtp);
    e2.exchange->backward(dtp);
    each(t.box, [&](const Cell& c) {
      for (std::size_t o = 0; o < t.outer; ++o) {
        dt.at(o, c) = dtp.at(o, c) * (1 - tp.at(o, c) * tp.at(o, c));
      }
    });
    norm.backward(t, dt);
    conv1.backward(x, w.data(), dt, dx, dw.data(), samples);
    e1.exchange->backward(dx);
    // The gradient by the input is part of the result, too: it moves a weight.
    std::vector<double> input(1);
    each(box3(e1.exchange->own), [&](const Cell& c) {
      for (std::size_t o = 0; o < x.outer; ++o) input[0] += dx.at(o, c) * x.at(o, c);
    });
    dw[0] += input[0];
    ranks.reduce(dw);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.3 * dw[i];
  }
  trained.parameters = w;
  trained.block = e3.exchange->output;
  trained.samples = samples;
  trained.first_sample = ranks.first_sample;
  return trained;
}

struct Made {
  std::unique_ptr<Exchange> exchange;
  int ranks;
};

}  // namespace

std::string DomainModel::text() const {
  std::string text = max_pool ? "max" : "average";
  for (const Dimension& d : dimensions) {
    text += fmt::format(", {} {} over {}{}", d.name, d.cells, d.ranks,
                        d.edge == Edge::periodic ? " periodic" : "");
  }
  return text;
}

TrainedDomain train_alone(const DomainModel& model) {
  DomainModel one = model;
  for (Dimension& d : one.dimensions) d.ranks = 1, d.blocks = {};
  const auto nothing = [](std::span<double>) {};
  return train(one, {nothing, nothing, 0, model.samples}, [](const HaloShape& shape) {
    return Made{std::make_unique<Alone>(shape), 1};
  });
}

TrainedDomain train_domain(Axis& axis, const DomainModel& model, const DomainRanks& ranks) {
  return train(model, ranks, [&](const HaloShape& shape) {
    return Made{std::make_unique<OnAxis>(axis, shape), axis.size()};
  });
}

TrainedDomain train_domain(Axis& axis, const DomainModel& model) {
  const auto sum = [&](std::span<double> v) {
    axis.run(call_of(Collective::all_reduce, v.data(), v.data(), v.size(), DataType::float64));
  };
  return train_domain(axis, model, {sum, sum, 0, model.samples});
}

TrainedDomain train_hybrid(Mesh& mesh, const DomainModel& model) {
  Axis& field = mesh.axis({"y", "x"});
  Axis& replicas = mesh.axis("dp");
  const auto sum = [&](std::span<double> v) {
    field.run(call_of(Collective::all_reduce, v.data(), v.data(), v.size(), DataType::float64));
  };
  std::unique_ptr<DataParallel> engine;
  SharedGradients shared({.tensor = &field}, {{"weights", Copies::partial}});
  const auto reduce = [&](std::span<double> gradients) {
    if (!engine) {
      engine = std::make_unique<DataParallel>(
          replicas, std::vector<Parameter>{{"weights", {gradients.size()}, DataType::float64}});
    }
    auto* const flat = static_cast<double*>(engine->gradient(0));
    std::ranges::copy(gradients, flat);
    engine->ready(0);
    (void)engine->finish();
    auto* const mean = static_cast<double*>(engine->gradient(0));
    const SharedGradients::Run run{mean, gradients.size(), DataType::float64};
    shared.reduce({&run, 1});
    std::copy_n(mean, gradients.size(), gradients.begin());
  };
  const std::size_t samples = model.samples / static_cast<std::size_t>(replicas.size());
  return train_domain(field, model,
                      {sum, reduce, samples * static_cast<std::size_t>(replicas.rank()), samples});
}

double difference(const TrainedDomain& one, const TrainedDomain& alone) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < one.parameters.size(); ++i) {
    worst = std::max(worst, std::abs(one.parameters[i] - alone.parameters[i]));
    largest = std::max(largest, std::abs(alone.parameters[i]));
  }
  double result = worst / largest;
  Field mine(one.block, one.samples * kOut), all(alone.block, alone.samples * kOut);
  mine.values = one.output;
  all.values = alone.output;
  worst = largest = 0;
  for (const double v : all.values) largest = std::max(largest, std::abs(v));
  each(mine.box, [&](const Cell& c) {
    for (std::size_t o = 0; o < mine.outer; ++o) {
      const double should = all.at(one.first_sample * kOut + o, c);
      worst = std::max(worst, std::abs(mine.at(o, c) - should));
    }
  });
  return std::max(result, worst / largest);
}

}  // namespace tutti::test
