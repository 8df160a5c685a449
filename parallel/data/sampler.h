// Which samples of a data set each rank sees, and in which order: all ranks compute the same
// permutation by themselves, and each takes its part. Nothing communicates.
//
//     DistributedSampler sampler({.samples = 50'000, .ranks = dp, .rank = dp_rank, .seed = 7});
//     for (...) { const std::size_t sample = sampler.next(); ... }   // epoch after epoch
//     texts["place"] = std::to_string(sampler.place());              // of all ranks: save it
//     sampler.go_to(place);                             // go on, with any number of ranks
//
// The order of an epoch is a permutation of all samples that seed and epoch alone decide. Step i of
// the job takes the next `ranks` samples of it, one for each rank. So a job that goes on with
// another number of ranks sees the rest of the epoch, and nothing twice. A place in the middle of
// an epoch belongs to the order in which it was saved (SampleOrder).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::parallel {

/// What happens at the end of an epoch where the number of ranks does not divide the samples.
enum class Tail : unsigned char {
  repeat,  // the first samples of the epoch once more, so that all ranks have equally many
  drop,    // the last samples are left out of this epoch
  uneven,  // some ranks have one sample fewer (uneven_inputs of the data-parallel engine)
};

/// How seed and epoch make a permutation. Which one, does not change from version to version.
enum class SampleOrder : unsigned char {
  /// The only one of versions without this choice, for jobs that go on from a place in the middle
  /// of an epoch that these have saved. Some orders are more likely than others: neighbours stay
  /// neighbours up to 30 % too often.
  four_rounds,
  /// Up to 256 samples all orders are equally likely; of more, no test has found a difference.
  uniform,
};

struct SamplerOptions {
  std::size_t samples = 0;  // at least 1
  int ranks = 1, rank = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  Tail tail = Tail::repeat;
  SampleOrder order = SampleOrder::uniform;
};

class DistributedSampler {
 public:
  /// Throws Error(invalid_argument).
  explicit DistributedSampler(const SamplerOptions& options);

  /// This rank's next sample; after the last of an epoch, the first of the next. Throws
  /// Error(invalid_usage) on a rank that has none in any epoch: of Tail::uneven, with fewer samples
  /// than ranks.
  std::size_t next();
  /// This rank's samples of the epoch that it is in, and those that are left.
  std::size_t samples_of_epoch() const { return of_epoch_; }
  std::size_t left() const { return of_epoch_ - done_; }
  std::uint64_t epoch() const { return epoch_; }

  /// The number of samples that the whole job has seen, in all epochs. The same on all ranks, which
  /// have called next() equally often.
  std::uint64_t place() const;
  /// Goes on from there: of a job with any number of ranks, and the same samples, seed, tail and
  /// order. The beginning of an epoch is a place in any order.
  void go_to(std::uint64_t place);

  /// The sample at a place of an epoch's permutation. (Public, as others may want the order.)
  static std::size_t permuted(std::size_t place, std::size_t samples, std::uint64_t seed,
                              std::uint64_t epoch, SampleOrder order = SampleOrder::uniform);

 private:
  void begin_epoch(std::uint64_t epoch, std::size_t from);

  const SamplerOptions options_;
  std::uint64_t epoch_ = 0;
  std::size_t from_ = 0;      // of the epoch's permutation: where this job (or its part) began
  std::size_t done_ = 0;      // next() in this epoch since then
  std::size_t of_epoch_ = 0;  // next() that this rank has in this epoch, from `from_` on
};

}  // namespace tutti::parallel
