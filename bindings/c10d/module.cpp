// What Python calls: tutti/torch/module.py opens the library by ctypes and calls these functions.
// So the library serves every version of Python; only PyTorch's version is built in.
#include <Python.h>
#include <torch/version.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "backend.h"
#include "python.h"

/// The version of PyTorch that the library is built for.
TUTTI_C10D_EXPORT const char* tutti_c10d_torch_version() { return TORCH_VERSION; }

/// `ident` of threading.main_thread(), on which Ctrl-C arrives.
TUTTI_C10D_EXPORT void tutti_c10d_set_main_thread(unsigned long ident) {
  tutti::pytorch::set_main_thread(ident);
}

/// Makes a backend, and hands it over in the process group that is registered as `place`. The ranks
/// meet in the store of that group. `invariant`: 0 or 1; -1: as TUTTI_INVARIANT says. A failure is
/// raised in Python; the caller holds Python's lock.
TUTTI_C10D_EXPORT void tutti_c10d_create(const char* place, int rank, int size,
                                         std::int64_t timeout_ms,
                                         [[maybe_unused]] bool enable_reconfigure, const char* name,
                                         const std::uint64_t* global_ranks, std::size_t count,
                                         int invariant) {
  try {
    const auto group = ::c10d::resolve_process_group(place);
    auto options = c10::make_intrusive<::c10d::Backend::Options>(
        "tutti", std::chrono::milliseconds(timeout_ms));
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    options->enable_reconfigure = enable_reconfigure;
#endif
    options->group_name = name;
    options->global_ranks_in_group.assign(global_ranks, global_ranks + count);
    group->setBackend(c10::DeviceType::CPU, ::c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<tutti::pytorch::Backend>(
                          group->getStore(), rank, size, std::move(options),
                          invariant < 0 ? std::nullopt : std::optional(invariant != 0)));
  } catch (...) {
    tutti::pytorch::raise_in_python();
  }
}

/// Has the backend of a registered process group compress its sums, or not any more. What
/// fails is raised in Python.
TUTTI_C10D_EXPORT void tutti_c10d_compress(const char* group, bool compressed) {
  try {
    const auto backend = ::c10d::resolve_process_group(group)->getBackend(c10::DeviceType::CPU);
    auto* const ours = dynamic_cast<tutti::pytorch::Backend*>(backend.get());
    TORCH_CHECK(ours != nullptr, "compress: the group's backend for CPU tensors is ",
                backend->getBackendName(), ", not tutti");
    ours->compress(compressed);
  } catch (...) {
    tutti::pytorch::raise_in_python();
  }
}
