// Questions: about the library, and about a communicator.
#include "bindings/nccl/comm.h"
#include "bindings/nccl/export.h"
#include "bindings/nccl/result.h"

using namespace tutti::nccl;

namespace {

/// Sets *out, which nccl.h calls `name`, to what `get` says of the communicator.
template <class Get>
ncclResult_t ask(std::string_view function, ncclComm_t comm, int* out, std::string_view name,
                 Get&& get) {
  return guarded(function, [&] {
    require(out, name);
    *out = get(made(comm));
    return ncclSuccess;
  });
}

}  // namespace

NCCL_API(ncclResult_t, ncclGetVersion, (int* version)) {
  return guarded("ncclGetVersion", [&] {
    require(version, "version");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  });
}

// The pointer is good until this thread's next call.
NCCL_API(const char*, ncclGetLastError, (ncclComm_t comm)) {
  thread_local std::string text;
  try {
    text.clear();
    if (comm != nullptr && comm->live) text = failure_text(*comm);
    if (text.empty()) text = last_error();
    return text.c_str();
  } catch (...) {
    return "";
  }
}

NCCL_API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError)) {
  return guarded("ncclCommGetAsyncError", [&] {
    require(asyncError, "asyncError");
    *asyncError = async_result(checked(comm));
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  return ask("ncclCommCount", comm, count, "count", [](const ncclComm& c) { return c.size; });
}

NCCL_API(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  return ask("ncclCommUserRank", comm, rank, "rank", [](const ncclComm& c) { return c.rank; });
}

NCCL_API(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  return ask("ncclCommCuDevice", comm, device, "device",
             [](const ncclComm& c) { return c.device; });
}
