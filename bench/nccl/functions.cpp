// dlopen() and dlsym(); see functions.h.
#include "bench/nccl/functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace tutti::bench {

namespace {

bool messages(Collective c) { return c == Collective::send_recv || c == Collective::all_to_all_v; }
bool reductions(Collective c) { return is_reduction(c); }
bool all(Collective) { return true; }
bool none(Collective) { return false; }

// RTLD_LOCAL: its names do not mix with ours. Never closed: it may have threads.
void* open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--nccl: {}", dlerror()));
  }
  return library;
}

}  // namespace

NcclFunctions::NcclFunctions(const std::string& file, std::span<const Collective> collectives)
    : path(file) {
  void* const library = open(path);
  /// Throws where it is not there and one of the collectives is among those that `need` it.
  const auto find = [&]<class Function>(Function& function, const char* name, auto need) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    const auto who = std::ranges::find_if(collectives, need);
    if (function != nullptr || who == collectives.end()) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--nccl {}: it has no function {}, which {} needs", path, name,
                            tutti::name(*who)));
  };
  const auto only = [](Collective one) { return [one](Collective c) { return c == one; }; };
  decltype(&::ncclGetVersion) get_version = nullptr;
  find(get_version, "ncclGetVersion", all);
  find(get_error_string, "ncclGetErrorString", all);
  find(get_unique_id, "ncclGetUniqueId", all);
  find(comm_init_rank, "ncclCommInitRank", all);
  find(comm_destroy, "ncclCommDestroy", all);
  find(comm_abort, "ncclCommAbort", all);
  find(comm_get_async_error, "ncclCommGetAsyncError", all);
  find(red_op_create, "ncclRedOpCreatePreMulSum", reductions);
  find(red_op_destroy, "ncclRedOpDestroy", reductions);
  find(group_start, "ncclGroupStart", all);
  find(group_end, "ncclGroupEnd", all);
  find(all_reduce, "ncclAllReduce", only(Collective::all_reduce));
  find(all_gather, "ncclAllGather", only(Collective::all_gather));
  find(reduce_scatter, "ncclReduceScatter", only(Collective::reduce_scatter));
  find(broadcast, "ncclBroadcast", only(Collective::broadcast));
  find(reduce, "ncclReduce", only(Collective::reduce));
  find(gather, "ncclGather", only(Collective::gather));
  find(scatter, "ncclScatter", only(Collective::scatter));
  find(all_to_all, "ncclAlltoAll", only(Collective::all_to_all));
  find(send, "ncclSend", messages);
  find(recv, "ncclRecv", messages);
  find(get_last_error, "ncclGetLastError", none);
  find(mem_alloc, "ncclMemAlloc", none);
  find(mem_free, "ncclMemFree", none);
  find(comm_register, "ncclCommRegister", none);
  find(comm_deregister, "ncclCommDeregister", none);
  find(comm_window_register, "ncclCommWindowRegister", none);
  find(comm_window_deregister, "ncclCommWindowDeregister", none);
  check(get_version(&version), "ncclGetVersion");
}

std::string NcclFunctions::version_text() const {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void NcclFunctions::check(ncclResult_t result, const char* function) const {
  if (result == ncclSuccess) return;
  std::string text = fmt::format("{}: {}", function, get_error_string(result));
  const char* const last = get_last_error != nullptr ? get_last_error(nullptr) : "";
  if (last != nullptr && *last != '\0') text += fmt::format(": {}", last);
  throw Error(ErrorCode::system, text);
}

}  // namespace tutti::bench
