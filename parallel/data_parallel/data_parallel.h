// Data parallelism: every rank has all parameters, computes gradients from data of its own, and the
// ranks average them. The program tells the engine which gradient is ready, in any order, and the
// engine decides what to communicate when:
//
//     DataParallel engine(axis, parameters);       // names, shapes, types; no memory, no framework
//     engine.broadcast_parameters(pointers);       // rank 0's
//     for (each step) {
//       engine.zero();
//       backward: write gradient i to engine.gradient(i), then engine.ready(i)
//       if (engine.finish()) fetch the gradients' addresses again;
//       optimizer: the averages are where the gradients were
//     }
//
// Gradients lie in one flat buffer, in buckets. An all-reduce averages a bucket as a whole; it
// starts when the last gradient of the bucket is ready, while backward goes on. All ranks start
// buckets in the same order, in whatever order gradients become ready. buckets.h has the places of
// gradients, reduction.h the averaging of a bucket, policy.h the options.
//
// One thread at a time calls an engine, and no other thread uses its axis meanwhile. Several
// engines may share an axis; their operations on it come in the same order on all ranks, as all
// collectives do. Functions throw tutti::Error. After peer_lost or another failure of the axis the
// engine is unusable. After mismatch and invalid_argument from finish() the next step may follow.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"
#include "../memory_pool.h"
#include "buckets.h"
#include "policy.h"
#include "reduction.h"

namespace tutti::parallel {

class DataParallel {
 public:
  /// Collective. Throws Error(mismatch) on all ranks if they differ in parameters or policy;
  /// Error(invalid_argument) for an impossible policy. The axis outlives the engine.
  DataParallel(Axis& axis, std::vector<Parameter> parameters, DataParallelPolicy policy = {});
  /// Waits for started operations.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  std::size_t size() const { return parameters_.size(); }
  const Parameter& parameter(std::size_t i) const { return parameters_[i]; }
  /// The place of gradient i from one finish() to the next, and of its average after finish().
  void* gradient(std::size_t i) const { return flat_->data() + layout_.offset_of[i]; }
  /// gradient(i) with shared ownership of the memory: it outlives the engine.
  std::shared_ptr<void> kept_gradient(std::size_t i) const { return {flat_, gradient(i)}; }
  /// All gradients become 0.
  void zero();

  /// Gradient i is ready, and the caller leaves it alone until finish() has returned. Throws
  /// Error(invalid_usage) for a second call in one backward.
  void ready(std::size_t i);
  bool is_ready(std::size_t i) const { return ready_.at(i) != 0; }
  /// Backward is over, on this rank: waits until all gradients are averages. True if they have
  /// moved: gradient() gives other addresses from now on. This happens once, after the first step,
  /// if the policy learns the order. Throws Error(mismatch) on all ranks if a gradient is missing
  /// on some rank (Unused::error), and Error(invalid_argument) on all if one is not finite
  /// (check_finite).
  [[nodiscard]] bool finish();

  /// While this object lives, backward (ready() and finish()) only adds to gradients and
  /// communicates nothing: for all but the last micro-batch of a step. A gradient that was ready in
  /// any of them is not missing in the last one. If ranks hold it for different numbers of
  /// backwards, all of them throw Error(mismatch); if some do not hold it at all, the axis has
  /// failed then.
  class NoSync {
   public:
    explicit NoSync(DataParallel& engine) : engine_(engine) { ++engine_.no_sync_; }
    ~NoSync() { --engine_.no_sync_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& engine_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// This rank has run out of data (uneven_inputs): takes part in the others' steps, with zeros,
  /// until they have run out of it too. The averages are over the ranks that have data.
  /// `after_step` runs after each of their steps, with the averages in gradient(): a rank that
  /// makes the optimizer's step there has the others' parameters in the end. finish() may have
  /// moved the gradients before it.
  void join(const std::function<void()>& after_step = {});
  /// The first rank with data in the last step: 0, except with uneven_inputs. The same on all
  /// ranks.
  int first_with_data() const;

  /// Collective: parameters, in their order, become those of `root`.
  void broadcast_parameters(std::span<void* const> pointers, int root = 0);

  struct Statistics {
    std::uint64_t steps = 0;             // that were averaged
    std::uint64_t unsynchronised = 0;    // backwards of no_sync()
    std::chrono::nanoseconds exposed{};  // that finish() waited for communication, in all steps
    std::chrono::nanoseconds last_exposed{};
    std::size_t gradient_bytes = 0;  // of all gradients
    std::size_t buckets = 0;
    MemoryUse memory;  // of the engine: gradients, and the policy's needs
  };
  Statistics statistics() const;
  /// Bytes and calls.
  const Traffic& traffic() const { return axis_.traffic(); }
  const BucketLayout& layout() const { return layout_; }

 private:
  // What was ready (data_parallel.cpp).
  bool synchronises() const { return no_sync_ == 0; }
  /// There is one bucket alone, ready when backward is over: nothing to overlap with.
  bool overlaps() const { return policy_.overlap && layout_.buckets.size() > 1; }
  void fill_missing();
  void end_step();
  // What is communicated (communicate.cpp).
  void begin_step();
  void wait_for_backwards();
  void refuse_uneven_backwards() const;
  void start_ready();
  void start(std::size_t bucket, int round);
  bool average();
  bool are_wrong_anywhere(std::size_t bad);
  std::size_t first_not_finite() const;
  void average_over_those_with_data();
  void check_results();
  void refuse_missing(std::span<const std::uint8_t> records, std::size_t record) const;
  void refuse_not_finite(std::span<const std::uint8_t> records, std::size_t record,
                         std::size_t bad) const;
  bool learn_order();
  template <class What, class Body>
  void during(const What& what, const Body& body) const;
  template <class Body>
  auto reduced(std::size_t bucket, const Body& body) const;
  Call labelled(Call call) const {
    call.label = label_;
    return call;
  }
  std::string describe(std::size_t bucket) const;
  static std::string describe(const char* what) { return what; }

  Axis& axis_;
  const std::vector<Parameter> parameters_;
  const DataParallelPolicy policy_;
  const std::shared_ptr<MemoryPool> memory_;
  std::uint16_t label_ = 0;
  BucketLayout layout_;
  std::shared_ptr<Buffer> flat_;
  std::unique_ptr<Reduction> reduction_;
  bool order_known_ = false;

  // Of the present step:
  int no_sync_ = 0;
  bool in_step_ = false;
  std::vector<std::uint8_t> ready_;     // by gradient: in this backward
  std::vector<std::uint8_t> added_;     // by gradient: in one since the last average
  std::vector<std::uint32_t> order_;    // in which they became ready, while that is learned
  std::vector<std::uint32_t> missing_;  // by bucket: gradients that are not ready
  std::vector<std::uint32_t> absent_;   // gradients that never became ready
  std::vector<Pending> pending_;        // by bucket
  std::size_t started_ = 0;             // buckets
  std::size_t not_finite_ = 0;          // 1 + the first such gradient of this rank; 0: none
  // Backwards since the last average, including this one; 0: the rank has no data. By rank, if
  // ranks exchange them.
  std::uint64_t own_backwards_ = 1;
  std::vector<std::uint64_t> backwards_;
  Pending backwards_pending_;
  Statistics statistics_;
};

}  // namespace tutti::parallel
