#include "examples/train/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include "core/error.h"

namespace train {
namespace {

/// The same for the same seed and name, on every rank and in every type.
Tensor random_tensor(const Shape& shape, std::uint64_t seed, const std::string& name,
                     at::IntArrayRef sizes, double deviation) {
  std::uint64_t mixed = seed + 0x9e3779b97f4a7c15u;
  for (const char c : name) mixed = (mixed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(mixed);
  return at::empty(sizes, at::kFloat).normal_(0, deviation, generator).to(shape.type);
}

struct Linear : torch::nn::Module {
  Linear(const Shape& shape, std::uint64_t seed, const std::string& name, std::int64_t in,
         std::int64_t out, double deviation = 0.02) {
    weight = register_parameter("weight", random_tensor(shape, seed, name, {out, in}, deviation));
    bias = register_parameter("bias", at::zeros({out}, shape.type));
  }
  Tensor forward(const Tensor& x) const { return at::linear(x, weight, bias); }
  Tensor weight, bias;
};

struct Norm : torch::nn::Module {
  explicit Norm(const Shape& shape) {
    weight = register_parameter("weight", at::ones({shape.width}, shape.type));
    bias = register_parameter("bias", at::zeros({shape.width}, shape.type));
  }
  Tensor forward(const Tensor& x) const { return at::layer_norm(x, {x.size(-1)}, weight, bias); }
  Tensor weight, bias;
};

struct Embedding final : Layer {
  Embedding(const Shape& shape, std::uint64_t seed) : Layer("embedding") {
    tokens = register_parameter(
        "tokens", random_tensor(shape, seed, "tokens", {shape.vocabulary, shape.width}, 0.02));
    positions = register_parameter(
        "positions", random_tensor(shape, seed, "positions", {shape.length, shape.width}, 0.02));
  }
  Tensor forward(const Tensor& x) override {
    return at::embedding(tokens, x) + positions.narrow(0, 0, x.size(1));
  }
  Tensor tokens, positions;
};

struct Block final : Layer {
  Block(const Shape& shape, std::uint64_t seed, std::int64_t number)
      : Layer(fmt::format("block {}", number)), heads(shape.heads) {
    const auto add = [&](const char* part, std::int64_t in, std::int64_t out, double deviation) {
      return register_module(
          part, std::make_shared<Linear>(shape, seed, fmt::format("block.{}.{}", number, part), in,
                                         out, deviation));
    };
    const double last = 0.02 / std::sqrt(2.0 * static_cast<double>(shape.layers));
    norm1 = register_module("norm1", std::make_shared<Norm>(shape));
    qkv = add("qkv", shape.width, 3 * shape.width, 0.02);
    project = add("project", shape.width, shape.width, last);
    norm2 = register_module("norm2", std::make_shared<Norm>(shape));
    up = add("up", shape.width, 4 * shape.width, 0.02);
    down = add("down", 4 * shape.width, shape.width, last);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attention(norm1->forward(x));
    return y + down->forward(at::gelu(up->forward(norm2->forward(y)), "tanh"));
  }
  Tensor attention(const Tensor& x) const {
    const Tensor parts = qkv->forward(x).view({x.size(0), x.size(1), 3, heads, -1});
    const auto part = [&](std::int64_t i) { return parts.select(2, i).transpose(1, 2); };
    const Tensor mixed = at::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true);
    return project->forward(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
  }
  const std::int64_t heads;
  std::shared_ptr<Norm> norm1, norm2;
  std::shared_ptr<Linear> qkv, project, up, down;
};

struct Head final : Layer {
  Head(const Shape& shape, std::uint64_t seed) : Layer("head") {
    norm = register_module("norm", std::make_shared<Norm>(shape));
    logits = register_module(
        "logits", std::make_shared<Linear>(shape, seed, "logits", shape.width, shape.vocabulary));
  }
  Tensor forward(const Tensor& x) override { return logits->forward(norm->forward(x)); }
  std::shared_ptr<Norm> norm;
  std::shared_ptr<Linear> logits;
};

}  // namespace

void Shape::check() const {
  for (const std::int64_t size : {vocabulary, length, width, heads, layers}) {
    if (size < 1) {
      throw tutti::Error(tutti::ErrorCode::invalid_argument,
                         "every size of the model has to be 1 or more");
    }
  }
  if (width % heads != 0) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       fmt::format("a width of {} cannot be cut into {} heads", width, heads));
  }
}

std::int64_t Shape::parameters() const {
  const std::int64_t block = 12 * width * width + 13 * width;
  return layers * block + (2 * vocabulary + length) * width + 2 * width + vocabulary;
}

std::vector<std::shared_ptr<Layer>> make_layers(const Shape& shape, std::uint64_t seed,
                                                std::int64_t first, std::int64_t last) {
  shape.check();
  const at::NoGradGuard no_grad;
  std::vector<std::shared_ptr<Layer>> layers;
  for (std::int64_t i = first; i < last; ++i) {
    if (i == 0) {
      layers.push_back(std::make_shared<Embedding>(shape, seed));
    } else if (i <= shape.layers) {
      layers.push_back(std::make_shared<Block>(shape, seed, i - 1));
    } else {
      layers.push_back(std::make_shared<Head>(shape, seed));
    }
  }
  return layers;
}

Tensor loss_of(const Tensor& logits, const Tensor& next) {
  return at::cross_entropy_loss(logits.flatten(0, 1), next.flatten());
}

}  // namespace train
