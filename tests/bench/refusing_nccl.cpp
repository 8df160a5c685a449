// A libnccl.so.2 that can reduce on one rank of a thread only to refuse something: what the
// variable REFUSING_NCCL says. It moves nothing.
#include <cstdlib>
#include <cstring>

#include "bindings/nccl/nccl.h"

namespace {

thread_local const char* last_error = "";

bool refuses(const char* what) {
  const char* const wish = std::getenv("REFUSING_NCCL");
  return wish != nullptr && std::strcmp(wish, what) == 0;
}

ncclResult_t refuse(const char* why) {
  last_error = why;
  return ncclInvalidUsage;
}

// A communicator is its rank, and one more, as NULL is none.
int rank_of(ncclComm_t comm) { return static_cast<int>(reinterpret_cast<long>(comm)) - 1; }

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "invalid usage"; }
const char* ncclGetLastError(ncclComm_t) { return last_error; }
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int, ncclUniqueId, int rank) {
  if (refuses("init")) return refuse("two ranks on one GPU");
  *comm = reinterpret_cast<ncclComm_t>(rank + 1L);
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  *result = refuses("later") && rank_of(comm) == 2 ? refuse("it went wrong") : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t,
                                      ncclComm_t) {
  return refuse("no operators");
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return refuse("no operators"); }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }
ncclResult_t ncclAllReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t) {
  return refuses("call") && rank_of(comm) == 1 ? refuse("not this call") : ncclSuccess;
}
