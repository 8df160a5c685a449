#include "bindings/torch/tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tutti::libtorch {
namespace {

struct Type {
  DataType ours;
  at::ScalarType torchs;
};
constexpr Type kTypes[]{{DataType::float32, at::kFloat}, {DataType::float64, at::kDouble},
                        {DataType::float16, at::kHalf},  {DataType::bfloat16, at::kBFloat16},
                        {DataType::int64, at::kLong},    {DataType::int32, at::kInt},
                        {DataType::uint8, at::kByte},    {DataType::int8, at::kChar}};

void check_parameter(const NamedTensor& p, c10::Device device) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, fmt::format("the parameter {}: {}", p.name, why));
  };
  if (p.tensor.device() != device) {
    refuse(fmt::format("it is on {}, not {}", describe(p.tensor.device()), describe(device)));
  }
  if (p.tensor.layout() != at::kStrided) refuse("it is not dense");
  if (!p.tensor.is_contiguous()) refuse(describe(p.tensor) + " is not contiguous");
  if (!is_float(data_type(p.tensor.scalar_type(), "the parameter " + p.name))) {
    refuse(describe(p.tensor) + " is trained, but no floating-point number");
  }
}

void append(std::vector<NamedTensor>& to, const std::string& name, const Tensor& tensor) {
  const bool known =
      std::ranges::any_of(to, [&](const NamedTensor& t) { return t.tensor.is_same(tensor); });
  if (!known) to.push_back({name, tensor});
}

}  // namespace

void check_version() {
  const std::uint64_t loaded = aoti_torch_abi_version();
  if (loaded == TORCH_ABI_VERSION) return;
  const auto text = [](std::uint64_t version) {
    return fmt::format("{}.{}.{}", version >> 56, version >> 48 & 0xff, version >> 40 & 0xff);
  };
  throw Error(ErrorCode::invalid_usage,
              fmt::format("libtutti_torch.so was built for PyTorch {}, but this process has "
                          "loaded PyTorch {}: build Tutti with -DTUTTI_TORCH=<that package's "
                          "folder>, or run with the other library path",
                          text(TORCH_ABI_VERSION), text(loaded)));
}

std::vector<NamedTensor> trained_parameters(const torch::nn::Module& module, c10::Device device) {
  check_version();
  std::vector<NamedTensor> result;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad()) append(result, item.key(), item.value());
  }
  for (const NamedTensor& p : result) check_parameter(p, device);
  return result;
}

std::vector<NamedTensor> other_tensors(const torch::nn::Module& module) {
  std::vector<NamedTensor> result = frozen_parameters(module);
  for (const NamedTensor& buffer : buffers(module)) append(result, buffer.name, buffer.tensor);
  return result;
}

std::vector<NamedTensor> buffers(const torch::nn::Module& module) {
  std::vector<NamedTensor> result;
  for (const auto& item : module.named_buffers()) append(result, item.key(), item.value());
  return result;
}

std::vector<NamedTensor> frozen_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> result;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) append(result, item.key(), item.value());
  }
  return result;
}

void refuse_unfrozen(const std::vector<NamedTensor>& frozen) {
  for (const NamedTensor& p : frozen) {
    if (!p.tensor.requires_grad()) continue;
    throw Error(ErrorCode::invalid_usage,
                fmt::format("the parameter {} was not trained when its module was wrapped, and is "
                            "trained now: each rank would train it by itself; wrap the module anew",
                            p.name));
  }
}

DataType data_type(at::ScalarType type, const std::string& what) {
  const auto found = std::ranges::find(kTypes, type, &Type::torchs);
  if (found != std::end(kTypes)) return found->ours;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{} has the type {}, which Tutti does not carry", what, c10::toString(type)));
}

at::ScalarType scalar_type(DataType type) {
  const auto found = std::ranges::find(kTypes, type, &Type::ours);
  if (found != std::end(kTypes)) return found->torchs;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("no tensors of the type {} are handed to libtorch", name(type)));
}

std::string describe(c10::Device device) { return device.is_cpu() ? "the CPU" : device.str(); }

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  const auto type = std::ranges::find(kTypes, tensor.scalar_type(), &Type::torchs);
  return fmt::format(
      "{} [{}]", type != std::end(kTypes) ? name(type->ours) : c10::toString(tensor.scalar_type()),
      fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
}

// With its device, which torch else would ask the pointer for.
Tensor tensor_over(void* memory, at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
  return at::for_blob(memory, sizes)
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

Tensor without_elements(at::IntArrayRef sizes, at::ScalarType type, const std::string& why,
                        c10::Device device) {
  const auto bytes =
      c10::multiply_integers(sizes) * static_cast<std::int64_t>(c10::elementSize(type));
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, device),
                             nullptr, false);
  Tensor result = at::empty({0}, at::TensorOptions().dtype(type).device(device));
  result.set_(storage, 0, sizes, c10::contiguous_strides(sizes));
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(why);
  return result;
}

Tensor tensor_over(std::shared_ptr<void> memory, at::IntArrayRef sizes, at::ScalarType type,
                   c10::Device device) {
  void* const data = memory.get();
  return at::for_blob(data, sizes)
      .deleter([kept = std::move(memory)](void*) {})
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

std::string what_of(const std::exception& e) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&e);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : e.what();
}

void check_is_here(const Tensor& weight, const std::string& layer) {
  try {
    (void)weight.const_data_ptr();  // throws for what without_elements() makes
  } catch (const c10::Error& e) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("{} has no parameters now: {}", layer, what_of(e)));
  }
}

void check_gradient(const Tensor& gradient, const std::string& parameter, c10::Device device) {
  if (gradient.layout() == at::kStrided && gradient.device() == device) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the gradient of {} is sparse, or not on {}; only dense ones are "
                          "averaged",
                          parameter, describe(device)));
}

}  // namespace tutti::libtorch
