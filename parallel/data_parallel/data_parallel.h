// Data parallelism: every rank has all parameters, computes gradients from data of its own, and the
// ranks average them. The engine is told which gradient is ready, in any order, and decides what is
// communicated when:
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
// Gradients lie in one flat buffer, in buckets; a bucket is averaged as a whole, by an all-reduce
// that is started when its last gradient is ready, while backward goes on. Buckets are started in
// one order, the same on all ranks, in whatever order gradients become ready there. buckets.h says
// what lies where, reduction.h how a bucket is averaged, policy.h what can be chosen.
//
// One thread at a time calls an engine, and nobody else its axis meanwhile. Several engines may
// share an axis; what they do on it comes in the same order on all ranks, as all collectives do.
// Functions throw tutti::Error: after peer_lost or another failure of the axis the engine is of no
// use; after mismatch and invalid_argument from finish() the next step may be made.
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
  /// Collective. Throws Error(mismatch) on all ranks where they differ in parameters or policy;
  /// Error(invalid_argument) for a policy that is none. The axis outlives the engine.
  DataParallel(Axis& axis, std::vector<Parameter> parameters, DataParallelPolicy policy = {});
  /// Waits for what has been started.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  std::size_t size() const { return parameters_.size(); }
  const Parameter& parameter(std::size_t i) const { return parameters_[i]; }
  /// Where gradient i is written, from one finish() to the next, and its average after finish().
  void* gradient(std::size_t i) const { return flat_->data() + layout_.offset_of[i]; }
  /// The same, in memory that stays as long as somebody keeps it, whatever becomes of the engine.
  std::shared_ptr<void> kept_gradient(std::size_t i) const { return {flat_, gradient(i)}; }
  /// All gradients become 0.
  void zero();

  /// Gradient i is there, and is not touched until finish() has returned. Throws
  /// Error(invalid_usage) for a second time in one backward.
  void ready(std::size_t i);
  bool is_ready(std::size_t i) const { return ready_.at(i) != 0; }
  /// Backward is over, on this rank: waits until all gradients are averages. True when they have
  /// moved: gradient() gives other addresses from now on, as it does once, after the first step,
  /// where the policy learns the order. Throws Error(mismatch) on all ranks for gradients that are
  /// missing somewhere (Unused::error), Error(invalid_argument) on all for those that are not
  /// finite (check_finite).
  [[nodiscard]] bool finish();

  /// While it lives, backward (ready() and finish()) only adds to gradients and nothing is
  /// communicated: for all but the last micro-batch of a step. A gradient that was ready in any of
  /// them is not missing in the last one. Ranks that do not hold it for as many backwards as others
  /// throw Error(mismatch), all of them; where some do not hold it at all, the axis has failed
  /// then.
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
  /// until they have run out of it too. The averages are those of the ranks that have data. After
  /// each step of theirs `after_step` is called, with the averages in gradient(): a rank that makes
  /// the optimizer's step there has the others' parameters in the end. finish() may have moved the
  /// gradients before it.
  void join(const std::function<void()>& after_step = {});
  /// The first rank that had data in the step that is over: 0, but for uneven_inputs. The same on
  /// all ranks.
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
    MemoryUse memory;  // of the engine: gradients, and what the policy takes besides
  };
  Statistics statistics() const;
  /// Bytes and calls.
  const Traffic& traffic() const { return axis_.traffic(); }
  const BucketLayout& layout() const { return layout_; }

 private:
  // What was ready (data_parallel.cpp).
  bool synchronises() const { return no_sync_ == 0; }
  /// One bucket alone is there when backward is over: nothing to overlap with.
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
  std::string describe(std::size_t bucket) const;
  static std::string describe(const char* what) { return what; }

  Axis& axis_;
  const std::vector<Parameter> parameters_;
  const DataParallelPolicy policy_;
  const std::shared_ptr<MemoryPool> memory_ = std::make_shared<MemoryPool>();
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
  std::size_t not_finite_ = 0;          // the first such gradient of this rank, and 1; 0: none
  // Backwards since the last average, with this one; 0: the rank has no data. By rank, where they
  // are asked for.
  std::uint64_t own_backwards_ = 1;
  std::vector<std::uint64_t> backwards_;
  Pending backwards_pending_;
  Statistics statistics_;
};

}  // namespace tutti::parallel
