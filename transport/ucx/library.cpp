#include "transport/ucx/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "core/settings.h"

namespace tutti {
namespace {

// UCX takes some signals as soon as it is loaded (UCX_ERROR_SIGNALS and SIGHUP); they are given
// back at once.
class KeptSignals {
 public:
  KeptSignals() {
    for (std::size_t s = 1; s < kept_.size(); ++s) sigaction(int(s), nullptr, &kept_[s]);
  }
  ~KeptSignals() {
    for (std::size_t s = 1; s < kept_.size(); ++s) sigaction(int(s), &kept_[s], nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  std::array<struct sigaction, 32> kept_{};
};

struct Loaded {
  UcxLibrary library{};
  std::string missing;
};

// UCX replaces mmap(), munmap(), mremap() and more in the process, as soon as it is loaded, to see
// which memory is gone; its mremap() has lost an argument (1.13), so code that moves memory with
// MREMAP_FIXED gets an error. All memory that UCX sees here is mapped for it explicitly. Only the
// environment can tell it while it is being loaded.
class QuietEnvironment {
 public:
  QuietEnvironment() {
    for (std::size_t i = 0; i < kOptions.size(); ++i) {
      if (const char* const before = getenv(kOptions[i].first)) before_[i] = before;
      setenv(kOptions[i].first, kOptions[i].second, 1);
    }
  }
  ~QuietEnvironment() {
    for (std::size_t i = 0; i < kOptions.size(); ++i) {
      if (before_[i]) {
        setenv(kOptions[i].first, before_[i]->c_str(), 1);
      } else {
        unsetenv(kOptions[i].first);
      }
    }
  }
  QuietEnvironment(const QuietEnvironment&) = delete;
  QuietEnvironment& operator=(const QuietEnvironment&) = delete;

 private:
  static constexpr std::array<std::pair<const char*, const char*>, 4> kOptions{{
      {"UCX_MEM_EVENTS", "n"},
      {"UCX_MEM_MMAP_HOOK_MODE", "none"},
      {"UCX_MEM_MALLOC_HOOKS", "n"},
      {"UCX_HANDLE_ERRORS", "none"},
  }};
  std::array<std::optional<std::string>, kOptions.size()> before_;
};

Loaded load() {
  Loaded l;
  const KeptSignals kept;
  const QuietEnvironment quiet;
  void* const handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    l.missing = fmt::format("there is no UCX here ({})", dlerror());
    return l;
  }
  const auto find = [&](auto& function, const char* name) {
    // In libucp, or in one of those that it needs.
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) l.missing = fmt::format("the UCX here has no {}()", name);
  };
  UcxLibrary& u = l.library;
  find(u.config_read, "ucp_config_read");
  find(u.config_modify, "ucp_config_modify");
  find(u.config_release, "ucp_config_release");
  find(u.init_version, "ucp_init_version");
  find(u.cleanup, "ucp_cleanup");
  find(u.worker_create, "ucp_worker_create");
  find(u.worker_destroy, "ucp_worker_destroy");
  find(u.worker_get_address, "ucp_worker_get_address");
  find(u.worker_release_address, "ucp_worker_release_address");
  find(u.worker_get_efd, "ucp_worker_get_efd");
  find(u.worker_arm, "ucp_worker_arm");
  find(u.worker_progress, "ucp_worker_progress");
  find(u.set_am_recv_handler, "ucp_worker_set_am_recv_handler");
  find(u.ep_create, "ucp_ep_create");
  find(u.ep_print_info, "ucp_ep_print_info");
  find(u.ep_close_nbx, "ucp_ep_close_nbx");
  find(u.am_send_nbx, "ucp_am_send_nbx");
  find(u.am_recv_data_nbx, "ucp_am_recv_data_nbx");
  find(u.request_check_status, "ucp_request_check_status");
  find(u.request_free, "ucp_request_free");
  find(u.mem_map, "ucp_mem_map");
  find(u.mem_unmap, "ucp_mem_unmap");
  find(u.status_string, "ucs_status_string");
  find(u.version_string, "ucp_get_version_string");
  // It writes its log to standard output; what matters is in Tutti's errors.
  ucs_status_t (*set)(const char*, const char*) = nullptr;
  find(set, "ucs_global_opts_set_value");
  const std::string level = setting_text("TUTTI_LOG");
  if (set != nullptr && level != "debug") set("LOG_LEVEL", "fatal");
  return l;
}

const Loaded& loaded() {
  static const Loaded l = load();
  return l;
}

}  // namespace

const std::string& UcxLibrary::missing() { return loaded().missing; }

const UcxLibrary& UcxLibrary::get() {
  if (!missing().empty()) throw Error(ErrorCode::system, missing());
  return loaded().library;
}

void UcxLibrary::check(ucs_status_t status, const char* what) const {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::system, fmt::format("UCX failed at {}: {}", what, text(status)));
}

}  // namespace tutti
