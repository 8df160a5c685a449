// ncclComm: the struct behind an ncclComm_t, and the turns of the threads that use it.
//
// A handle is never given back to the allocator, only to later communicators, so a stale handle is
// recognised, and never read from freed memory. A thread that uses the communicator has its turn.
// So calls of several threads run one after the other, and ncclCommAbort() and ncclCommRevoke()
// know when the stopped call has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "bindings/nccl/environment.h"
#include "bindings/nccl/nccl.h"
#include "comm/communicator.h"
#include "comm/window.h"
#include "transport/host/connection.h"

namespace tutti::nccl {

/// An operator of ncclRedOpCreatePreMulSum().
struct PreMulSum {
  DataType type = DataType::float32;
  std::uint64_t bits = 0;  // of the scalar, unless it is read at execution, from:
  const void* at_execution = nullptr;
};

enum class Phase : std::uint8_t {
  opening,    // being made, perhaps on another thread
  ready,      // made, or failed (then `communicator` is empty)
  abandoned,  // aborted while being made: the thread that makes it frees the handle
};

}  // namespace tutti::nccl

/// Away from the handles of other ranks, which other threads write to.
struct alignas(2 * tutti::kCacheLine) ncclComm {
  std::atomic<bool> live{false};
  std::atomic<tutti::nccl::Phase> phase{tutti::nccl::Phase::opening};
  std::mutex turn;
  /// ncclInProgress while a call runs on another thread; then its result.
  std::atomic<ncclResult_t> async{ncclSuccess};
  std::atomic<bool> revoked{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> suspended{false};

  tutti::Communicator
      communicator;  // the thread with the turn uses it; others read it once `ready`
  tutti::nccl::Config config;
  std::shared_ptr<tutti::Window>
      signals;  // made with the first window, by the thread with the turn
  int rank = 0;
  int size = 0;
  int device = 0;

  std::mutex mutex;  // of what follows
  std::map<int, tutti::nccl::PreMulSum> operators;
  std::multiset<void*> registrations;
  std::optional<ncclUniqueId> id_to_grow;  // of ncclCommGetUniqueId()
};

namespace tutti::nccl {

/// A handle for a communicator that is being made.
ncclComm* new_handle(const Config& config, int rank, int size, int device);
/// Leaves the communicator and takes the handle back. The caller has the turn, or no other thread
/// can have it.
void free_handle(ncclComm& comm);

/// Throws Error(invalid_argument) for NULL and for a pointer that is not, or no longer, a
/// communicator.
ncclComm& checked(ncclComm_t comm);
/// checked(), and made: not in progress, not failed while it was made.
ncclComm& made(ncclComm_t comm);
/// made(), and not revoked or finalized: may go on to be used.
ncclComm& kept(ncclComm_t comm);
void refuse_suspended(const ncclComm& comm);
/// kept(), and not suspended: ready for an operation.
ncclComm& usable(ncclComm_t comm);

/// Holds the turn. Throws Error(invalid_usage) if the communicator is destroyed meanwhile.
class Turn {
 public:
  explicit Turn(ncclComm& comm);
  ~Turn() { comm_.turn.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  ncclComm& comm_;
};

/// The state of a communicator for ncclCommGetAsyncError().
ncclResult_t async_result(ncclComm& comm);
/// Why it failed; "" if it did not.
std::string failure_text(ncclComm& comm);

}  // namespace tutti::nccl
