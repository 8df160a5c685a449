// One rank of a communicator of a library with NCCL's interface, which understands Tutti's calls.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/nccl/functions.h"
#include "comm/communicator.h"

namespace tutti::bench {

/// Its calls throw Error(system) with the library's own words. It does not own the communicator.
class NcclCommunicator {
 public:
  NcclCommunicator(const NcclFunctions& functions, ncclComm_t comm, cudaStream_t stream)
      : nccl_(&functions), comm_(comm), stream_(stream) {}

  ncclComm_t get() const { return comm_; }
  /// Puts the call on the stream, as the library does; on host memory Tutti's library is done on
  /// return. Throws Error(invalid_usage) for calls without a function of NCCL; all_to_all_v is a
  /// group of messages.
  void run(const Call& call);
  /// Destroys its own objects, before the communicator goes.
  void clear() noexcept;

 private:
  ncclRedOp_t operator_of(const Call& call);
  void run_messages(const Call& call);
  void exchange(const Call& call);

  const NcclFunctions* nccl_;
  ncclComm_t comm_;
  cudaStream_t stream_;
  // The operator of the newest calls with a scalar.
  std::optional<ncclRedOp_t> op_;
  DataType op_type_{};
  std::uint64_t op_scalar_ = 0;
};

}  // namespace tutti::bench
