// Expert parallelism: a layer of experts that the ranks of an axis divide among each other. Each
// rank has tokens of its own, and a router (router.h) sends each of them to a few experts. The rows
// of tokens travel to the ranks of their experts (dispatch), and the results travel back (combine):
//
//     ExpertParallel layer(axis, {.name = "moe", .experts = 8, .width = 512, .top_k = 2});
//     layer.forward(x, routing, experts, y, saved);    // experts: runs one expert on some rows
//     layer.backward(dy, gradients, saved, dx, dweights);
//
// y of a token is the sum over its experts of weight x expert(x). Rank r of P has experts r E / P
// to (r + 1) E / P. The engine exchanges the counts of rows; dispatch and combine are an
// all_to_all_v each for each expert of a rank (a wave): an expert's rows arrive one after the
// other, in the order of ranks and tokens, and it works while the next expert's rows travel there
// and the last one's results travel back. All waves have the same order on all ranks.
//
// Drop-less: experts take all rows, however skewed, and memory grows with what arrives. With a
// capacity, an expert takes at most so many rows of each rank, and the others have no part in y:
// first choices go before second ones, earlier tokens before later ones.
//
// Rows are memory of the axis's device. One thread at a time calls an engine. Functions throw
// tutti::Error. What a forward refuses before rows travel is refused on all ranks, and the axis
// stays good. What a backward refuses aborts the axis, as the other ranks wait for this one; so
// does an exception of an expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"
#include "../layer_math.h"
#include "../memory_pool.h"
#include "router.h"

namespace tutti::parallel {
class InFlight;
}

namespace tutti::parallel::expert {

/// The layer's sizes. The same on all ranks.
struct ExpertShape {
  std::string name{};
  std::size_t experts = 0;            // of all ranks: a multiple of the ranks
  std::size_t width = 0;              // elements of a row, the same before and after the experts
  DataType type = DataType::float32;  // a floating-point type
  std::size_t top_k = 1;
};

/// The options of the layer. The same on all ranks.
struct ExpertOptions {
  /// An expert takes at most capacity_factor x tokens x top_k / experts rows of a rank, rounded up,
  /// and at least one. None: it takes all.
  std::optional<double> capacity_factor{};
  /// Waves travel while experts work. Otherwise they travel on the caller's thread, which takes
  /// less time where experts do little. A rank with one expert has nothing to overlap with.
  bool overlap = true;
};

/// Runs the rank's expert `expert` (0 is its first) on `count` rows. Not called for 0 rows.
using Forward =
    std::function<void(std::size_t expert, const void* rows, std::size_t count, void* results)>;
/// Its backward: `rows` as in the forward. Adds to the gradients of its parameters, and writes
/// `drows`.
using Backward = std::function<void(std::size_t expert, const void* rows, const void* dresults,
                                    std::size_t count, void* drows)>;

class ExpertParallel;

/// What a backward needs of its forward: one for each micro-batch under way, used again for later
/// ones. A forward that throws leaves it as one of no forward. The engine outlives it.
class Saved {
 public:
  /// Rows that this rank's experts got, by expert.
  std::span<const std::size_t> received() const { return received_; }
  /// Choices of this rank's tokens that found no place (capacity).
  std::size_t dropped() const { return dropped_; }

 private:
  friend class ExpertParallel;
  static constexpr std::int64_t kDropped = -1;
  struct Wave {                                // of one expert of each rank
    std::vector<std::size_t> sent, received;   // rows to that of a rank; rows of a rank to mine
    std::size_t sent_at = 0, received_at = 0;  // rows of the waves before
  };
  std::vector<Wave> waves_;
  // A choice is a token's j-th: number t * top_k + j. Rows go in the order of waves, ranks,
  // choices.
  std::vector<std::int64_t> row_of_;    // by choice
  std::vector<std::size_t> choice_of_;  // by row
  std::vector<std::int64_t> token_of_;  // by row
  std::vector<double> weights_;         // by choice
  std::vector<std::size_t> received_;
  std::size_t tokens_ = 0, dropped_ = 0, received_rows_ = 0;
  std::uint16_t label_ = 0;
  Buffer rows_, results_;               // that arrived; that came back
  const ExpertParallel* of_ = nullptr;  // whose forward it is, all of it; null: of none
};

class ExpertParallel {
 public:
  /// Collective. Throws Error(mismatch) on all ranks if they differ, and Error(invalid_argument) on
  /// all if the ranks do not divide the experts, or a size, the type or the capacity is none.
  ExpertParallel(Axis& axis, ExpertShape shape, ExpertOptions options = {});

  std::size_t local_experts() const { return local_; }
  std::size_t first_expert() const { return local_ * static_cast<std::size_t>(axis_.rank()); }
  /// What a mean over the tokens of all ranks leaves to do for an expert's gradients: they hold the
  /// sum over the ranks of this axis already, so an average over the ranks that have the same
  /// expert is too large by the number of ranks here. Multiply them by this.
  double gradient_scale() const { return 1.0 / axis_.size(); }

  /// Collective. x: a row for each token of the routing, any number on each rank; y: the same, and
  /// not x. Throws Error(invalid_argument) on the ranks with a wrong routing (an expert out of
  /// range; another top_k), and Error(mismatch), with that rank and its error, on the others. In
  /// addition to the waves it costs an all_to_all of 8 (experts / P + 1) bytes.
  void forward(const void* x, const Routing& routing, const Forward& experts, void* y,
               Saved& saved);
  /// Collective, in the same order of micro-batches on all ranks; else all throw Error(mismatch).
  /// Throws Error(invalid_usage) if `saved` is of no forward of this engine.
  /// dy, dx: a row for each token; dx is written, and so is `dweights`, tokens x top_k: the
  /// gradient by the routing's weights, 0 for dropped choices.
  void backward(const void* dy, const Backward& experts, Saved& saved, void* dx,
                std::span<double> dweights);

  /// With R rows received and S sent (tokens x top_k, less the dropped ones), a `Saved` takes R + S
  /// rows. A forward needs R more, and a backward R + S more; the engine keeps that memory for
  /// later calls.
  MemoryUse memory() const { return memory_.total(); }

 private:
  // Which tokens' rows go where (expert_parallel.cpp).
  void check(const Routing& routing) const;
  std::vector<bool> within_capacity(const Routing& routing) const;
  void place(const Routing& routing, Saved& saved) const;
  void exchange_counts(const Routing& routing, const void* x, void* y, Saved& saved);
  // How they travel (travel.cpp).
  /// The memory of a journey, in rows.
  struct Places {
    std::byte* sent;     // S: those that go, and then the results that come back
    std::byte* arrived;  // R
    std::byte* results;  // R: what experts make of them
  };
  /// `fill(first, count, rows)` writes some of the rows that go; `work(expert, first, count)` runs
  /// an expert on `count` of the rows that have arrived.
  using Fill = std::function<void(std::size_t first, std::size_t count, std::byte* rows)>;
  using Work = std::function<void(std::size_t expert, std::size_t first, std::size_t count)>;
  void travel(const Saved& saved, const Places& places, const Fill& fill, const Work& work);
  void fill_wave(const Saved& saved, std::size_t wave, const Places& places,
                 const Fill& fill) const;
  void start_wave(InFlight& in_flight, const Saved& saved, std::size_t wave, bool back,
                  const Places& places);
  /// A token's row is the sum of factor (none: 1) x row of its choices.
  void sum_for_tokens(const Saved& saved, const std::byte* rows, std::span<const double> factors,
                      void* to) const;
  std::byte* room(Buffer& buffer, std::size_t rows);
  LayerMath& math() const { return *axis_.device().layer_math(); }
  /// Some rows, of those of the tokens.
  LayerMath::Chosen rows_of_tokens(const Saved& saved, std::size_t first, std::size_t count) const;

  Axis& axis_;
  const ExpertShape shape_;
  const ExpertOptions options_;
  const std::string what_;
  std::size_t local_ = 0, row_bytes_ = 0;
  std::uint16_t label_ = 0;
  std::uint64_t calls_ = 0;  // of forward()
  MemoryPool memory_;
  Buffer results_, dresults_, travelling_, products_;
};

}  // namespace tutti::parallel::expert
