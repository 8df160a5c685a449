// The Python module: a function that makes a backend, and the version of PyTorch it was built for.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "backend.h"

namespace {

c10::intrusive_ptr<::c10d::Backend> create(const tutti::pytorch::StorePointer& store, int rank,
                                           int size, std::chrono::milliseconds timeout,
                                           [[maybe_unused]] bool enable_reconfigure,
                                           const std::string& name,
                                           const std::vector<std::uint64_t>& global_ranks) {
  auto options = c10::make_intrusive<::c10d::Backend::Options>("tutti", timeout);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  options->enable_reconfigure = enable_reconfigure;
#endif
  options->group_name = name;
  options->global_ranks_in_group = global_ranks;
  return c10::make_intrusive<tutti::pytorch::Backend>(store, rank, size, std::move(options));
}

}  // namespace

PYBIND11_MODULE(_c10d, module) {
  module.attr("torch_version") = TORCH_VERSION;
  module.def("create", &create);
}
