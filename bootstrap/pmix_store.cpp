// See pmix_store.h. libpmix waits without a deadline, so its calls run on a thread of their own,
// and the caller waits for that. The constructor of a library is an exception.
#include "bootstrap/pmix_store.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bootstrap/pmix_abi.h"
#include "core/background.h"
#include "core/error.h"
#include "core/file_descriptor.h"

namespace tutti {
namespace {

struct PmixLibrary {
  pmix::Functions call;
  std::string missing;  // why it cannot be used; "": it can
};

/// The library that this process has already, as a part of an MPI library; that of the launcher
/// (PMIX_PREFIX names its plugins, so no other fits); the system's.
void* open_pmix() {
  constexpr const char* kName = "libpmix.so.2";
  constexpr int kHow = RTLD_NOW | RTLD_LOCAL;
  void* handle = ::dlopen(kName, kHow | RTLD_NOLOAD);
  const char* const prefix = std::getenv("PMIX_PREFIX");
  if (prefix != nullptr && *prefix == '/') {
    for (const char* const folder : {"lib", "lib64", "lib/openmpi"}) {
      if (handle != nullptr) break;
      handle = ::dlopen(fmt::format("{}/{}/{}", prefix, folder, kName).c_str(), kHow);
    }
  }
  return handle != nullptr ? handle : ::dlopen(kName, kHow);
}

PmixLibrary load_pmix() {
  PmixLibrary library;
  void* const handle = open_pmix();
  if (handle == nullptr) {
    library.missing = fmt::format("libpmix cannot be loaded ({})", ::dlerror());
    return library;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) library.missing = fmt::format("the libpmix here has no {}()", name);
  };
  find(library.call.init, "PMIx_Init");
  find(library.call.finalize, "PMIx_Finalize");
  find(library.call.put, "PMIx_Put");
  find(library.call.commit, "PMIx_Commit");
  find(library.call.fence, "PMIx_Fence");
  find(library.call.get, "PMIx_Get");
  find(library.call.error_string, "PMIx_Error_string");
  find(library.call.get_version, "PMIx_Get_version");
  return library;
}

/// Stays loaded: the library has a thread.
const PmixLibrary& pmix_library() {
  static const PmixLibrary library = load_pmix();
  return library;
}

constexpr auto kForLoader = std::chrono::milliseconds(300);

/// Whether another thread may load libraries, as PMIx_Init() does. It may not as long as this one
/// is in a constructor of a library that is being loaded: the loader lets one thread in at a time.
bool loader_is_free() {
  const auto loaded = std::make_shared<std::atomic<bool>>(false);
  start_thread("tutti-pmix", [loaded] {
    [[maybe_unused]] const void* const own = ::dlopen(nullptr, RTLD_NOW);
    loaded->store(true);
  }).detach();
  return wait_until(deadline_after(kForLoader), [&] { return loaded->load(); });
}

constexpr auto kToBegin = std::chrono::seconds(10);

/// A value that this rank puts, or that it asks for.
struct PmixValue {
  std::string key, value;  // the value: put, or got
  bool is_of_job = false;  // the launcher itself has the value, a number
  std::uint32_t number = 0;
};

/// What the thread and the rank that waits for it share.
struct PmixExchange : PmixValue {
  std::string failure;
  std::atomic<const char*> at{"PMIx_Init"};  // the call that is under way
  std::atomic<bool> done{false};
};

class PmixStore final : public LauncherStore {
 public:
  /// When the process exits. A call that has not returned would keep this one, too.
  void end() {
    if (begun_ && !stuck_ && ::getpid() == process_) pmix_library().call.finalize(nullptr, 0);
  }

  std::string name() const override {
    const char* const space = std::getenv("PMIX_NAMESPACE");
    return fmt::format("PMIx (PMIX_NAMESPACE={})", space == nullptr ? "" : space);
  }

  void put(const std::string& key, const std::string& value, Deadline deadline) override {
    exchange({key, value}, deadline);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return exchange({key, ""}, deadline).value;
  }

  PmixPlace place() {
    static const PmixPlace place{number_of_job(pmix::kJobSize), number_of_job(pmix::kLocalSize)};
    return place;
  }

 private:
  int number_of_job(const char* key) {
    const auto number = exchange({key, "", true}, deadline_after(kToBegin)).number;
    return static_cast<int>(std::min<std::uint32_t>(number, INT_MAX));
  }

  PmixValue exchange(PmixValue wanted, Deadline deadline) {
    if (const std::string why = why_no_pmix(); !why.empty()) throw Error(ErrorCode::system, why);
    const std::lock_guard lock(mutex_);
    if (stuck_) throw Error(ErrorCode::system, "an earlier call of libpmix has not returned");
    const auto shared = std::make_shared<PmixExchange>();
    static_cast<PmixValue&>(*shared) = std::move(wanted);
    if (!begun_ && !loader_is_free()) {
      run(*shared);
      if (!shared->failure.empty()) throw Error(ErrorCode::system, shared->failure);
      return *shared;
    }
    start_thread("tutti-pmix", [this, shared] {
      run(*shared);
      shared->done.store(true, std::memory_order_release);
    }).detach();
    stuck_ = true;
    if (!wait_until(deadline, [&] { return shared->done.load(std::memory_order_acquire); })) {
      const std::string_view at = shared->at.load();
      throw Error(ErrorCode::timed_out,
                  fmt::format("{}() has not returned in time{}", at,
                              at == "PMIx_Fence" ? ": not all ranks have come to it" : ""));
    }
    stuck_ = false;
    if (!shared->failure.empty()) throw Error(ErrorCode::system, shared->failure);
    return *shared;
  }

  void run(PmixExchange& exchange) {
    const pmix::Functions& call = pmix_library().call;
    const auto done = [&](const char* function, const std::function<int()>& body) {
      exchange.at = function;
      const int status = body();
      if (status == pmix::kSuccess) return true;
      exchange.failure = fmt::format("{}() of libpmix ({}) says {} ({})", function,
                                     call.get_version(), call.error_string(status), status);
      return false;
    };
    if (!begun_) {
      occupy_standard_descriptors();
      if (!done("PMIx_Init", [&] { return call.init(&self_, nullptr, 0); })) return;
      begun_ = true;
    }
    if (exchange.is_of_job) {
      const Answer value = get_value(exchange, pmix::kAnyRank, done);
      if (!value) return;
      if (value->type == pmix::kUint32) {
        exchange.number = value->number;
      } else {
        exchange.failure = fmt::format("{} is no number", exchange.key);
      }
      return;
    }
    if (!exchange.value.empty()) {
      pmix::Value value{};
      value.type = pmix::kString;
      value.string = exchange.value.data();
      if (!done("PMIx_Put", [&] { return call.put(pmix::kToAll, exchange.key.c_str(), &value); }) ||
          !done("PMIx_Commit", [&] { return call.commit(); })) {
        return;
      }
    }
    pmix::Info collect{};
    std::ranges::copy(std::string_view(pmix::kCollectData), collect.key);
    collect.value.type = pmix::kBoolean;
    collect.value.flag = true;
    if (!done("PMIx_Fence", [&] { return call.fence(nullptr, 0, &collect, 1); })) return;
    if (!exchange.value.empty()) return;
    if (const Answer value = get_value(exchange, 0, done);
        value && value->type == pmix::kString && value->string != nullptr) {
      exchange.value = value->string;
      std::free(value->string);
    }
  }

  using Answer = std::unique_ptr<pmix::Value, void (*)(void*)>;

  /// What rank `rank` of the job has put under the exchange's key; null: `done` says why.
  template <class Done>
  Answer get_value(const PmixExchange& exchange, std::uint32_t rank, const Done& done) {
    pmix::Process owner = self_;
    owner.rank = rank;
    pmix::Value* value = nullptr;
    const bool got = done("PMIx_Get", [&] {
      return pmix_library().call.get(&owner, exchange.key.c_str(), nullptr, 0, &value);
    });
    return {got ? value : nullptr, std::free};
  }

  std::mutex mutex_;  // one exchange at a time
  const pid_t process_ = ::getpid();
  pmix::Process self_{};
  std::atomic<bool> begun_{false};
  std::atomic<bool> stuck_{false};  // a call is under way
};

}  // namespace

std::string why_no_pmix() { return pmix_library().missing; }

namespace {

const std::shared_ptr<PmixStore>& get_pmix_store() {
  // Not destroyed: a thread may still be in a call.
  static const auto& store = *new auto(std::make_shared<PmixStore>());
  [[maybe_unused]] static const int registered = std::atexit([] { store->end(); });
  return store;
}

}  // namespace

std::shared_ptr<LauncherStore> pmix_store() { return get_pmix_store(); }

PmixPlace pmix_place() {
  try {
    return get_pmix_store()->place();
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("PMIX_RANK is set, and no other variable says how many ranks there "
                            "are; {} does not say it either: {}. Set PMIX_PREFIX to where the "
                            "launcher's libpmix.so.2 is (PMIX_PREFIX/lib), or start the ranks "
                            "with `tutti run`",
                            get_pmix_store()->name(), error.what()));
  }
}

}  // namespace tutti
