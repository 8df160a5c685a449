#include "parallel/estimate/mix.h"

#include <fmt/format.h>

#include "core/error.h"

namespace tutti::parallel::estimate {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

void add_parameters(Unit& unit, const Part& part, const std::string& prefix, std::size_t tensor) {
  for (const ParameterShape& p : part.parameters) {
    const std::size_t count = p.local_count(tensor);
    unit.parameters.push_back({.name = prefix + p.name,
                               .count = count,
                               .rows = p.columns == 1 ? count : p.local_rows(tensor)});
  }
}

Unit unit_of(const Part& part, std::size_t tensor) {
  Unit unit{.name = part.name, .parameters = {}};
  add_parameters(unit, part, "", tensor);
  return unit;
}

void add_experts(Unit& unit, const Model& model, std::size_t count) {
  for (std::size_t e = 0; e < count; ++e) {
    add_parameters(unit, model.expert, fmt::format("expert {}.", e), 1);
  }
}

}  // namespace

Policy Mix::policy() const {
  Policy policy = stage == 1   ? Policy::zero1(precision)
                  : stage == 2 ? Policy::zero2(precision)
                               : Policy::zero3(precision);
  policy.layout = layout;
  return policy;
}

std::string Mix::text() const {
  std::string text;
  const auto add = [&](const std::string& name, int degree) {
    if (degree > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, degree);
  };
  add("PP", pipeline);
  if (stage == 0) {
    add("DDP", data());
  } else {
    add("replicas", replicas);
    add(stage == 3 ? "FSDP" : fmt::format("ZeRO-{}", stage), shards);
  }
  if (context > 1) text += fmt::format(" with CP {}", context);
  if (heads > 1) text += fmt::format(" ({} by heads)", heads);
  if (experts > 1) text += fmt::format(" with EP {}", experts);
  add(sequence ? "TP+SP" : "TP", tensor);
  return text.empty() ? "one rank" : text;
}

void check(const Mix& mix, const Model& model) {
  if (mix.replicas < 1 || mix.shards < 1 || mix.tensor < 1 || mix.pipeline < 1 || mix.context < 1) {
    refuse("a mix has at least one rank along each dimension");
  }
  if (mix.stage < 0 || mix.stage > 3) refuse(fmt::format("there is no ZeRO stage {}", mix.stage));
  if (mix.sequences == 0 || mix.length == 0 || mix.micro_batches == 0) {
    refuse("a step has at least one micro-batch of one sequence of one token");
  }
  if (mix.data() % mix.context != 0) {
    refuse(fmt::format("{} ranks that share a sequence do not divide the {} data-parallel ranks",
                       mix.context, mix.data()));
  }
  if (mix.heads < 1 || mix.context % mix.heads != 0) {
    refuse(
        fmt::format("{} ranks that exchange rows for heads are no part of the {} that share a "
                    "sequence",
                    mix.heads, mix.context));
  }
  if (mix.ring() > 1 && mix.length % (2 * static_cast<std::size_t>(mix.context)) != 0) {
    refuse(
        fmt::format("{} ranks that share a sequence do not divide its {} tokens into two chunks "
                    "for each",
                    mix.context, mix.length));
  }
  if (mix.length % static_cast<std::size_t>(mix.context) != 0) {
    refuse(
        fmt::format("{} ranks do not divide the {} tokens of a sequence", mix.context, mix.length));
  }
  if (model.heads > 0 && model.heads < static_cast<std::size_t>(mix.heads * mix.tensor)) {
    refuse(fmt::format("{} heads are too few for {} ranks that exchange rows for heads",
                       model.heads / static_cast<std::size_t>(mix.tensor), mix.heads));
  }
  if (mix.experts < 1 || mix.shards % mix.experts != 0 ||
      mix.data() % (mix.experts * mix.context) != 0) {
    refuse(
        fmt::format("{} ranks that divide experts, beside {} that share a sequence, do not "
                    "divide the {} ranks of shards",
                    mix.experts, mix.context, mix.shards));
  }
  if (mix.experts > 1 &&
      (model.experts == 0 || model.experts % static_cast<std::size_t>(mix.experts) != 0)) {
    refuse(fmt::format("{} ranks do not divide the {} experts of {}", mix.experts, model.experts,
                       model.name));
  }
  if (model.experts > 0 && mix.tensor > 1) {
    refuse("tensor-parallel ranks do not divide experts");
  }
  const auto tensor = static_cast<std::size_t>(mix.tensor);
  const auto divides = [&](std::size_t size, const char* what) {
    if (size % tensor != 0) {
      refuse(fmt::format("{} tensor-parallel ranks do not divide the {} {} of {}", tensor, size,
                         what, model.name));
    }
  };
  if (model.heads > 0) divides(model.heads, "heads");
  if (model.kv_heads > 0) divides(model.kv_heads, "key and value heads");
  for (const ParameterShape& p : model.block.parameters) {
    if (p.divided == Divided::rows) divides(p.rows, ("rows of '" + p.name + "'").c_str());
    if (p.divided == Divided::columns) divides(p.columns, ("columns of '" + p.name + "'").c_str());
  }
  if (mix.sequence) divides(mix.rows(), "tokens of a micro-batch");
  if (static_cast<std::size_t>(mix.pipeline) > model.blocks) {
    refuse(fmt::format("{} stages of a pipeline are more than the {} blocks of {}", mix.pipeline,
                       model.blocks, model.name));
  }
}

std::size_t blocks_of(const Mix& mix, const Model& model, int stage) {
  const auto stages = static_cast<std::size_t>(mix.pipeline);
  return model.blocks / stages + (static_cast<std::size_t>(stage) < model.blocks % stages ? 1 : 0);
}

std::vector<HeldUnit> units_of(const Mix& mix, const Model& model, int stage) {
  const auto tensor = static_cast<std::size_t>(mix.tensor);
  const bool first = stage == 0, last = stage == mix.pipeline - 1;
  std::vector<HeldUnit> units;
  if (first || (last && model.tied)) {
    units.push_back({unit_of(model.embedding, tensor), 1, first && last && model.tied ? 2 : 1});
  }
  Unit block = unit_of(model.block, tensor);
  if (mix.experts == 1) add_experts(block, model, model.experts);
  units.push_back({std::move(block), blocks_of(mix, model, stage), 1});
  if (last) units.push_back({unit_of(model.output, tensor), 1, 1});
  return units;
}

std::vector<HeldUnit> expert_units_of(const Mix& mix, const Model& model, int stage) {
  if (mix.experts == 1) return {};
  Unit own{.name = model.expert.name, .parameters = {}};
  add_experts(own, model, model.experts / static_cast<std::size_t>(mix.experts));
  return {{std::move(own), blocks_of(mix, model, stage), 1}};
}

Mix of_experts(Mix mix) {
  mix.shards /= mix.experts;
  mix.experts = 1;
  return mix;
}

}  // namespace tutti::parallel::estimate
