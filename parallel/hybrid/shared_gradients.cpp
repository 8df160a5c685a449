#include "parallel/hybrid/shared_gradients.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/gradient_norm.h"

namespace tutti::parallel {
namespace {

bool has_copies(const SharedParameter& p) { return p.copies != Copies::none; }
std::string_view name(Copies copies) {
  switch (copies) {
    case Copies::none:
      return "none";
    case Copies::equal:
      return "equal";
    case Copies::partial:
      return "partial";
  }
  return "?";
}
bool is_tied(const SharedParameter& p) { return p.tied; }

Device& device_of(const SharedAxes& axes) {
  const Axis* const axis = axes.tensor != nullptr ? axes.tensor : axes.ends;
  return axis == nullptr ? host_device() : axis->device();
}

}  // namespace

PipelineEnds::PipelineEnds(CommunicatorAxis& pipeline, int first, int last) {
  if (last < 0) last = pipeline.size() - 1;
  const int rank = pipeline.rank();
  const bool is_end = rank == first || rank == last;
  // The first stage's rank becomes 0.
  pair_ = pipeline.communicator().split(is_end ? 0 : -1, rank == first ? 0 : rank + 1);
  if (!is_end || first == last) return;
  axis_.emplace(pair_, AxisName{"of the pipeline's ends",
                                {pipeline.world_rank(first), pipeline.world_rank(last)}});
  axis_->use(pipeline.device());
}

SharedGradients::SharedGradients(const SharedAxes& axes, std::vector<SharedParameter> parameters)
    : axes_(axes),
      parameters_(std::move(parameters)),
      memory_(MemoryPool::Reuse::yes, device_of(axes)) {
  std::vector<std::string> tensor, ends;
  for (const SharedParameter& p : parameters_) {
    const std::string line = fmt::format("{}, copies {}, tied {}", p.name, name(p.copies), p.tied);
    tensor.push_back(line);
    if (p.tied) ends.push_back(line);
  }
  if (axes_.tensor != nullptr) {
    agree(*axes_.tensor, "what tensor-parallel ranks have", tensor);
    tensor_label_ = axes_.tensor->new_label("shared gradients");
  }
  if (axes_.ends != nullptr) {
    agree(*axes_.ends, "what the first and the last stage share", ends);
    ends_label_ = axes_.ends->new_label("shared gradients");
  }
  if (axes_.tensor != nullptr && axes_.ends != nullptr &&
      &axes_.tensor->device() != &axes_.ends->device()) {
    throw Error(
        ErrorCode::invalid_argument,
        "shared gradients: the tensor axis and the pipeline's ends are on different devices");
  }
}

bool SharedGradients::in_norm(std::size_t i) const {
  const SharedParameter& p = parameters_.at(i);
  if (p.copies != Copies::none && axes_.tensor != nullptr && axes_.tensor->rank() > 0) return false;
  return !p.tied || axes_.ends == nullptr || axes_.ends->rank() == 0;
}

void SharedGradients::check(std::span<const Run> runs) const {
  if (runs.size() != parameters_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("shared gradients: {} runs of elements for {} parameters", runs.size(),
                            parameters_.size()));
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].data == nullptr && runs[i].count > 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("shared gradients: parameter '{}' has {} elements and no memory; a "
                              "sharded engine has gradients between finish_backward() and step()",
                              parameters_[i].name, runs[i].count));
    }
    memory_.device().check_memory("shared gradients",
                                  {{parameters_[i].name, runs[i].data, runs[i].count}});
  }
}

template <class Chosen>
void SharedGradients::check_elements(Axis& axis, std::span<const Run> runs,
                                     const Chosen& chosen) const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!chosen(parameters_[i])) continue;
    lines.push_back(fmt::format("{}: {} elements from {} on, {}", parameters_[i].name,
                                runs[i].count, runs[i].begin, name(runs[i].type)));
  }
  agree(axis, "what ranks have of parameters with copies", lines);
}

/// One collective for all that are chosen, of each type: most of them are small.
template <class Chosen>
void SharedGradients::together(Axis& axis, std::span<const Run> runs, Collective collective,
                               const char* what, const Chosen& chosen) {
  std::vector<bool> done(runs.size());
  for (std::size_t first = 0; first < runs.size(); ++first) {
    if (done[first] || !chosen(parameters_[first])) continue;
    const DataType type = runs[first].type;
    std::vector<const Run*> in_it;
    std::size_t count = 0;
    for (std::size_t i = first; i < runs.size(); ++i) {
      if (runs[i].type != type || !chosen(parameters_[i])) continue;
      done[i] = true;
      in_it.push_back(&runs[i]);
      count += runs[i].count;
    }
    Device& device = memory_.device();
    const Buffer all = memory_.allocate(count * size_of(type));
    std::byte* at = all.data();
    for (const Run* run : in_it) {
      device.copy(at, run->data, run->count * size_of(type));
      at += run->count * size_of(type);
    }
    try {
      Call call = call_of(collective, all.data(), all.data(), count, type);
      call.label = &axis == axes_.tensor ? tensor_label_ : ends_label_;
      axis.run(call, what);
    } catch (const Error& e) {
      throw Error(e.code(),
                  fmt::format("{} (from '{}' on): {}", what, parameters_[first].name, e.what()),
                  e.rank());
    }
    const std::byte* from = all.data();
    for (const Run* run : in_it) {
      const std::size_t bytes = run->count * size_of(type);
      device.copy(run->data, from, bytes);
      from += bytes;
    }
  }
}

void SharedGradients::begin(std::span<const Run> values) {
  check(values);
  if (axes_.tensor != nullptr) {
    check_elements(*axes_.tensor, values, has_copies);
    together(*axes_.tensor, values, Collective::broadcast, "the tensor axis' copies of parameters",
             has_copies);
  }
  if (axes_.ends != nullptr) {
    check_elements(*axes_.ends, values, is_tied);
    together(*axes_.ends, values, Collective::broadcast, "the tied parameters of both stages",
             is_tied);
  }
}

void SharedGradients::reduce(std::span<const Run> gradients) {
  check(gradients);
  if (axes_.tensor != nullptr) {
    together(*axes_.tensor, gradients, Collective::all_reduce,
             "the gradients of parameters that are whole inside tensor parallelism",
             [](const SharedParameter& p) { return p.copies == Copies::partial; });
  }
  if (axes_.ends != nullptr) {
    together(*axes_.ends, gradients, Collective::all_reduce,
             "the gradients of tied parameters of both stages", is_tied);
  }
}

double SharedGradients::norm(std::span<const Run> gradients, std::span<Axis* const> axes) const {
  check(gradients);
  // A stage between the ends, alone in tensor parallelism, has neither of its axes.
  const bool has_axis = axes_.tensor != nullptr || axes_.ends != nullptr;
  Device& device = has_axis || axes.empty() ? memory_.device() : axes.front()->device();
  if (!device.computes()) {  // on all ranks, also those that count no parameter
    throw Error(ErrorCode::invalid_usage,
                fmt::format("shared gradients: a norm on {}: there are no kernels for it here",
                            device.name()));
  }
  double squares = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Run& run = gradients[i];
    const Device::Values values{run.data, run.count};
    if (in_norm(i)) squares += device.sum_of_squares(run.type, {&values, 1});
  }
  return gradient_norm(squares, axes);
}

}  // namespace tutti::parallel
