#include "bindings/nccl/windows.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "bindings/nccl/export.h"
#include "bindings/nccl/group.h"
#include "bindings/nccl/memory.h"
#include "bindings/nccl/nccl_device.h"
#include "bindings/nccl/result.h"

namespace tutti::nccl {
namespace {

/// Those of all communicators: most questions about a window do not name one.
class Windows {
 public:
  ncclWindow_t add(RegisteredWindow window) {
    auto made = std::make_unique<RegisteredWindow>(std::move(window));
    const auto handle = reinterpret_cast<ncclWindow_t>(made.get());
    const std::lock_guard lock(mutex_);
    all_[handle] = std::move(made);
    return handle;
  }
  RegisteredWindow find(ncclWindow_t handle) {
    require(handle, "window");
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(handle);
    if (found == all_.end()) {
      refuse_argument("the window has been deregistered, or never was one");
    }
    return *found->second;
  }
  RegisteredWindow remove(const ncclComm& comm, ncclWindow_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(handle);
    if (found == all_.end() || found->second->comm != &comm) {
      refuse_usage("the handle is not of a window of this communicator");
    }
    const RegisteredWindow window = std::move(*found->second);
    all_.erase(found);
    return window;
  }
  void remove_all(const ncclComm& comm) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const auto& entry) { return entry.second->comm == &comm; });
  }

 private:
  std::mutex mutex_;
  std::unordered_map<ncclWindow_t, std::unique_ptr<RegisteredWindow>> all_;
};

Windows& windows() {
  static auto* const instance = new Windows;  // communicators may end while the process does
  return *instance;
}

std::byte* address(const RegisteredWindow& window, std::size_t offset) {
  if (offset >= window.bytes) {
    refuse_argument(
        fmt::format("the offset is {}, but the window has {} bytes", offset, window.bytes));
  }
  return window.base + offset;
}

/// Sets *out to what `get` says of the window.
template <class Get>
ncclResult_t locate(std::string_view function, ncclWindow_t window, void** out, Get&& get) {
  return guarded(function, [&] {
    const RegisteredWindow found = windows().find(window);
    require(out, "outPtr");
    *out = get(found);
    return ncclSuccess;
  });
}

/// Collective over the communicator.
RegisteredWindow open_window(ncclComm& comm, void* memory, std::size_t bytes) {
  RegisteredWindow made{&comm, static_cast<std::byte*>(memory), bytes};
  if (memory_of(memory) == MemoryKind::device) {
    made.why_not = "it is memory of a GPU";
    return made;
  }
  if (!comm.signals) comm.signals = std::make_shared<Window>(comm.communicator.window(nullptr, 0));
  try {
    made.window = std::make_shared<Window>(comm.communicator.window(memory, bytes));
  } catch (const Error& e) {
    // Then no rank has one.
    if (e.code() != ErrorCode::invalid_argument) throw;
    made.why_not = e.what();
  }
  return made;
}

}  // namespace

RegisteredWindow registered_window(ncclWindow_t handle) { return windows().find(handle); }
void forget_windows(const ncclComm& comm) { windows().remove_all(comm); }

}  // namespace tutti::nccl

using namespace tutti::nccl;
using tutti::Communicator;

// Collective. In a group, when that ends, and before its operations.
NCCL_API(ncclResult_t, ncclCommWindowRegister,
         (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  constexpr std::string_view kName = "ncclCommWindowRegister";
  return guarded_in_group(kName, [&] {
    require(win, "win");
    constexpr int kKnown = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING | NCCL_WIN_GIN_ONLY |
                           NCCL_WIN_CFT_COUNTED;
    if ((winFlags & ~kKnown) != 0) {
      refuse_argument(
          fmt::format("winFlags is {:#x}; the flags up to {:#x} are known", winFlags, kKnown));
    }
    ncclComm& owner = usable(comm);
    // As NCCL: not an error, and the window stays as it was.
    if (buff == nullptr || size == 0) return ncclSuccess;
    Opening opening;
    opening.parent = &owner;
    opening.open = [&owner, buff, size, win] {
      const Use held(owner);
      *win = windows().add(open_window(owner, buff, size));
      return Communicator();
    };
    return submit(kName, std::move(opening), owner.config.blocking);
  });
}

// Without the others. They write there no more afterwards.
NCCL_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  return guarded("ncclCommWindowDeregister", [&] {
    ncclComm& owner = checked(comm);
    if (win == nullptr) return ncclSuccess;
    const Use held(owner);
    const RegisteredWindow window = windows().remove(owner, win);
    if (window.window) window.window->end();
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  return locate("ncclWinGetUserPtr", win, outUserPtr, [&](const RegisteredWindow& window) {
    if (window.comm != &checked(comm)) refuse_argument("the window is of another communicator");
    return window.base;
  });
}

// A rank can address the memory of itself alone (ncclTeamLsa).
NCCL_API(ncclResult_t, ncclGetLsaDevicePointer,
         (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr)) {
  return locate("ncclGetLsaDevicePointer", window, outPtr, [&](const RegisteredWindow& found) {
    if (lsaRank != 0) {
      refuse_argument(fmt::format("lsaRank is {}, but the team has rank 0 alone", lsaRank));
    }
    return address(found, offset);
  });
}

// As NCCL: NULL for a rank with memory that cannot be addressed.
NCCL_API(ncclResult_t, ncclGetPeerDevicePointer,
         (ncclWindow_t window, size_t offset, int peer, void** outPtr)) {
  return locate("ncclGetPeerDevicePointer", window, outPtr, [&](const RegisteredWindow& found) {
    const ncclComm& comm = *found.comm;
    if (peer < 0 || peer >= comm.size) {
      refuse_argument(fmt::format("peer is {}, but ranks are 0 to {}", peer, comm.size - 1));
    }
    if (peer == comm.rank) return address(found, offset);
    std::byte* const theirs = found.window ? found.window->map(peer) : nullptr;
    if (theirs == nullptr) return theirs;
    if (offset >= found.window->bytes_of(peer)) {
      refuse_argument(fmt::format("the offset is {}, but the window of rank {} has {} bytes",
                                  offset, peer, found.window->bytes_of(peer)));
    }
    return theirs + offset;
  });
}

// As NCCL without multimem.
NCCL_API(ncclResult_t, ncclGetLsaMultimemDevicePointer,
         (ncclWindow_t window, size_t, void** outPtr)) {
  return locate("ncclGetLsaMultimemDevicePointer", window, outPtr,
                [](const RegisteredWindow&) { return nullptr; });
}
NCCL_API(ncclResult_t, ncclGetMultimemDevicePointer,
         (ncclWindow_t window, size_t, ncclMultimemHandle_t multimem, void** outPtr)) {
  return locate("ncclGetMultimemDevicePointer", window, outPtr, [&](const RegisteredWindow&) {
    require(multimem.mcBasePtr, "multimem.mcBasePtr");
    return nullptr;
  });
}

NCCL_API(ncclResult_t, ncclGetMultimemDeviceLeInfo, (ncclWindow_t, size_t, ncclCftLeId*, size_t*)) {
  return refused("ncclGetMultimemDeviceLeInfo");
}
NCCL_API(ncclResult_t, ncclGetCftDeviceLeInfo,
         (ncclWindow_t, size_t, int, ncclTeam_t, ncclCftLeId*, size_t*)) {
  return refused("ncclGetCftDeviceLeInfo");
}
NCCL_API(ncclResult_t, ncclGetPeerDeviceLeInfo,
         (ncclWindow_t, size_t, int, ncclCftLeId*, size_t*)) {
  return refused("ncclGetPeerDeviceLeInfo");
}
