#include "parallel/device.h"

#include <fmt/format.h>

#include <cstring>

#include "core/combine.h"
#include "core/convert.h"
#include "core/error.h"
#include "core/host_memory.h"
#include "core/memory.h"
#include "parallel/layer_math.h"
#include "parallel/optimizer/kernels.h"

namespace tutti::parallel {

LayerMath* Device::layer_math() { return &host_layer_math(); }

std::byte* Device::allocate(std::size_t bytes) {
  return static_cast<std::byte*>(tutti::allocate(bytes));
}

void Device::release(std::byte* memory, const Event&) noexcept { tutti::deallocate(memory); }

void Device::check_memory(std::string_view what, std::span<const Given> given) const {
  for (const Given& g : given) {
    if (g.count == 0) continue;
    if (g.memory != nullptr) {
      check_owner(what, g);
    } else if (!g.may_be_null) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: {} is null, but has {} elements", what, g.name, g.count));
    }
  }
}

Device::Available Device::available() const {
  const HostMemory memory = host_memory();
  return {.bytes = memory.available, .domain = memory.domain};
}

void Device::zero(void* memory, std::size_t bytes) {
  if (bytes > 0) std::memset(memory, 0, bytes);
}

void Device::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                       std::size_t bytes, std::size_t rows) {
  for (std::size_t i = 0; i < rows && bytes > 0; ++i) {
    std::memcpy(static_cast<std::byte*>(to) + i * to_step,
                static_cast<const std::byte*>(from) + i * from_step, bytes);
  }
}

void Device::read(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::convert(DataType from, const void* in, DataType to, void* out, std::size_t count) {
  tutti::convert(in, from, out, to, count);
}

void Device::add(DataType type, void* to, const void* values, unsigned divisor, const void* before,
                 std::size_t count) {
  Source sources[2] = {{.data = values}, {.data = before}};
  if (divisor > 1) sources[0].prescale = Prescale::divide;
  combine(type, ReduceKind::sum, {&to, 1}, {sources, before != nullptr ? 2u : 1u}, count,
          {.divisor = divisor > 1 ? divisor : 1});
}

double Device::sum_of_squares(DataType type, std::span<const Values> of) {
  double sum = 0;
  for (const Values& values : of) sum += kernels::sum_of_squares(type, values.data, values.count);
  return sum;
}

void Device::update(const Optimizer& optimizer, const Optimizer::Slice& slice) {
  optimizer.update(slice);
}

Device& host_device() {
  static Device host;
  return host;
}

LayerMath& layer_math_of(Device& device, std::string_view what) {
  if (LayerMath* const math = device.layer_math()) return *math;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{}: this axis is on {}, which has no arithmetic of layers; make it on "
                          "the host's memory, or use a TorchGpu (docs/parallel.md)",
                          what, device.name()));
}

void refuse_gpu(const Device& device, std::string_view what) {
  if (!device.is_gpu()) return;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{}: it works on the host's memory alone, and this axis is on {} "
                          "(docs/parallel.md)",
                          what, device.name()));
}

}  // namespace tutti::parallel
