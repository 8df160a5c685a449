#include "examples/train/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>

#include "bindings/torch/experts.h"
#include "bindings/torch/linear.h"
#include "bindings/torch/tensor_parallel.h"
#include "core/error.h"

namespace train {
namespace {

namespace lib = tutti::libtorch;

/// The same for the same seed and name, on every rank and in every type.
Tensor random_tensor(const Shape& shape, std::uint64_t seed, const std::string& name,
                     at::IntArrayRef sizes, double deviation) {
  std::uint64_t mixed = seed + 0x9e3779b97f4a7c15u;
  for (const char c : name) mixed = (mixed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(mixed);
  return at::empty(sizes, at::kFloat).normal_(0, deviation, generator).to(shape.type);
}

using Function = std::function<Tensor(const Tensor&)>;

struct Norm : torch::nn::Module {
  explicit Norm(const Shape& shape) {
    weight = register_parameter("weight", at::ones({shape.width}, shape.type));
    bias = register_parameter("bias", at::zeros({shape.width}, shape.type));
  }
  Tensor forward(const Tensor& x) const { return at::layer_norm(x, {x.size(-1)}, weight, bias); }
  Tensor weight, bias;
};

/// Makes linear layers, whole or shared, with the same values: `deviation` is
/// that of the weights.
class Maker {
 public:
  Maker(const Shape& shape, std::uint64_t seed, const Split& split, Layer& layer)
      : shape_(shape), seed_(seed), split_(split), layer_(layer) {}

  std::int64_t ranks() const { return split_.axis == nullptr ? 1 : split_.axis->size(); }
  std::int64_t rank() const { return split_.axis == nullptr ? 0 : split_.axis->rank(); }
  /// This rank's run of rows, where they are cut.
  Tensor rows(const Tensor& whole) const {
    return split_.sequence ? whole.chunk(ranks(), 0)[index(rank())] : whole;
  }
  Tensor random(const std::string& name, at::IntArrayRef sizes, double deviation = 0.02) const {
    return random_tensor(shape_, seed_, layer_.name() + "." + name, sizes, deviation);
  }
  bool whole() const { return split_.axis == nullptr; }
  const Split& split() const { return split_; }

  /// `groups`: the outputs have so many groups (query, key, value); each is cut on its own.
  Function column(const std::string& name, std::int64_t in, std::int64_t out,
                  std::int64_t groups = 1) {
    return column_of(name, random(name, {out, in}), groups);
  }
  Function column_of(const std::string& name, const Tensor& weight, std::int64_t groups = 1) {
    const std::int64_t out = weight.size(0), in = weight.size(1);
    if (whole()) return add_whole(name, weight, groups);
    const auto linear = std::make_shared<lib::ColumnParallelLinear>(
        *split_.axis, layer_.name() + "." + name, in, out, shape_.type,
        tutti::parallel::tensor::ColumnOptions{.sequence = split_.sequence});
    linear->weight.copy_(weight.view({groups, out / groups, in})
                             .chunk(ranks(), 1)[index(rank())]
                             .reshape(linear->weight.sizes()));
    linear->bias.zero_();
    layer_.register_module(name, linear);
    note_columns(*linear, out, in, groups);
    return [linear](const Tensor& x) { return linear->forward(x); };
  }
  Function row(const std::string& name, std::int64_t in, std::int64_t out, double deviation) {
    const Tensor weight = random(name, {out, in}, deviation);
    if (whole()) return add_whole(name, weight, 0);
    const auto linear = std::make_shared<lib::RowParallelLinear>(
        *split_.axis, layer_.name() + "." + name, in, out, shape_.type,
        tutti::parallel::tensor::RowOptions{.sequence = split_.sequence});
    linear->weight.copy_(weight.chunk(ranks(), 1)[index(rank())]);
    linear->bias.zero_();
    layer_.register_module(name, linear);
    note(linear->weight, {out, in}, 1);
    return [linear](const Tensor& x) { return linear->forward(x); };
  }
  /// The ranks divide the parameter along dimension `divided`. `sizes` are those of the whole
  /// parameter.
  void note(const Tensor& parameter, std::vector<std::int64_t> sizes, std::size_t divided) {
    tutti::parallel::ParameterPlace place;
    place.shape.assign(sizes.begin(), sizes.end());
    if (!whole()) {
      place.offset.assign(sizes.size(), 0);
      place.extent = place.shape;
      place.extent[divided] /= index(ranks());
      place.offset[divided] = place.extent[divided] * index(rank());
    }
    layer_.placed.push_back({parameter, std::move(place)});
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  /// `groups`: as column_of(); 0: the layer would be divided by its inputs.
  Function add_whole(const std::string& name, const Tensor& weight, std::int64_t groups) {
    const auto linear = layer_.register_module(
        name, std::make_shared<lib::Linear>(weight.size(1), weight.size(0), shape_.type));
    linear->weight.copy_(weight);
    linear->bias.zero_();
    if (groups > 0) note_columns(*linear, weight.size(0), weight.size(1), groups);
    return [linear](const Tensor& x) { return linear->forward(x); };
  }
  template <class Linear>
  void note_columns(const Linear& linear, std::int64_t out, std::int64_t in, std::int64_t groups) {
    note(linear.weight, {groups, out / groups, in}, 1);
    note(linear.bias, {groups, out / groups}, 1);
  }

  const Shape& shape_;
  const std::uint64_t seed_;
  const Split split_;
  Layer& layer_;
};

Tensor token_vectors(const Shape& shape, std::uint64_t seed) {
  return random_tensor(shape, seed, "embedding.tokens", {shape.vocabulary, shape.width}, 0.02);
}

struct Embedding final : Layer {
  Embedding(const Shape& shape, std::uint64_t seed, const Split& split)
      : Layer("embedding"), maker(shape, seed, split, *this) {
    const Tensor values = token_vectors(shape, seed);
    if (maker.whole()) {
      tokens = register_parameter("tokens", values);
    } else {
      shared = register_module(
          "tokens", std::make_shared<lib::VocabParallelEmbedding>(
                        *split.axis, "embedding.tokens", shape.vocabulary, shape.width, shape.type,
                        tutti::parallel::tensor::EmbeddingOptions{.sequence = split.sequence}));
      const auto& own = shared->vocabulary();
      shared->weight.copy_(values.narrow(0, static_cast<std::int64_t>(own.begin),
                                         static_cast<std::int64_t>(own.local)));
      maker.note(shared->weight, {shape.vocabulary, shape.width}, 0);
      placed.back().place.name = "tokens";  // as where it is whole
    }
    if (shape.tied) tied = maker.whole() ? tokens : shared->weight;
    positions =
        register_parameter("positions", maker.random("positions", {shape.length, shape.width}));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor vectors = shared ? shared->forward(x) : at::embedding(tokens, x).flatten(0, 1);
    const auto& shared_sequence = maker.split().attention;
    const Tensor own = shared_sequence ? positions.index_select(0, shared_sequence->positions())
                                       : positions.narrow(0, 0, x.size(1));
    return vectors + maker.rows(own.repeat({x.size(0), 1}));
  }
  Maker maker;
  std::shared_ptr<lib::VocabParallelEmbedding> shared;
  Tensor tokens, positions;
};

/// The experts of a block, where they are no part of it.
struct Experts final : Layer {
  Experts(const std::string& block, const std::shared_ptr<torch::nn::Module>& module)
      : Layer(block) {
    register_module("experts", module);
  }
  Tensor forward(const Tensor& x) override { return x; }  // the block computes with them
};

struct Block final : Layer {
  Block(const Shape& shape, std::uint64_t seed, const Split& split, std::int64_t number)
      : Layer(fmt::format("block {}", number)),
        shared_sequence(split.attention),
        length(split.attention ? static_cast<std::int64_t>(split.attention->engine().rows())
                               : shape.length),
        dropout(shape.dropout) {
    Maker maker(shape, seed, split, *this);
    heads = shape.heads / maker.ranks();
    width = shape.width / shape.heads;
    const double last = 0.02 / std::sqrt(2.0 * static_cast<double>(shape.layers));
    norm1 = register_module("norm1", std::make_shared<Norm>(shape));
    qkv = maker.column("qkv", shape.width, 3 * shape.width, 3);
    project = maker.row("project", shape.width, shape.width, last);
    norm2 = register_module("norm2", std::make_shared<Norm>(shape));
    if (shape.experts > 0) {
      make_experts(shape, split, maker, last);
      return;
    }
    up = maker.column("up", shape.width, 4 * shape.width);
    down = maker.row("down", 4 * shape.width, shape.width, last);
  }
  void make_experts(const Shape& shape, const Split& split, const Maker& maker, double last) {
    const auto mlp = lib::feed_forward(shape.width, 4 * shape.width, shape.type);
    const auto make = [&](std::int64_t number) {
      lib::Expert expert = mlp(number);
      for (auto& p : expert.module->named_parameters()) {
        if (p.value().dim() == 1) {
          p.value().zero_();
          continue;
        }
        const bool is_last = p.key() == "down.weight";
        p.value().copy_(maker.random(fmt::format("experts.{}.{}", number, p.key()),
                                     p.value().sizes(), is_last ? last : 0.02));
      }
      return expert;
    };
    mixture = register_module(
        "mixture",
        std::make_shared<lib::MixtureOfExperts>(
            *split.experts,
            tutti::parallel::expert::ExpertShape{.name = name() + ".experts",
                                                 .experts = static_cast<std::size_t>(shape.experts),
                                                 .width = static_cast<std::size_t>(shape.width),
                                                 .type = lib::data_type(shape.type, "the model"),
                                                 .top_k = static_cast<std::size_t>(shape.top_k)},
            make,
            lib::MixtureOptions{
                .renormalizes = true, .balance = split.balance, .balance_axis = split.balanced}));
    mixture->router->weight.copy_(maker.random("router", {shape.experts, shape.width}));
    if (split.experts->size() == 1) {
      register_module("experts", mixture->experts);
    } else {
      experts = std::make_shared<Experts>(name(), mixture->experts);
    }
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + some(attention(norm1->forward(x)));
    return y + some(mlp(norm2->forward(y)));
  }
  Tensor mlp(const Tensor& x) const {
    if (!mixture) return down(at::gelu(up(x), "tanh"));
    const lib::Layer body = [m = mixture](const Tensor& rows) { return m->forward(rows); };
    return around_experts ? around_experts(body, x) : body(x);
  }
  Tensor some(const Tensor& x) const { return at::dropout(x, dropout, true); }
  Tensor attention(const Tensor& x) const {
    const Tensor three = qkv(x).view({-1, length, 3, heads, width});
    if (shared_sequence) {
      const auto rows = [&](std::int64_t i) { return three.select(2, i).transpose(0, 1); };
      const Tensor mixed = shared_sequence->forward(rows(0), rows(1), rows(2));
      return project(mixed.transpose(0, 1).reshape({-1, heads * width}));
    }
    const auto part = [&](std::int64_t i) { return three.select(2, i).transpose(1, 2); };
    const Tensor mixed = at::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true);
    return project(mixed.transpose(1, 2).reshape({-1, heads * width}));
  }
  const std::shared_ptr<lib::ContextParallelAttention> shared_sequence;
  const std::int64_t length;  // of this rank's part of a sequence
  const double dropout;
  std::int64_t heads = 1;  // of this rank
  std::int64_t width = 1;  // of a head
  std::shared_ptr<Norm> norm1, norm2;
  std::shared_ptr<lib::MixtureOfExperts> mixture;
  Function qkv, project, up, down;
};

struct Head final : Layer {
  Head(const Shape& shape, std::uint64_t seed, const Split& split) : Layer("head") {
    norm = register_module("norm", std::make_shared<Norm>(shape));
    Maker maker(shape, seed, split, *this);
    if (!shape.tied) {
      logits = maker.column("logits", shape.width, shape.vocabulary);
      return;
    }
    // A copy: on another rank, or with memory to spare for it. SharedGradients keeps it the same.
    logits = maker.column_of("logits", token_vectors(shape, seed));
    tied = named_parameters()["logits.weight"];
  }
  Tensor forward(const Tensor& x) override { return logits(norm->forward(x)); }
  std::shared_ptr<Norm> norm;
  Function logits;
};

}  // namespace

tutti::parallel::ParameterPlace Layer::place(const Tensor& parameter) const {
  const auto found =
      std::ranges::find_if(placed, [&](const Placed& p) { return p.parameter.is_same(parameter); });
  if (found != placed.end()) return found->place;
  tutti::parallel::ParameterPlace whole;
  whole.shape.assign(parameter.sizes().begin(), parameter.sizes().end());
  return whole;
}

void Shape::check() const {
  constexpr std::int64_t kMostSize = 65'536;  // so that parameters() is a number
  for (const std::int64_t size : {vocabulary, length, width, heads, layers}) {
    if (size < 1 || size > kMostSize) {
      throw tutti::Error(
          tutti::ErrorCode::invalid_argument,
          fmt::format("every size of the model has to be 1 or more, and {} at most", kMostSize));
    }
  }
  if (width % heads != 0) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       fmt::format("a width of {} cannot be cut into {} heads", width, heads));
  }
  if (experts < 0 || experts > kMostSize || top_k < 1 || (experts > 0 && top_k > experts)) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       fmt::format("--experts {} --top-k {}: a token goes to at least one of them",
                                   experts, top_k));
  }
  if (!(dropout >= 0 && dropout < 1)) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       fmt::format("--dropout {}: it is 0 or more, and less than 1", dropout));
  }
}

std::int64_t Shape::parameters() const {
  const std::int64_t mlp = 8 * width * width + 5 * width;
  const std::int64_t block =
      4 * width * width + 8 * width + (experts > 0 ? experts * (mlp + width) : mlp);
  const std::int64_t matrices = (tied ? 1 : 2) * vocabulary + length;
  return layers * block + matrices * width + 2 * width + vocabulary;
}

std::vector<std::shared_ptr<Layer>> make_layers(const Shape& shape, std::uint64_t seed,
                                                std::int64_t first, std::int64_t last,
                                                const Split& split) {
  shape.check();
  const at::NoGradGuard no_grad;
  std::vector<std::shared_ptr<Layer>> layers;
  for (std::int64_t i = first; i < last; ++i) {
    if (i == 0) {
      layers.push_back(std::make_shared<Embedding>(shape, seed, split));
    } else if (i <= shape.layers) {
      layers.push_back(std::make_shared<Block>(shape, seed, split, i - 1));
    } else {
      layers.push_back(std::make_shared<Head>(shape, seed, split));
    }
  }
  return layers;
}

Loss make_loss(const Shape& shape, const Split& split) {
  if (split.axis == nullptr) {
    return [](const Tensor& logits, const Tensor& next) {
      return at::cross_entropy_loss(logits, next.flatten());
    };
  }
  const auto shared = std::make_shared<lib::VocabParallelCrossEntropy>(
      *split.axis, "loss", shape.vocabulary, shape.type);
  return [shared](const Tensor& logits, const Tensor& next) {
    return shared->forward(logits, next.flatten());
  };
}

}  // namespace train
