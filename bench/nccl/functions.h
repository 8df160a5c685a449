// The functions of a library with NCCL's interface (--nccl), looked up in its file. It uses only
// the functions of nccl.h, so any libnccl.so.2 works.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "bindings/nccl/nccl.h"
#include "collectives/collective.h"

namespace tutti::bench {

struct NcclFunctions {
  /// Opens `file` (as dlopen(): a name without a slash is searched for) apart from all other
  /// libraries, for good. Throws Error(invalid_argument), which names the missing part: the file,
  /// or a function that one of `collectives` needs.
  NcclFunctions(const std::string& file, std::span<const Collective> collectives);
  NcclFunctions(const std::string& file, Collective collective)
      : NcclFunctions(file, std::span(&collective, 1)) {}

  std::string path;
  int version = 0;  // as ncclGetVersion(): 22809

  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRank) comm_init_rank;
  decltype(&::ncclCommDestroy) comm_destroy;
  decltype(&::ncclCommAbort) comm_abort;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error;
  decltype(&::ncclRedOpCreatePreMulSum) red_op_create;
  decltype(&::ncclRedOpDestroy) red_op_destroy;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;

  // Of these, those that the collectives need; the others are null where the library is older.
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclReduce) reduce;
  decltype(&::ncclGather) gather;
  decltype(&::ncclScatter) scatter;
  decltype(&::ncclAlltoAll) all_to_all;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;

  // Null where the library is older.
  decltype(&::ncclGetLastError) get_last_error;
  decltype(&::ncclMemAlloc) mem_alloc;
  decltype(&::ncclMemFree) mem_free;
  decltype(&::ncclCommRegister) comm_register;
  decltype(&::ncclCommDeregister) comm_deregister;
  decltype(&::ncclCommWindowRegister) comm_window_register;
  decltype(&::ncclCommWindowDeregister) comm_window_deregister;

  /// "2.28.9"
  std::string version_text() const;
  /// Throws Error(system) with the library's own words unless `result` is ncclSuccess.
  void check(ncclResult_t result, const char* function) const;
};

}  // namespace tutti::bench
