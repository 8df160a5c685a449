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

#include "bindings/torch/torch_gpu.h"
#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::libtorch {

namespace engines = parallel::tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

engines::Multiply multiplication_on(c10::Device device) {
  return [device](const engines::Product& p) { multiply(p, device); };
}

/// Of memory of the axis's device.
Tensor empty(at::IntArrayRef sizes, at::ScalarType type, const parallel::Axis& axis) {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(tensors_of(axis)));
}

/// Where a rank asks for a type that Tutti does not have, all are refused.
DataType agreed_type(parallel::Axis& axis, at::ScalarType type, const std::string& what) {
  DataType result{};
  parallel::together(axis, what, [&] { result = data_type(type, what); });
  return result;
}

engines::LinearShape shape_of(parallel::Axis& axis, const std::string& name, std::int64_t in,
                              std::int64_t out, at::ScalarType type) {
  return {name, static_cast<std::size_t>(in), static_cast<std::size_t>(out),
          agreed_type(axis, type, "linear '" + name + "'")};
}

[[noreturn]] void refuse(const std::string& name, const std::string& takes, c10::Device device,
                         const Tensor& got) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{} takes {}, on {}, not {}", name, takes,
                                                       describe(device), describe(got)));
}

/// Rows of so many columns.
void check(const Tensor& x, std::int64_t columns, at::ScalarType type, c10::Device device,
           const std::string& name) {
  if (x.defined() && x.dim() == 2 && x.size(1) == columns && x.scalar_type() == type &&
      x.device() == device)
    return;
  refuse(name, fmt::format("{} [rows, {}]", tutti::name(data_type(type, name)), columns), device,
         x);
}

/// The engine computes in the type that its layer was made for; a sharded parameter has the
/// policy's.
void check(const Tensor& weight, at::ScalarType type, c10::Device device, const std::string& name) {
  check_is_here(weight, name);
  if (weight.scalar_type() == type && weight.device() == device) return;
  refuse(name, fmt::format("a weight of {}, as it was made", tutti::name(data_type(type, name))),
         device, weight);
}

/// Of int64, in the host's memory, as the engines have them.
Tensor tokens(const Tensor& ids, c10::Device device, const std::string& name) {
  if (!ids.defined() || !(ids.device() == device || ids.device().is_cpu()) ||
      !at::isIntegralType(ids.scalar_type(), /*includeBool=*/false)) {
    refuse(name, "tokens as int64 or int32", device, ids);
  }
  return ids.to(c10::kCPU, at::kLong).contiguous();
}

std::span<const engines::Token> tokens_of(const Tensor& ids) {
  return {ids.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

/// Of all ranks, where a rank has `local`.
std::size_t whole_rows(const Tensor& local, bool sliced, std::int64_t ranks) {
  return static_cast<std::size_t>(local.size(0) * (sliced ? ranks : 1));
}

/// What backward needs of a layer, which may be gone then.
template <class Engine>
struct Parts final : torch::CustomClassHolder {
  explicit Parts(std::shared_ptr<Engine> e) : engine(std::move(e)) {}
  Parts(std::shared_ptr<Engine> e, Tensor w, Tensor b, std::shared_ptr<GradientTaker> t)
      : engine(std::move(e)), weight(std::move(w)), bias(std::move(b)), taker(std::move(t)) {}
  const std::shared_ptr<Engine> engine;
  const Tensor weight, bias;
  const std::shared_ptr<GradientTaker> taker;
};

template <class Engine, class... More>
void keep(AutogradContext* ctx, const std::shared_ptr<Engine>& engine, const More&... more) {
  ctx->saved_data["parts"] =
      c10::IValue::make_capsule(c10::make_intrusive<Parts<Engine>>(engine, more...));
}
template <class Engine>
c10::intrusive_ptr<Parts<Engine>> parts_of(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<Parts<Engine>>(ctx->saved_data["parts"].toCapsule());
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

/// Where gradients of a linear layer's parameters are made.
struct Gradients {
  Gradients(const GradientPlace& of_weight, const Tensor& w, const GradientPlace& of_bias,
            const Tensor& b)
      : weight(of_weight.memory.defined() ? of_weight.memory : at::empty_like(w)),
        bias(of_bias.memory.defined() ? of_bias.memory : at::empty_like(b)),
        adds(of_weight.adds || of_bias.adds),
        for_autograd{of_weight.memory.defined() ? Tensor() : weight,
                     of_bias.memory.defined() ? Tensor() : bias} {
    if (adds && !of_weight.adds) weight.zero_();
    if (adds && !of_bias.adds) bias.zero_();
  }
  engines::LinearGradients pointers() const {
    return {weight.mutable_data_ptr(), bias.mutable_data_ptr(), adds};
  }
  const Tensor weight, bias;
  const bool adds;
  const variable_list for_autograd;
};

/// Of a linear layer, by `backward(of_input, of_parameters)` of its engine; the parameters' part
/// later, where that is asked for.
template <class Engine, class Backward>
variable_list backward_of(const c10::intrusive_ptr<Parts<Engine>>& parts, const Tensor& dx,
                          const Backward& backward) {
  const auto make = [parts, backward](void* of_input) {
    const Tensor &w = parts->weight, &b = parts->bias;
    const Gradients made(parts->taker->place_of(w), w, parts->taker->place_of(b), b);
    backward(of_input, made.pointers());
    return made.for_autograd;
  };
  if (LaterGradients::leave({parts->weight, parts->bias}, [make] { return make(nullptr); })) {
    backward(dx.mutable_data_ptr(), engines::LinearGradients{});
    return {dx, Tensor(), Tensor(), Tensor()};
  }
  const variable_list made = make(dx.mutable_data_ptr());
  return {dx, made[0], made[1], Tensor()};
}

/// Of x, weight and bias, which `ctx` has saved; `rows`: of the whole matrix.
template <class Engine>
variable_list linear_backward(AutogradContext* ctx, const Tensor& dy, std::int64_t rows) {
  const auto parts = parts_of<Engine>(ctx);
  const auto kept = ctx->get_saved_variables();
  const Tensor dx = at::empty(kept[0].sizes(), kept[0].options());
  const auto backward = [engine = parts->engine, kept, dy, rows](
                            void* of_input, engines::LinearGradients of_parameters) {
    engine->backward(dy.const_data_ptr(), kept[0].const_data_ptr(), static_cast<std::size_t>(rows),
                     {kept[1].const_data_ptr(), kept[2].const_data_ptr()}, of_input, of_parameters);
  };
  return backward_of(parts, dx, backward);
}

}  // namespace

struct ColumnFunction : torch::autograd::Function<ColumnFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, ColumnParallelLinear* m) {
    keep(ctx, m->engine_, weight, bias, m->gradient_taker());
    ctx->save_for_backward({x, weight, bias});
    const std::size_t rows = whole_rows(x, m->options_.sequence, m->ranks_);
    const Tensor y = at::empty({static_cast<std::int64_t>(rows), m->columns_}, x.options());
    m->engine_->forward(x.const_data_ptr(), rows, {weight.const_data_ptr(), bias.const_data_ptr()},
                        y.mutable_data_ptr());
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return linear_backward<engines::ColumnParallelLinear>(ctx, gradients[0].contiguous(),
                                                          gradients[0].size(0));
  }
};

ColumnParallelLinear::ColumnParallelLinear(parallel::Axis& axis, const std::string& name,
                                           std::int64_t in, std::int64_t out, at::ScalarType type,
                                           engines::ColumnOptions options)
    : Module(name),
      ranks_(axis.size()),
      columns_(options.gather_output ? out : out / axis.size()),
      type_(type),
      device_(tensors_of(axis)),
      options_(options),
      engine_(std::make_shared<engines::ColumnParallelLinear>(
          axis, shape_of(axis, name, in, out, type), options,
          multiplication_on(tensors_of(axis)))) {
  const auto local = static_cast<std::int64_t>(engine_->local_out());
  weight = register_parameter("weight", empty({local, in}, type, axis));
  bias = register_parameter("bias", empty({local}, type, axis));
  draw_linear(weight, bias, in, out, axis.rank() * local, 0);
}

Tensor ColumnParallelLinear::forward(const Tensor& x) {
  check(weight, type_, device_, name());
  check(x, weight.size(1), type_, device_, name());
  return ColumnFunction::apply(x.contiguous(), weight, bias, this);
}

struct RowFunction : torch::autograd::Function<RowFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, RowParallelLinear* m) {
    keep(ctx, m->engine_, weight, bias, m->gradient_taker());
    ctx->save_for_backward({x, weight, bias});
    const std::int64_t rows = m->options_.sequence ? x.size(0) / m->ranks_ : x.size(0);
    const Tensor y = at::empty({rows, weight.size(0)}, x.options());
    m->engine_->forward(x.const_data_ptr(), static_cast<std::size_t>(x.size(0)),
                        {weight.const_data_ptr(), bias.const_data_ptr()}, y.mutable_data_ptr());
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return linear_backward<engines::RowParallelLinear>(ctx, gradients[0].contiguous(),
                                                       ctx->get_saved_variables()[0].size(0));
  }
};

RowParallelLinear::RowParallelLinear(parallel::Axis& axis, const std::string& name, std::int64_t in,
                                     std::int64_t out, at::ScalarType type,
                                     engines::RowOptions options)
    : Module(name),
      ranks_(axis.size()),
      type_(type),
      device_(tensors_of(axis)),
      options_(options),
      engine_(std::make_shared<engines::RowParallelLinear>(
          axis, shape_of(axis, name, in, out, type), options,
          multiplication_on(tensors_of(axis)))) {
  const auto local = static_cast<std::int64_t>(engine_->local_in());
  weight = register_parameter("weight", empty({out, local}, type, axis));
  bias = register_parameter("bias", empty({out}, type, axis));
  draw_linear(weight, bias, in, out, 0, axis.rank() * local);
  // All have it, whatever their seeds are.
  void* const values = bias.mutable_data_ptr();
  axis.run(parallel::call_of(Collective::broadcast, values, values, static_cast<std::size_t>(out),
                             data_type(type, "linear '" + name + "'")));
}

Tensor RowParallelLinear::forward(const Tensor& x) {
  check(weight, type_, device_, name());
  check(x, options_.input_is_parallel ? weight.size(1) : weight.size(1) * ranks_, type_, device_,
        name());
  return RowFunction::apply(x.contiguous(), weight, bias, this);
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& ids, const Tensor& weight,
                        VocabParallelEmbedding* m) {
    keep(ctx, m->engine_, weight, Tensor(), m->gradient_taker());
    ctx->save_for_backward({ids});
    const std::int64_t rows = m->options_.sequence ? ids.numel() / m->ranks_ : ids.numel();
    const Tensor out = at::empty({rows, weight.size(1)}, weight.options());
    m->engine_->forward(tokens_of(ids), weight.const_data_ptr(), out.mutable_data_ptr());
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto parts = parts_of<engines::VocabularyEmbedding>(ctx);
    const GradientPlace place = parts->taker->place_of(parts->weight);
    const bool is_placed = place.memory.defined();
    const Tensor dweight = is_placed ? place.memory : at::empty_like(parts->weight);
    if (!place.adds) dweight.zero_();
    parts->engine->backward(tokens_of(ctx->get_saved_variables()[0]),
                            gradients[0].contiguous().const_data_ptr(), dweight.mutable_data_ptr());
    return {Tensor(), is_placed ? Tensor() : dweight, Tensor()};
  }
};

VocabParallelEmbedding::VocabParallelEmbedding(parallel::Axis& axis, const std::string& name,
                                               std::int64_t tokens, std::int64_t width,
                                               at::ScalarType type,
                                               engines::EmbeddingOptions options)
    : Module(name),
      ranks_(axis.size()),
      type_(type),
      device_(tensors_of(axis)),
      options_(options),
      engine_(std::make_shared<engines::VocabularyEmbedding>(
          axis, name, static_cast<std::size_t>(tokens), static_cast<std::size_t>(width),
          agreed_type(axis, type, "embedding '" + name + "'"), options)) {
  weight = register_parameter(
      "weight", empty({static_cast<std::int64_t>(vocabulary().local), width}, type, axis));
  // As torch's embedding begins. What pads the vocabulary is nobody's.
  const at::NoGradGuard no_grad;
  weight.zero_();
  const auto real = static_cast<std::int64_t>(vocabulary().real());
  draw_part(weight.detach().slice(0, 0, real), {tokens, width},
            static_cast<std::int64_t>(vocabulary().begin), 0, [](const Tensor& t) { t.normal_(); });
}

Tensor VocabParallelEmbedding::forward(const Tensor& ids) {
  check(weight, type_, device_, name());
  return EmbeddingFunction::apply(tokens(ids, device_, name()), weight, this);
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  struct Kept final : torch::CustomClassHolder {
    engines::VocabularyCrossEntropy::Saved of_rows;
  };
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Tensor& targets,
                        VocabParallelCrossEntropy* m) {
    keep(ctx, m->engine_);
    ctx->save_for_backward({logits, targets});
    auto kept = c10::make_intrusive<Kept>();
    m->engine_->forward(logits.const_data_ptr(), tokens_of(targets), kept->of_rows);
    const double mean = kept->of_rows.mean();
    ctx->saved_data["rows"] = c10::IValue::make_capsule(std::move(kept));
    return at::scalar_tensor(mean, logits.options());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto engine = parts_of<engines::VocabularyCrossEntropy>(ctx)->engine;
    const auto kept = ctx->get_saved_variables();
    const auto rows = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["rows"].toCapsule());
    const Tensor dlogits = at::empty(kept[0].sizes(), kept[0].options());
    const auto counted = static_cast<double>(std::max<std::size_t>(rows->of_rows.counted, 1));
    engine->backward(kept[0].const_data_ptr(), tokens_of(kept[1]), rows->of_rows,
                     gradients[0].item<double>() / counted, dlogits.mutable_data_ptr());
    return {dlogits, Tensor(), Tensor()};
  }
};

VocabParallelCrossEntropy::VocabParallelCrossEntropy(parallel::Axis& axis, const std::string& name,
                                                     std::int64_t tokens, at::ScalarType type,
                                                     engines::CrossEntropyOptions options)
    : name_("cross entropy '" + name + "'"),
      type_(type),
      device_(tensors_of(axis)),
      engine_(std::make_shared<engines::VocabularyCrossEntropy>(
          axis, name, static_cast<std::size_t>(tokens), agreed_type(axis, type, name_), options)) {}

Tensor VocabParallelCrossEntropy::forward(const Tensor& logits, const Tensor& targets) {
  check(logits, static_cast<std::int64_t>(vocabulary().local), type_, device_, name_);
  const Tensor of_rows = tokens(targets, device_, name_);
  if (logits.size(0) != targets.numel()) {
    refuse(name_, fmt::format("as many targets as logits have rows, {}", logits.size(0)), device_,
           targets);
  }
  return CrossEntropyFunction::apply(logits.contiguous(), of_rows, this);
}

}  // namespace tutti::libtorch
