// Domain parallelism: training steps of a small U-Net on an image that is cut into a block for each
// rank. All ranks have all weights; in each layer they exchange the halos of their blocks. Then
// every rank trains on the whole image by itself, and compares.
//
//     x --- conv 3x3 --- s --------------------------------- s, u --- conv 3x3 --- y
//                        |                                    |
//                        pool 2x2 --- conv 3x3 --- upsample --+
//
//     tutti run -n 4 build/examples/unet_step
#include <tutti/parallel/domain/halo.h>
#include <tutti/parallel/mesh.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using namespace tutti::parallel;
using domain::Box, domain::Dimension, domain::Halo;

constexpr std::int64_t kRows = 27, kColumns = 34;  // odd numbers are no problem
constexpr std::size_t kFeatures = 4, kDeep = 6, kTaps = 9, kSteps = 5;

/// Channels of a rectangle of cells.
struct Image {
  Image(const Box& b, std::size_t c)
      : box(b), channels(c), values(c * std::size_t(domain::cells(b))) {}
  double& at(std::size_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t row = std::int64_t(c) * box[0].size() + y - box[0].begin;
    return values[std::size_t(row * box[1].size() + x - box[1].begin)];
  }
  Box box;
  std::size_t channels;
  std::vector<double> values;
};

template <class Use>
static void each(const Box& box, const Use& use) {
  for (std::int64_t y = box[0].begin; y < box[0].end; ++y) {
    for (std::int64_t x = box[1].begin; x < box[1].end; ++x) use(y, x);
  }
}

/// Copies the cells that both have; channels of `to` from `first` on.
static void copy(Image& from, Image& to, std::size_t first = 0) {
  const Box both{domain::intersection(from.box[0], to.box[0]),
                 domain::intersection(from.box[1], to.box[1])};
  for (std::size_t c = 0; c < from.channels; ++c) {
    each(both, [&](auto y, auto x) { to.at(first + c, y, x) = from.at(c, y, x); });
  }
}

/// A convolution of 3 x 3, over edges of zeros.
class Convolution {
 public:
  Convolution(Axis& axis, const std::string& name, std::vector<Dimension> field, std::size_t in,
              std::size_t out)
      : halo_(axis, {.name = name,
                     .dimensions = std::move(field),
                     .stencils = {{.kernel = 3, .padding = 1}, {.kernel = 3, .padding = 1}},
                     .outer = in,
                     .type = tutti::DataType::float64}),
        x_(halo_.padded(), in),
        out_(out) {
    for (std::size_t i = 0; i < in * out * kTaps; ++i) {
      weights.push_back(std::sin(double(3 * i + 1)) / std::sqrt(double(in * kTaps)));
    }
    gradients.resize(weights.size());
  }
  Image forward(Image& x) {
    Image y(halo_.output(), out_);
    copy(x, x_);
    halo_.start(x_.values.data());
    compute(halo_.interior(), y);  // while the halo travels
    halo_.finish();
    for (const Box& box : halo_.border()) compute(box, y);
    return y;
  }
  Image backward(Image& dy) {
    Image dx_padded(halo_.padded(), x_.channels), dx(halo_.own(), x_.channels);
    each(dy.box, [&](auto y, auto x) {
      each_weight(y, x, [&](std::size_t w, std::size_t o, std::size_t i, auto row, auto column) {
        gradients[w] += dy.at(o, y, x) * x_.at(i, row, column);
        dx_padded.at(i, row, column) += dy.at(o, y, x) * weights[w];
      });
    });
    halo_.exchange_backward(dx_padded.values.data());
    copy(dx_padded, dx);
    return dx;
  }
  std::vector<double> weights, gradients;

 private:
  template <class Use>
  void each_weight(std::int64_t y, std::int64_t x, const Use& use) const {
    std::size_t w = 0;
    for (std::size_t o = 0; o < out_; ++o) {
      for (std::size_t i = 0; i < x_.channels; ++i) {
        for (std::size_t tap = 0; tap < kTaps; ++tap, ++w) {
          use(w, o, i, y + std::int64_t(tap / 3) - 1, x + std::int64_t(tap % 3) - 1);
        }
      }
    }
  }
  void compute(const Box& cells, Image& out) {
    each(cells, [&](auto y, auto x) {
      each_weight(y, x, [&](std::size_t w, std::size_t o, std::size_t i, auto row, auto column) {
        out.at(o, y, x) += weights[w] * x_.at(i, row, column);
      });
    });
  }
  Halo halo_;
  Image x_;
  std::size_t out_;
};

/// Between an image and one of half its size: each coarse cell belongs to 2 x 2 fine ones. Adjoint
/// to each other: pooling is gather(), and its backward spread(); with upsampling it is the other
/// way round. At the seam of two blocks a coarse cell may have fine ones of both.
class Halves {
 public:
  Halves(Axis& axis, const std::string& name, std::vector<Dimension> field, std::size_t channels)
      : halo_(axis, {.name = name,
                     .dimensions = std::move(field),
                     .stencils = {{.kernel = 2, .stride = 2}, {.kernel = 2, .stride = 2}},
                     .outer = channels,
                     .type = tutti::DataType::float64}),
        channels_(channels) {}
  std::vector<Dimension> coarse() const {
    const auto dimensions = halo_.layout().output().dimensions();
    return {dimensions.begin(), dimensions.end()};
  }
  Image gather(Image& fine, double factor) {
    Image padded(halo_.padded(), channels_), coarse(halo_.output(), channels_);
    copy(fine, padded);
    halo_.exchange(padded.values.data());
    each_pair([&](std::size_t c, auto y, auto x, auto row, auto column) {
      coarse.at(c, y, x) += factor * padded.at(c, row, column);
    });
    return coarse;
  }
  Image spread(Image& coarse, double factor) {
    Image padded(halo_.padded(), channels_), fine(halo_.own(), channels_);
    each_pair([&](std::size_t c, auto y, auto x, auto row, auto column) {
      padded.at(c, row, column) += factor * coarse.at(c, y, x);
    });
    halo_.exchange_backward(padded.values.data());
    copy(padded, fine);
    return fine;
  }

 private:
  template <class Use>
  void each_pair(const Use& use) const {
    for (std::size_t c = 0; c < channels_; ++c) {
      each(halo_.output(), [&](auto y, auto x) {
        for (std::int64_t tap = 0; tap < 4; ++tap) {
          use(c, y, x, 2 * y + tap / 2, 2 * x + tap % 2);
        }
      });
    }
  }
  Halo halo_;
  std::size_t channels_;
};

static void relu(Image& x) {
  for (double& v : x.values) v = std::max(v, 0.0);
}
static void relu_backward(const Image& y, Image& dy) {
  for (std::size_t i = 0; i < y.values.size(); ++i) dy.values[i] *= y.values[i] > 0 ? 1 : 0;
}

class UNet {
 public:
  UNet(Axis& axis, const std::vector<Dimension>& image)
      : axis_(axis),
        own_(domain::Blocks(axis.size(), image).box(axis.rank())),
        first_(axis, "first", image, 1, kFeatures),
        pool_(axis, "pool", image, kFeatures),
        deep_(axis, "deep", pool_.coarse(), kFeatures, kDeep),
        upsample_(axis, "upsample", image, kDeep),
        last_(axis, "last", image, kFeatures + kDeep, 1) {}

  /// Returns the loss.
  double step() {
    Image x(own_, 1), joined(own_, kFeatures + kDeep);
    each(own_, [&](auto row, auto column) {
      x.at(0, row, column) = std::sin(0.7 * double(row)) + std::cos(0.4 * double(column * row));
    });
    Image s = first_.forward(x);
    relu(s);
    Image pooled = pool_.gather(s, 0.25);
    Image d = deep_.forward(pooled);
    relu(d);
    Image u = upsample_.spread(d, 1);
    copy(s, joined);
    copy(u, joined, kFeatures);
    Image y = last_.forward(joined);

    double loss = 0;
    const double cells = kRows * kColumns;
    each(own_, [&](auto row, auto column) {  // y becomes the gradient of the loss
      double& v = y.at(0, row, column);
      v -= std::sin(0.7 * double(row)) > 0 ? 1 : 0;
      loss += v * v / cells;
      v *= 2 / cells;
    });
    Image djoined = last_.backward(y), ds(own_, kFeatures), du(own_, kDeep);
    for (std::size_t c = 0; c < djoined.channels; ++c) {
      each(own_, [&](auto row, auto column) {
        (c < kFeatures ? ds.at(c, row, column) : du.at(c - kFeatures, row, column)) =
            djoined.at(c, row, column);
      });
    }
    Image dd = upsample_.gather(du, 1);
    relu_backward(d, dd);
    Image dpooled = deep_.backward(dd), from_pool = pool_.spread(dpooled, 0.25);
    for (std::size_t i = 0; i < ds.values.size(); ++i) ds.values[i] += from_pool.values[i];
    relu_backward(s, ds);
    first_.backward(ds);

    // A rank has the gradients of its cells: their sum is that of the image.
    std::vector<double> sum{loss};
    for (Convolution* layer : layers()) {
      sum.insert(sum.end(), layer->gradients.begin(), layer->gradients.end());
    }
    axis_.run(call_of(tutti::Collective::all_reduce, sum.data(), sum.data(), sum.size(),
                      tutti::DataType::float64));
    auto next = sum.begin() + 1;
    for (Convolution* layer : layers()) {
      for (double& w : layer->weights) w -= 0.2 * *next++;
      std::fill(layer->gradients.begin(), layer->gradients.end(), 0.0);
    }
    return sum[0];
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (Convolution* layer : layers()) {
      all.insert(all.end(), layer->weights.begin(), layer->weights.end());
    }
    return all;
  }

 private:
  std::vector<Convolution*> layers() { return {&first_, &deep_, &last_}; }
  Axis& axis_;
  Box own_;
  Convolution first_;
  Halves pool_;
  Convolution deep_;
  Halves upsample_;
  Convolution last_;
};

struct Trained {
  double first_loss = 0, loss = 0;
  std::vector<double> weights{};
};
static Trained train(Axis& axis, int rows) {
  UNet net(axis, {{"y", kRows, rows}, {"x", kColumns, axis.size() / rows}});
  axis.reset_traffic();
  Trained t{.first_loss = net.step()};
  for (std::size_t i = 1; i < kSteps; ++i) t.loss = net.step();
  t.weights = net.weights();
  return t;
}

int main() {
  try {
    auto world = tutti::Communicator::from_environment();
    int rows = int(std::sqrt(double(world.size())));
    while (world.size() % rows != 0) --rows;
    Mesh mesh(world, {{"y", rows}, {"x", -1}}, {{"y", "x"}});
    auto& axis = mesh.axis({"y", "x"});
    const Trained here = train(axis, rows);
    const auto carried = axis.traffic()[tutti::Collective::send_recv];

    auto itself = tutti::Communicator::alone();
    CommunicatorAxis whole(itself);
    const Trained alone = train(whole, 1);
    double worst = std::abs(here.loss - alone.loss) / alone.loss, largest = 0;
    for (const double w : alone.weights) largest = std::max(largest, std::abs(w));
    for (std::size_t i = 0; i < alone.weights.size(); ++i) {
      worst = std::max(worst, std::abs(here.weights[i] - alone.weights[i]) / largest);
    }
    std::printf(
        "rank %d of %d: the loss fell from %.4f to %.4f, as with one rank to %s; %zu messages, "
        "%zu B sent\n",
        world.rank(), world.size(), here.first_loss, here.loss,
        worst <= 1e-12 ? "1e-12" : std::to_string(worst).c_str(), std::size_t(carried.calls),
        std::size_t(carried.sent));
    return worst <= 1e-12 ? 0 : 1;
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "unet_step: %s\n", error.what());
    return 1;
  }
}
