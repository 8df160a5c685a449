// The c10d backend "tutti": torch.distributed's process groups over a Communicator.
//
// A synchronous call (asyncOp is false) runs on the caller's thread. It has a Work only if
// something watches works, as PyTorch's flight recorder does. Other calls are started, and the
// thread of the communicator's engine runs them.
#pragma once

#include <torch/version.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unordered_map>
#include <vector>

#include "finished_work.h"
#include "ledger.h"
#include "messages.h"
#include "operation.h"
#include "process.h"
#include "tensors.h"
#include "work.h"

// PyTorch 2.14 has hooks as well, but only those of an abort.
#if defined(C10D_BACKEND_HAS_HOOKS) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)
#define TUTTI_C10D_HAS_COMPLETION_HOOKS
#endif

namespace tutti::pytorch {

using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<::c10d::Work>;
using StorePointer = c10::intrusive_ptr<::c10d::Store>;
using WorkHook = std::function<void(std::shared_ptr<::c10d::WorkInfo>)>;

class Backend final : public ::c10d::Backend {
 public:
  using OptionsPointer = c10::intrusive_ptr<Options>;

  /// All ranks meet by `store`, over which the secret of the group travels; unless the options
  /// enable reconfigure(). `invariant`: as tutti::Options has it, of this group and of what split()
  /// and merge() make of it; none: as TUTTI_INVARIANT says.
  Backend(const StorePointer& store, int rank, int size, OptionsPointer options,
          std::optional<bool> invariant);
  /// For ranks that have met.
  Backend(const StorePointer& store, Communicator comm, OptionsPointer options,
          std::optional<bool> invariant);
  ~Backend() override;

  const std::string getBackendName() const override { return "tutti"; }
  OptionsPointer getBackendOptions() override { return options_; }

  // collectives.cpp; if an operation has two names, this is the name that all versions know.
  WorkPointer broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& opts) override;
  WorkPointer allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const ::c10d::AllreduceCoalescedOptions& opts) override;
  WorkPointer reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) override;
  WorkPointer allgather(std::vector<Tensors>& outs, Tensors& ins,
                        const ::c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& out, at::Tensor& in,
                              const ::c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outs, Tensors& ins,
                                  const ::c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outs, Tensors& ins,
                                              const ::c10d::AllgatherOptions& opts) override;
  WorkPointer gather(std::vector<Tensors>& outs, Tensors& ins,
                     const ::c10d::GatherOptions& opts) override;
  WorkPointer gather_into_tensor(at::Tensor& out, at::Tensor& in,
                                 const ::c10d::GatherOptions& opts);  // since 2.15
  WorkPointer scatter(Tensors& outs, std::vector<Tensors>& ins,
                      const ::c10d::ScatterOptions& opts) override;
  WorkPointer reduce_scatter(Tensors& outs, std::vector<Tensors>& ins,
                             const ::c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                   const ::c10d::ReduceScatterOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outs, Tensors& ins,
                                              const ::c10d::ReduceScatterOptions& opts) override;
  WorkPointer alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& out_splits,
                            std::vector<std::int64_t>& in_splits,
                            const ::c10d::AllToAllOptions& opts) override;
  WorkPointer alltoall(Tensors& outs, Tensors& ins, const ::c10d::AllToAllOptions& opts) override;
  WorkPointer barrier(const ::c10d::BarrierOptions& opts) override;
  /// Sums a tensor in place over the ranks, on the caller's thread; nobody watches. For direct.cpp.
  void sum(const at::Tensor& tensor);

  // point_to_point.cpp
  WorkPointer send(Tensors& tensors, int peer, int tag) override;
  WorkPointer recv(Tensors& tensors, int peer, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  // group.cpp
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPointer endCoalescing() override;
  void monitoredBarrier(const ::c10d::BarrierOptions& opts, bool all) override;
  void setTimeout(Milliseconds timeout) override;
  void addEphemeralTimeout(const Milliseconds& timeout);  // since 2.15
  /// Whether later all_reduces, and reduce_scatters of equal parts, of floats that can be
  /// compressed are: 8 bits travel for an element, and sums and averages are approximate. The same
  /// on all ranks.
  void compress(bool compressed) { compresses_ = compressed; }
  void enableCollectivesTiming() override { ledger_->measure(); }
  /// `hook` hears of every later work that is over, on a thread of its own.
  void registerOnCompletionHook(WorkHook&& hook) override;
  void waitForPendingWorks() override;
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  ::c10d::ErrorType getError() override;
  // Since 2.15; of the collectives of this thread. None of them runs meanwhile:
  bool supportsTimeEstimation() const { return true; }
  void startTimeEstimate();
  float endTimeEstimate();
  bool isInitialized() { return formed_; }  // since 2.15
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<::c10d::Backend> split(const StorePointer& store,
                                            const std::vector<int>& ranks,
                                            const OptionsPointer& opts) override;
  bool supportsShrinking() const;  // since 2.15, as shrink()
  c10::intrusive_ptr<::c10d::Backend> shrink(const std::vector<std::int64_t>& excluded, int flags,
                                             const OptionsPointer& opts);
  c10::intrusive_ptr<::c10d::Backend> merge(const StorePointer& store, const OptionsPointer& opts,
                                            const int& rank, const int& size) override;
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  /// Ends all operations of this group, on the other ranks too. On return those of this rank are
  /// over.
  void abort() override;
  void shutdown() override;
  // suspend.cpp, since 2.15. Collective; between the two no operation may be called.
  void suspend();
  void resume();
  std::unordered_map<std::string, std::uint64_t> getMemoryStats();

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  // reconfigure.cpp
  bool supportsReconfigure() const override { return true; }
  ::c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPointer reconfigure(const ::c10d::ReconfigureOptions& opts) override;
#endif

#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override { return true; }
  c10::intrusive_ptr<::c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif

#ifdef C10D_BACKEND_HAS_HOOKS
  // ledger.h says when hooks run.
  bool supportsAbortHooks() const { return true; }  // since 2.15
  void registerAbortHook(std::int64_t id, ::c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
#endif

#ifdef TUTTI_C10D_HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, ::c10d::CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t id) override;
#endif

 private:
  friend class Window;

  /// The lock of what this class keeps in mind. No thread holds it while it waits for other ranks.
  std::unique_lock<std::mutex> lock() const;
  /// The communicator, for calls of this thread: it lives as long. Empty after shutdown().
  std::shared_ptr<Communicator> comm() const;
  /// Runs or starts `o`; null if it has run, and nobody watches. `open`: whether anybody may.
  WorkPointer issue(Operation&& o, Milliseconds asked, bool async, bool open = true);
  /// Abort hooks hear of `error` if it is a failure of the group. In no thread's turn.
  void hears(const Error& error);
  /// Runs `o`, whose timeout is effective(); null if nobody watches.
  WorkPointer run(Operation&& o, Milliseconds timeout, bool open = true);
  // With the lock; `timeout` is effective():
  WorkPointer start(Operation&& o, Milliseconds timeout);
  /// The end of `future` is the end of a part of `work`.
  static void end_with(const c10::intrusive_ptr<Work>& work, const Future& future);
  /// In a time estimate of this thread: adds the predicted time of `o`, which does not run.
  bool estimates(const Operation& o, Milliseconds timeout);
  /// Throws in a time estimate, and ends it: only `what` has a predicted time.
  void refuse_estimate(const char* name, const char* what);
  WorkPointer put_on_stream(Operation&& o, Milliseconds timeout);
  /// Puts the calls of works of one GPU on its current stream, several as one group.
  void put_on_stream(std::span<const WorkPointer> works);
  /// Adds `work` to the calls that this thread coalesces, if it does.
  const WorkPointer& noted(const WorkPointer& work);
  c10::intrusive_ptr<Work> make_work(Operation o, Milliseconds timeout, int parts);
  /// With its steps as parts.
  c10::intrusive_ptr<Work> make_work(Operation o, Milliseconds timeout);
  /// A call's own timeout, or the group's; and what extends it.
  Milliseconds effective(Milliseconds asked) const;
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  void leave();
  /// Throws where the group has no ranks yet, or is suspended.
  void check_usable() const;
  /// `next` is the communicator from now on; the one before it ends once no thread is in a call of
  /// it. Without the lock.
  void replace(Communicator next);
  void check_root(std::int64_t root, const char* what) const;

  // Of one tensor; `o` may have several.
  void add_all_reduce(Operation& o, const at::Tensor& tensor, const ::c10d::ReduceOp& op);
  void add_reduce_scatter(Operation& o, const at::Tensor& out, const at::Tensor& in,
                          const ::c10d::ReduceOp& op);
  void add_all_gather(Operation& o, const at::Tensor& out, const at::Tensor& in);
  void add_all_gather_list(Operation& o, const Tensors& outs, const at::Tensor& in);
  void add_fold(Operation& o, Collective how, const at::Tensor& to, const at::Tensor& in,
                const Reduction& r, int root);
  /// Runs `o` to its end.
  void run_through(Operation&& o, Milliseconds timeout);
  /// The tensors of all ranks, `counts[r]` elements of rank r, one after the other.
  at::Tensor gathered(const at::Tensor& mine, const Counts& counts, Milliseconds timeout);
  WorkPointer message(Tensors& tensors, int peer, int tag, bool sends);

  OptionsPointer options_;
  StorePointer store_;
  const std::optional<bool> invariant_;
  const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  mutable std::mutex mutex_;  // of what follows, but for:
  const pid_t process_ = process_id();
  mutable std::mutex replacing_;  // of comm_ and revoked_
  std::shared_ptr<Communicator> comm_;
  std::atomic<bool> compresses_{false};
  std::atomic<bool> formed_{true};  // has its ranks
  bool revoked_ = false;            // aborted, though nothing had failed
  bool suspended_ = false;
  std::shared_ptr<Messages> messages_;
  std::atomic<std::uint64_t> sequence_{0};                         // collectives so far
  std::uint64_t monitored_ = 0;                                    // monitored barriers so far
  std::map<std::thread::id, std::vector<WorkPointer>> coalesced_;  // by thread that does so
  std::map<std::thread::id, std::chrono::nanoseconds> estimated_;  // the same
};

}  // namespace tutti::pytorch
