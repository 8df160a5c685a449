#include "parallel/tensor/pairs.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace tutti::parallel::tensor {
namespace {

/// A tensor's slices, one after the other, and the tensor; or the other way round.
void rearrange(Device& device, const Extent& whole, std::size_t ranks, std::size_t element,
               std::byte* slices, std::byte* tensor, bool to_slices) {
  const std::size_t run = whole.length / ranks * whole.inner * element;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::byte* const sliced = slices + r * whole.outer * run;
    std::byte* const in_tensor = tensor + r * run;
    if (to_slices) {
      device.copy_rows(sliced, run, in_tensor, ranks * run, run, whole.outer);
    } else {
      device.copy_rows(in_tensor, ranks * run, sliced, run, run, whole.outer);
    }
  }
}

}  // namespace

std::size_t share_of(const Axis& axis, std::string_view what, std::string_view dimension,
                     std::size_t length) {
  const auto ranks = static_cast<std::size_t>(axis.size());
  if (length % ranks == 0) return length / ranks;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} {} cannot be divided among {} ranks; make them a multiple of it",
                          what, length, dimension, ranks));
}

Mapper::Mapper(Axis& axis, std::string what)
    : axis_(axis),
      what_(std::move(what)),
      label_(axis.new_label(what_)),
      memory_(MemoryPool::Reuse::no, axis.device()) {}

std::byte* Mapper::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) {
    scratch_.reset();  // before the next one is there
    scratch_ = memory_.zeros(bytes);
  }
  return scratch_.data();
}

void Mapper::run(Collective collective, const void* in, void* out, std::size_t count,
                 DataType type) {
  try {
    Call call = call_of(collective, in, out, count, type);
    call.label = label_;
    axis_.run(call, what_);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}, {}: {}", what_, name(collective), error.what()),
                error.rank());
  }
}

void Mapper::run(Operation operation, const void* in, void* out, const Extent& whole,
                 DataType type) {
  const std::size_t element = size_of(type);
  if (operation == Operation::none) {
    if (in != out) axis_.device().copy(out, in, whole.count() * element);
    return;
  }
  if (operation == Operation::all_reduce) {
    return run(Collective::all_reduce, in, out, whole.count(), type);
  }
  const std::size_t share = share_of(axis_, what_, "elements of a dimension", whole.length);
  if (operation == Operation::all_gather) return gather(in, out, whole, type);
  if (operation == Operation::reduce_scatter) return reduce_scatter(in, out, whole, type);
  const std::size_t run = share * whole.inner * element;
  const auto ranks = static_cast<std::size_t>(axis_.size());
  const auto rank = static_cast<std::size_t>(axis_.rank());
  axis_.device().copy_rows(out, run, static_cast<const std::byte*>(in) + rank * run, ranks * run,
                           run, whole.outer);
}

void Mapper::gather(const void* in, void* out, const Extent& whole, DataType type) {
  const auto ranks = static_cast<std::size_t>(axis_.size());
  const std::size_t share = whole.count() / ranks;
  if (whole.outer == 1 || ranks == 1) return run(Collective::all_gather, in, out, share, type);
  std::byte* const slices = scratch(whole.count() * size_of(type));
  run(Collective::all_gather, in, slices, share, type);
  rearrange(axis_.device(), whole, ranks, size_of(type), slices, static_cast<std::byte*>(out),
            false);
}

void Mapper::reduce_scatter(const void* in, void* out, const Extent& whole, DataType type) {
  const auto ranks = static_cast<std::size_t>(axis_.size());
  const std::size_t share = whole.count() / ranks;
  if (whole.outer == 1 || ranks == 1) return run(Collective::reduce_scatter, in, out, share, type);
  std::byte* const slices = scratch(whole.count() * size_of(type));
  // It is only read from.
  rearrange(axis_.device(), whole, ranks, size_of(type), slices,
            const_cast<std::byte*>(static_cast<const std::byte*>(in)), true);
  run(Collective::reduce_scatter, slices, out, share, type);
}

}  // namespace tutti::parallel::tensor
