#include "examples/train/estimate.h"

#include <fmt/format.h>

#include "bindings/torch/tensors.h"
#include "parallel/estimate/memory.h"
#include "parallel/estimate/traffic.h"

namespace train {
namespace {

namespace estimate = tutti::parallel::estimate;
using estimate::Divided;

estimate::Model model_of(const Shape& shape) {
  const auto width = static_cast<std::size_t>(shape.width);
  const auto tokens = static_cast<std::size_t>(shape.vocabulary);
  estimate::Model m{.name = "the model",
                    .width = width,
                    .vocabulary = tokens,
                    .blocks = static_cast<std::size_t>(shape.layers),
                    .heads = static_cast<std::size_t>(shape.heads),
                    .kv_heads = static_cast<std::size_t>(shape.heads),
                    .head_size = static_cast<std::size_t>(shape.width / shape.heads),
                    .tied = shape.tied};
  m.embedding = {.name = "embedding",
                 .parameters = {{"tokens", tokens, width, Divided::rows},
                                {"positions", static_cast<std::size_t>(shape.length), width}}};
  const auto norm = [&](const std::string& name) {
    return std::vector<estimate::ParameterShape>{{name + ".weight", width},
                                                 {name + ".bias", width}};
  };
  const auto column = [&](const std::string& name, std::size_t out) {
    return std::vector<estimate::ParameterShape>{{name + ".weight", out, width, Divided::rows},
                                                 {name + ".bias", out, 1, Divided::rows}};
  };
  const auto row = [&](const std::string& name, std::size_t in) {
    return std::vector<estimate::ParameterShape>{{name + ".weight", width, in, Divided::columns},
                                                 {name + ".bias", width}};
  };
  const auto add = [](estimate::Part& part, const std::vector<estimate::ParameterShape>& more) {
    part.parameters.insert(part.parameters.end(), more.begin(), more.end());
  };
  m.block.name = "block";
  for (const auto& more :
       {norm("norm1"), norm("norm2"), column("qkv", 3 * width), row("project", width)}) {
    add(m.block, more);
  }
  if (shape.experts > 0) {
    m.experts = static_cast<std::size_t>(shape.experts);
    m.top_k = static_cast<std::size_t>(shape.top_k);
    m.expert.name = "expert";
    add(m.block, {{"router", m.experts, width}});
  }
  estimate::Part& mlp = shape.experts > 0 ? m.expert : m.block;
  for (const auto& more : {column("up", 4 * width), row("down", 4 * width)}) add(mlp, more);
  m.block.pairs = shape.experts > 0 ? 1 : 2;
  const auto per_token = static_cast<double>(width);
  m.block.kept_whole = 4 * per_token;    // the inputs of both parts, before and after the norm
  m.block.kept_divided = 4 * per_token;  // q, k, v, what attention gives
  mlp.kept_divided += 8 * per_token;     // before the activation and after
  if (shape.experts > 0) mlp.kept_whole = per_token;
  m.block.kept_float32 = static_cast<double>(shape.heads);
  m.output.name = "output";
  for (const auto& more : {norm("norm"), column("logits", tokens)}) add(m.output, more);
  return m;
}

estimate::Mix mix_of(const Options& o) {
  estimate::Mix mix{.replicas = o.replicas,
                    .shards = o.dp / o.replicas,
                    .tensor = o.tp,
                    .pipeline = o.pp,
                    .sequence = o.sequence,
                    .recompute = o.recompute};
  switch (o.shard) {
    case Sharding::none:
      break;
    case Sharding::zero1:
      mix.stage = 1;
      break;
    case Sharding::zero2:
      mix.stage = 2;
      break;
    case Sharding::zero3:
    case Sharding::fsdp:
      mix.stage = 3;
  }
  if (o.shape.tied) mix.layout = tutti::parallel::Layout::by_parameter;
  mix.precision =
      tutti::parallel::Precision::of(tutti::libtorch::data_type(o.shape.type, "the model"));
  mix.length = static_cast<std::size_t>(o.shape.length);
  mix.micro_batches = static_cast<std::size_t>(o.micro_batches);
  mix.context = o.cp;
  mix.heads = o.cp_heads;
  mix.experts = o.ep;
  mix.balance = o.balance > 0;
  mix.sequences = static_cast<std::size_t>(o.sequences());
  return mix;
}

}  // namespace

std::string estimate_line(const Options& options) {
  if (options.alone) return "";
  const estimate::Mix mix = mix_of(options);
  const estimate::Model model = model_of(options.shape);
  const auto megabytes = [](double bytes) { return bytes / 1e6; };
  const estimate::MemoryByKind memory = estimate::memory(mix, model, 0);
  return fmt::format(
      "estimate: rank 0 sends {:.2f} MB in a step; of its memory, {:.2f} MB are parameters, "
      "gradients and the optimizer's state, {:.2f} MB units in use, {:.2f} MB activations",
      megabytes(static_cast<double>(estimate::traffic(mix, model, 0).total().sent)),
      megabytes(memory.state()), megabytes(memory.in_use),
      megabytes(memory.activations + memory.logits));
}

}  // namespace train
