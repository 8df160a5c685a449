// dlopen() and dlsym(); see nccl_functions.h.
#include "bench/perf/nccl_functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.h"

namespace tutti::perf {

namespace {

bool needs_messages(Collective collective) {
  return collective == Collective::send_recv || collective == Collective::all_to_all_v;
}

// RTLD_LOCAL: its names do not mix with ours. Never closed: it may have threads.
void* open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--nccl: {}", dlerror()));
  }
  return library;
}

}  // namespace

NcclFunctions::NcclFunctions(const std::string& file, Collective collective) : path(file) {
  void* const library = open(path);
  const auto find = [&]<class Function>(Function& function, const char* name, bool needed) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function != nullptr || !needed) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--nccl {}: it has no function {}, which {} needs", path, name,
                            tutti::name(collective)));
  };
  decltype(&::ncclGetVersion) get_version = nullptr;
  find(get_version, "ncclGetVersion", true);
  find(get_error_string, "ncclGetErrorString", true);
  find(get_unique_id, "ncclGetUniqueId", true);
  find(comm_init_rank, "ncclCommInitRank", true);
  find(comm_destroy, "ncclCommDestroy", true);
  find(comm_abort, "ncclCommAbort", true);
  find(comm_get_async_error, "ncclCommGetAsyncError", true);
  find(red_op_create, "ncclRedOpCreatePreMulSum", is_reduction(collective));
  find(red_op_destroy, "ncclRedOpDestroy", is_reduction(collective));
  find(group_start, "ncclGroupStart", true);
  find(group_end, "ncclGroupEnd", true);
  find(all_reduce, "ncclAllReduce", collective == Collective::all_reduce);
  find(all_gather, "ncclAllGather", collective == Collective::all_gather);
  find(reduce_scatter, "ncclReduceScatter", collective == Collective::reduce_scatter);
  find(broadcast, "ncclBroadcast", collective == Collective::broadcast);
  find(reduce, "ncclReduce", collective == Collective::reduce);
  find(gather, "ncclGather", collective == Collective::gather);
  find(scatter, "ncclScatter", collective == Collective::scatter);
  find(all_to_all, "ncclAlltoAll", collective == Collective::all_to_all);
  find(send, "ncclSend", needs_messages(collective));
  find(recv, "ncclRecv", needs_messages(collective));
  find(get_last_error, "ncclGetLastError", false);
  find(mem_alloc, "ncclMemAlloc", false);
  find(mem_free, "ncclMemFree", false);
  find(comm_register, "ncclCommRegister", false);
  find(comm_deregister, "ncclCommDeregister", false);
  find(comm_window_register, "ncclCommWindowRegister", false);
  find(comm_window_deregister, "ncclCommWindowDeregister", false);
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

}  // namespace tutti::perf
