#include "bindings/torch/tensor_parallel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace tutti::libtorch {

namespace engines = parallel::tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// With torch's BLAS.
void multiply(const engines::Product& p) {
  const auto matrix = [&](const void* data, std::size_t rows, std::size_t columns, bool transpose) {
    const auto r = static_cast<std::int64_t>(rows), c = static_cast<std::int64_t>(columns);
    void* const memory = const_cast<void*>(data);
    return transpose ? tensor_over(memory, {c, r}, scalar_type(p.type)).t()
                     : tensor_over(memory, {r, c}, scalar_type(p.type));
  };
  const at::NoGradGuard no_grad;
  matrix(p.c, p.rows, p.columns, false)
      .addmm_(matrix(p.a, p.rows, p.inner, p.transpose_a),
              matrix(p.b, p.inner, p.columns, p.transpose_b), p.adds ? 1 : 0);
}

engines::LinearShape shape_of(const std::string& name, std::int64_t in, std::int64_t out,
                              at::ScalarType type) {
  return {name, static_cast<std::size_t>(in), static_cast<std::size_t>(out),
          data_type(type, "linear '" + name + "'")};
}

[[noreturn]] void refuse(const std::string& name, const std::string& takes, const Tensor& got) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} takes {}, on the CPU, not {}", name, takes, describe(got)));
}

/// Rows of so many columns.
void check(const Tensor& x, std::int64_t columns, at::ScalarType type, const std::string& name) {
  if (x.dim() == 2 && x.size(1) == columns && x.scalar_type() == type && x.device().is_cpu())
    return;
  refuse(name, fmt::format("{} [rows, {}]", tutti::name(data_type(type, name)), columns), x);
}

/// The engine computes in the type that its layer was made for; a sharded parameter has the
/// policy's.
void check(const Tensor& weight, at::ScalarType type, const std::string& name) {
  if (weight.scalar_type() == type) return;
  refuse(name, fmt::format("a weight of {}, as it was made", tutti::name(data_type(type, name))),
         weight);
}

std::span<const engines::Token> tokens_of(const Tensor& ids) {
  return {ids.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

/// Of all ranks, where a rank has `local`.
std::size_t whole_rows(const Tensor& local, bool sliced, std::int64_t ranks) {
  return static_cast<std::size_t>(local.size(0) * (sliced ? ranks : 1));
}

template <class Module>
void save(AutogradContext* ctx, Module* module) {
  ctx->saved_data["module"] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(module));
}
template <class Module>
Module& saved(AutogradContext* ctx) {
  return *reinterpret_cast<Module*>(static_cast<std::uintptr_t>(ctx->saved_data["module"].toInt()));
}

/// A whole matrix, which `fill` draws from torch's random numbers, strip by strip; `part` gets what
/// it has of it, from that row and column on. All ranks draw all of it: so a layer begins alike
/// however many share it, and ranks of the same seed go on with the same numbers.
template <class Fill>
void draw_part(const Tensor& part, at::IntArrayRef whole, std::int64_t row, std::int64_t column,
               const Fill& fill) {
  const at::NoGradGuard no_grad;
  const std::int64_t rows = whole[0], columns = whole[1];
  constexpr std::int64_t kStrip = 1 << 16;  // elements
  const std::int64_t strip = std::max<std::int64_t>(1, kStrip / std::max<std::int64_t>(columns, 1));
  for (std::int64_t first = 0; first < rows; first += strip) {
    const std::int64_t end = std::min(rows, first + strip);
    const Tensor drawn = at::empty({end - first, columns}, part.options());
    fill(drawn);
    const std::int64_t from = std::max(first, row), to = std::min(end, row + part.size(0));
    if (from >= to) continue;
    part.slice(0, from - row, to - row)
        .copy_(drawn.slice(0, from - first, to - first).slice(1, column, column + part.size(1)));
  }
}

/// As Linear begins, which is as torch's does.
void draw_linear(const Tensor& weight, const Tensor& bias, std::int64_t in, std::int64_t out,
                 std::int64_t row, std::int64_t column) {
  const double most = 1 / std::sqrt(static_cast<double>(in));
  const auto fill = [&](const Tensor& t) { t.uniform_(-most, most); };
  draw_part(weight, {out, in}, row, column, fill);
  draw_part(bias.detach().unsqueeze(1), {out, 1}, row, 0, fill);
}

/// Where gradients of a layer's parameters are made.
struct Gradients {
  Gradients(const GradientPlace& of_weight, const Tensor& w, const GradientPlace& of_bias,
            const Tensor& b)
      : weight(of_weight.memory.defined() ? of_weight.memory : at::empty_like(w)),
        bias(of_bias.memory.defined() ? of_bias.memory : at::empty_like(b)),
        adds(of_weight.adds || of_bias.adds) {
    if (adds && !of_weight.adds) weight.zero_();
    if (adds && !of_bias.adds) bias.zero_();
  }
  engines::LinearGradients pointers() const {
    return {weight.mutable_data_ptr(), bias.mutable_data_ptr(), adds};
  }
  Tensor weight, bias;
  bool adds;
};

/// Of a layer, by `backward(of_input, of_parameters)` of its engine; the parameters' part later,
/// where that is asked for.
template <class Module, class Backward>
variable_list backward_of(Module& m, const variable_list& kept, const Tensor& dx,
                          const Backward& backward) {
  auto* const later = LaterGradients::list();
  if (later == nullptr) {
    const Gradients made(m.place_of(m.weight), kept[1], m.place_of(m.bias), kept[2]);
    backward(dx.mutable_data_ptr(), made.pointers());
    return {dx, made.weight, made.bias, Tensor()};
  }
  backward(dx.mutable_data_ptr(), engines::LinearGradients{});
  later->push_back([&m, kept, backward] {
    const at::NoGradGuard no_grad;
    const Gradients made(m.place_of(m.weight), kept[1], m.place_of(m.bias), kept[2]);
    backward(nullptr, made.pointers());
    LaterGradients::give(m.weight, made.weight);
    LaterGradients::give(m.bias, made.bias);
  });
  return {dx, Tensor(), Tensor(), Tensor()};
}

}  // namespace

struct ColumnFunction : torch::autograd::Function<ColumnFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, ColumnParallelLinear* m) {
    save(ctx, m);
    ctx->save_for_backward({x, weight, bias});
    const std::size_t rows = whole_rows(x, m->options_.sequence, m->ranks_);
    const Tensor y = at::empty({static_cast<std::int64_t>(rows), m->columns_}, x.options());
    m->engine_.forward(x.const_data_ptr(), rows, {weight.const_data_ptr(), bias.const_data_ptr()},
                       y.mutable_data_ptr());
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    auto& m = saved<ColumnParallelLinear>(ctx);
    const auto kept = ctx->get_saved_variables();
    const Tensor dy = gradients[0].contiguous();
    const Tensor dx = at::empty(kept[0].sizes(), kept[0].options());
    const auto backward = [&m, kept, dy](void* of_input, engines::LinearGradients of_parameters) {
      m.engine_.backward(
          dy.const_data_ptr(), kept[0].const_data_ptr(), static_cast<std::size_t>(dy.size(0)),
          {kept[1].const_data_ptr(), kept[2].const_data_ptr()}, of_input, of_parameters);
    };
    return backward_of(m, kept, dx, backward);
  }
};

ColumnParallelLinear::ColumnParallelLinear(parallel::Axis& axis, const std::string& name,
                                           std::int64_t in, std::int64_t out, at::ScalarType type,
                                           engines::ColumnOptions options)
    : Module(name),
      ranks_(axis.size()),
      columns_(options.gather_output ? out : out / axis.size()),
      type_(type),
      options_(options),
      engine_(axis, shape_of(name, in, out, type), options, multiply) {
  const auto local = static_cast<std::int64_t>(engine_.local_out());
  weight = register_parameter("weight", at::empty({local, in}, type));
  bias = register_parameter("bias", at::empty({local}, type));
  draw_linear(weight, bias, in, out, axis.rank() * local, 0);
}

Tensor ColumnParallelLinear::forward(const Tensor& x) {
  check(weight, type_, name());
  check(x, weight.size(1), type_, name());
  return ColumnFunction::apply(x.contiguous(), weight, bias, this);
}

struct RowFunction : torch::autograd::Function<RowFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, RowParallelLinear* m) {
    save(ctx, m);
    ctx->save_for_backward({x, weight, bias});
    const std::int64_t rows = m->options_.sequence ? x.size(0) / m->ranks_ : x.size(0);
    const Tensor y = at::empty({rows, weight.size(0)}, x.options());
    m->engine_.forward(x.const_data_ptr(), static_cast<std::size_t>(x.size(0)),
                       {weight.const_data_ptr(), bias.const_data_ptr()}, y.mutable_data_ptr());
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    auto& m = saved<RowParallelLinear>(ctx);
    const auto kept = ctx->get_saved_variables();
    const Tensor dy = gradients[0].contiguous();
    const Tensor dx = at::empty(kept[0].sizes(), kept[0].options());
    const auto backward = [&m, kept, dy](void* of_input, engines::LinearGradients of_parameters) {
      m.engine_.backward(
          dy.const_data_ptr(), kept[0].const_data_ptr(), static_cast<std::size_t>(kept[0].size(0)),
          {kept[1].const_data_ptr(), kept[2].const_data_ptr()}, of_input, of_parameters);
    };
    return backward_of(m, kept, dx, backward);
  }
};

RowParallelLinear::RowParallelLinear(parallel::Axis& axis, const std::string& name, std::int64_t in,
                                     std::int64_t out, at::ScalarType type,
                                     engines::RowOptions options)
    : Module(name),
      ranks_(axis.size()),
      type_(type),
      options_(options),
      engine_(axis, shape_of(name, in, out, type), options, multiply) {
  const auto local = static_cast<std::int64_t>(engine_.local_in());
  weight = register_parameter("weight", at::empty({out, local}, type));
  bias = register_parameter("bias", at::empty({out}, type));
  draw_linear(weight, bias, in, out, 0, axis.rank() * local);
  // All have it, whatever their seeds are.
  void* const values = bias.mutable_data_ptr();
  axis.run(parallel::call_of(Collective::broadcast, values, values, static_cast<std::size_t>(out),
                             data_type(type, "linear '" + name + "'")));
}

Tensor RowParallelLinear::forward(const Tensor& x) {
  check(weight, type_, name());
  check(x, options_.input_is_parallel ? weight.size(1) : weight.size(1) * ranks_, type_, name());
  return RowFunction::apply(x.contiguous(), weight, bias, this);
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& ids, const Tensor& weight,
                        VocabParallelEmbedding* m) {
    save(ctx, m);
    ctx->save_for_backward({ids, weight});
    const std::int64_t rows = m->options_.sequence ? ids.numel() / m->ranks_ : ids.numel();
    const Tensor out = at::empty({rows, weight.size(1)}, weight.options());
    m->engine_.forward(tokens_of(ids), weight.const_data_ptr(), out.mutable_data_ptr());
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    auto& m = saved<VocabParallelEmbedding>(ctx);
    const auto kept = ctx->get_saved_variables();
    const GradientPlace place = m.place_of(m.weight);
    const Tensor dweight = place.memory.defined() ? place.memory : at::empty_like(kept[1]);
    if (!place.adds) dweight.zero_();
    m.engine_.backward(tokens_of(kept[0]), gradients[0].contiguous().const_data_ptr(),
                       dweight.mutable_data_ptr());
    return {Tensor(), dweight, Tensor()};
  }
};

VocabParallelEmbedding::VocabParallelEmbedding(parallel::Axis& axis, const std::string& name,
                                               std::int64_t tokens, std::int64_t width,
                                               at::ScalarType type,
                                               engines::EmbeddingOptions options)
    : Module(name),
      ranks_(axis.size()),
      type_(type),
      options_(options),
      engine_(axis, name, static_cast<std::size_t>(tokens), static_cast<std::size_t>(width),
              data_type(type, "embedding '" + name + "'"), options) {
  weight = register_parameter(
      "weight", at::empty({static_cast<std::int64_t>(vocabulary().local), width}, type));
  // As torch's embedding begins. What pads the vocabulary is nobody's.
  const at::NoGradGuard no_grad;
  weight.zero_();
  const auto real = static_cast<std::int64_t>(vocabulary().real());
  draw_part(weight.detach().slice(0, 0, real), {tokens, width},
            static_cast<std::int64_t>(vocabulary().begin), 0, [](const Tensor& t) { t.normal_(); });
}

Tensor VocabParallelEmbedding::forward(const Tensor& ids) {
  check(weight, type_, name());
  return EmbeddingFunction::apply(ids.contiguous(), weight, this);
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  struct Kept final : torch::CustomClassHolder {
    engines::VocabularyCrossEntropy::Saved of_rows;
  };
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Tensor& targets,
                        VocabParallelCrossEntropy* m) {
    save(ctx, m);
    ctx->save_for_backward({logits, targets});
    auto kept = c10::make_intrusive<Kept>();
    m->engine_.forward(logits.const_data_ptr(), tokens_of(targets), kept->of_rows);
    const double mean = kept->of_rows.mean();
    ctx->saved_data["rows"] = c10::IValue::make_capsule(std::move(kept));
    return at::scalar_tensor(mean, logits.options());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    auto& m = saved<VocabParallelCrossEntropy>(ctx);
    const auto kept = ctx->get_saved_variables();
    const auto rows = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["rows"].toCapsule());
    const Tensor dlogits = at::empty(kept[0].sizes(), kept[0].options());
    const auto counted = static_cast<double>(std::max<std::size_t>(rows->of_rows.counted, 1));
    m.engine_.backward(kept[0].const_data_ptr(), tokens_of(kept[1]), rows->of_rows,
                       gradients[0].item<double>() / counted, dlogits.mutable_data_ptr());
    return {dlogits, Tensor(), Tensor()};
  }
};

VocabParallelCrossEntropy::VocabParallelCrossEntropy(parallel::Axis& axis, const std::string& name,
                                                     std::int64_t tokens, at::ScalarType type,
                                                     engines::CrossEntropyOptions options)
    : name_("cross entropy '" + name + "'"),
      type_(type),
      engine_(axis, name, static_cast<std::size_t>(tokens), data_type(type, name_), options) {}

Tensor VocabParallelCrossEntropy::forward(const Tensor& logits, const Tensor& targets) {
  check(logits, static_cast<std::int64_t>(vocabulary().local), type_, name_);
  if (logits.size(0) != targets.numel()) {
    refuse(name_, fmt::format("as many targets as logits have rows, {}", logits.size(0)), targets);
  }
  return CrossEntropyFunction::apply(logits.contiguous(), targets.contiguous(), this);
}

}  // namespace tutti::libtorch
