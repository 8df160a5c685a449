// ncclComm: the struct behind an ncclComm_t.
//
// A handle is never given back to the allocator, only to later communicators, so a stale handle is
// recognised, and never read from freed memory. Threads that use the communicator are counted: it
// lives as long as there is one, and ncclCommAbort() and ncclCommRevoke() know when stopped calls
// have returned.
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
  std::atomic<int> users{0};  // threads that use the communicator
  /// ncclInProgress while a call runs on another thread; then its result.
  std::atomic<ncclResult_t> async{ncclSuccess};
  std::atomic<bool> revoked{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> suspended{false};

  tutti::Communicator communicator;  // there once `ready`
  tutti::nccl::Config config;
  std::shared_ptr<tutti::Window> signals;  // made with the first window
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
/// Leaves the communicator and takes the handle back, once no thread uses the communicator.
void free_handle(ncclComm& comm);
/// Waits until no thread uses it.
void wait_for_users(const ncclComm& comm);
/// As free_handle(), for the user; throws Error(invalid_usage) if another thread has done so.
void destroy(ncclComm& comm);

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

/// This thread uses the communicator. Throws Error(invalid_usage) if it is destroyed already.
class Use {
 public:
  explicit Use(ncclComm& comm);
  ~Use() { comm_.users.fetch_sub(1, std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  ncclComm& comm_;
};

/// The state of a communicator for ncclCommGetAsyncError().
ncclResult_t async_result(ncclComm& comm);
/// Why it failed; "" if it did not.
std::string failure_text(ncclComm& comm);

}  // namespace tutti::nccl
