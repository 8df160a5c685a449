#include "parallel/gpu.h"

#include <fmt/format.h>

#include <iterator>
#include <numeric>

#include "core/error.h"
#include "device/gpus.h"
#include "parallel/agreement.h"
#include "parallel/gpu_kernels.h"

namespace tutti::parallel {
namespace {

std::byte* bytes_at(void* memory) { return static_cast<std::byte*>(memory); }
const std::byte* bytes_at(const void* memory) { return static_cast<const std::byte*>(memory); }

}  // namespace

Gpu::Gpu(int ordinal) : Gpu(cuda_gpus(), ordinal, true) {}
Gpu::Gpu(const Gpus& gpus, int ordinal) : Gpu(gpus, ordinal, false) {}

Gpu::Gpu(const Gpus& gpus, int ordinal, bool computes)
    : owner_(gpus.owner),
      ordinal_(ordinal),
      name_(fmt::format("GPU {}", ordinal)),
      gpu_(open_for_engine(gpus, ordinal)),
      kernels_(computes ? &gpu_kernels() : nullptr) {
  if (computes) gpu_->as_current([&] { kernels_->load(); });
}

Gpu::~Gpu() {
  if (sums_ != nullptr) gpu_->deallocate(reinterpret_cast<std::byte*>(sums_));
}

bool Gpu::owns(const void* memory) const { return memory != nullptr && owner_(memory) >= 0; }

void Gpu::check_owner(std::string_view what, const Given& given) const {
  const int owner = owner_(given.memory);
  if (owner == ordinal_) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: {} is {}, and the axis is on {}: give it memory of that GPU", what,
                  given.name, owner < 0 ? "host memory" : fmt::format("on GPU {}", owner), name_));
}

bool Gpu::converts(DataType from, DataType to) const {
  const auto is_narrow = [](DataType t) {
    return t == DataType::float32 || t == DataType::bfloat16 || t == DataType::float16;
  };
  return computes() && (from == to || (is_narrow(from) && is_narrow(to)));
}

std::byte* Gpu::allocate(std::size_t bytes) { return gpu_->allocate(bytes); }

void Gpu::release(std::byte* memory, const Event& last_use) noexcept {
  try {
    synchronize(last_use);
  } catch (const Error&) {  // NOLINT: the GPU does nothing any more
  }
  gpu_->deallocate(memory);
}

Device::Available Gpu::available() const {
  const device::EngineDevice::Identity identity = gpu_->identity();
  return {.bytes = gpu_->free_bytes(), .domain = mix(identity[0], identity[1])};
}

std::shared_ptr<void> Gpu::make_stream() { return gpu_->make_stream(); }
Device::Event Gpu::record(Stream stream) { return gpu_->record(stream); }
void Gpu::order(const Event& event, Stream stream) { gpu_->order(event, stream); }
bool Gpu::is_over(const Event& event) { return gpu_->is_over(event); }
void Gpu::synchronize(const Event& event) { gpu_->synchronize(event); }

void Gpu::zero(void* memory, std::size_t bytes) { gpu_->zero(bytes_at(memory), bytes, current()); }

void Gpu::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (owns(from)) {
    gpu_->copy(bytes_at(to), bytes_at(from), bytes, current());
  } else {
    gpu_->overwrite(bytes_at(to), {bytes_at(from), bytes}, current());
  }
}

void Gpu::copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                    std::size_t bytes, std::size_t rows) {
  if (kernels_ != nullptr) {
    gpu_->as_current(
        [&] { kernels_->copy_rows(to, to_step, from, from_step, bytes, rows, current()); });
    return;
  }
  for (std::size_t i = 0; i < rows; ++i) {
    copy(bytes_at(to) + i * to_step, bytes_at(from) + i * from_step, bytes);
  }
}

void Gpu::read(void* to, const void* from, std::size_t bytes) {
  gpu_->read(bytes_at(to), bytes_at(from), bytes, current());
}

void Gpu::check_computes(std::string_view what) const {
  if (computes()) return;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{} on {}: there are no kernels for it here", what, name_));
}

void Gpu::convert(DataType from, const void* in, DataType to, void* out, std::size_t count) {
  check_computes("a conversion");
  if (!converts(from, to)) {
    throw Error(ErrorCode::invalid_usage, fmt::format("a conversion from {} to {} on {}",
                                                      tutti::name(from), tutti::name(to), name_));
  }
  gpu_->as_current([&] { kernels_->convert(from, in, to, out, count, current()); });
}

void Gpu::add(DataType type, void* to, const void* values, unsigned divisor, const void* before,
              std::size_t count) {
  check_computes("a sum");
  gpu_->as_current([&] { kernels_->add(type, to, values, divisor, before, count, current()); });
}

double Gpu::sum_of_squares(DataType type, std::span<const Values> of) {
  check_computes("a norm");
  double sums[GpuKernels::kPartialSums] = {};
  if (sums_ == nullptr) sums_ = reinterpret_cast<double*>(gpu_->allocate(sizeof sums));
  zero(sums_, sizeof sums);
  gpu_->as_current([&] {
    for (const Values& v : of) {
      kernels_->add_squares(type, v.data, v.count, sums_, current());
    }
  });
  read(sums, sums_, sizeof sums);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

void Gpu::update(const Optimizer& optimizer, const Optimizer::Slice& slice) {
  const auto* const adamw = dynamic_cast<const AdamW*>(&optimizer);
  const auto* const sgd = dynamic_cast<const Sgd*>(&optimizer);
  if (!computes() || (adamw == nullptr && sgd == nullptr)) {
    return optimizer.update_on_gpu(slice, current());
  }
  gpu_->as_current([&] {
    if (adamw != nullptr) {
      kernels_->adamw(slice, adamw->constants(slice), current());
    } else {
      kernels_->sgd(slice, sgd->constants(slice), current());
    }
  });
}

}  // namespace tutti::parallel
