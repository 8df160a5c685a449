#include "parallel/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::parallel {
namespace {

/// Up to so many samples an order is shuffled; the network's halves are too short for its rounds.
constexpr std::size_t kShuffled = 256;

// Fisher and Yates exchange the elements n - 1 to 1 with one before it, or with itself. This
// follows one place back through the exchanges, so that no memory holds the order; those of the
// elements before `place` do not touch it.
std::size_t shuffled(std::size_t place, std::size_t samples, std::uint64_t key) {
  for (std::size_t i = std::max<std::size_t>(place, 1); i < samples; ++i) {
    const auto other = static_cast<std::size_t>((mix(key, i) >> 32) * (i + 1) >> 32);
    if (place == i) {
      place = other;
    } else if (place == other) {
      place = i;
    }
  }
  return place;
}

// A Feistel network over the next power of four, again and again until the place is one of the
// samples: a permutation that needs no memory, so that a place of a billion samples costs no more
// than of ten.
std::size_t through_network(std::size_t place, std::size_t samples, std::uint64_t key,
                            std::uint64_t rounds) {
  const int half = (std::bit_width(samples - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::uint64_t x = place;
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t next = left ^ (mix(mix(key, round), right) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= samples);
  return static_cast<std::size_t>(x);
}

}  // namespace

DistributedSampler::DistributedSampler(const SamplerOptions& options) : options_(options) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "a sampler: " + why);
  };
  if (options.samples == 0) refuse("there are no samples");
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    refuse(fmt::format("rank {} of {} ranks", options.rank, options.ranks));
  }
  if (options.tail == Tail::drop && options.samples < static_cast<std::size_t>(options.ranks)) {
    refuse(fmt::format("{} samples are fewer than {} ranks, so each epoch would be empty",
                       options.samples, options.ranks));
  }
  begin_epoch(0, 0);
}

void DistributedSampler::begin_epoch(std::uint64_t epoch, std::size_t from) {
  epoch_ = epoch;
  from_ = from;
  done_ = 0;
  const auto ranks = static_cast<std::size_t>(options_.ranks),
             rank = static_cast<std::size_t>(options_.rank);
  const std::size_t rest = options_.samples - from;
  switch (options_.tail) {
    case Tail::repeat:
      of_epoch_ = (rest + ranks - 1) / ranks;
      break;
    case Tail::drop:
      of_epoch_ = rest / ranks;
      break;
    case Tail::uneven:
      of_epoch_ = rest / ranks + (rank < rest % ranks ? 1 : 0);
      break;
  }
}

std::size_t DistributedSampler::next() {
  if (options_.tail == Tail::uneven &&
      options_.samples <= static_cast<std::size_t>(options_.rank)) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("a sampler: rank {} of {} has none of the {} samples in any epoch; look "
                    "at left() before next(), or take Tail::repeat",
                    options_.rank, options_.ranks, options_.samples));
  }
  while (done_ == of_epoch_) begin_epoch(epoch_ + 1, 0);
  const std::size_t place = from_ + done_++ * static_cast<std::size_t>(options_.ranks) +
                            static_cast<std::size_t>(options_.rank);
  // Beyond the end (Tail::repeat) the epoch begins once more.
  const std::size_t within = place % options_.samples;
  return options_.shuffle
             ? permuted(within, options_.samples, options_.seed, epoch_, options_.order)
             : within;
}

std::uint64_t DistributedSampler::place() const {
  const std::uint64_t in_epoch = from_ + done_ * static_cast<std::uint64_t>(options_.ranks);
  // What is left out ends the epoch, too.
  const bool ended = options_.tail == Tail::drop && done_ == of_epoch_;
  return epoch_ * options_.samples +
         (ended ? options_.samples : std::min<std::uint64_t>(in_epoch, options_.samples));
}

void DistributedSampler::go_to(std::uint64_t place) {
  begin_epoch(place / options_.samples, static_cast<std::size_t>(place % options_.samples));
}

std::size_t DistributedSampler::permuted(std::size_t place, std::size_t samples, std::uint64_t seed,
                                         std::uint64_t epoch, SampleOrder order) {
  const std::uint64_t key = mix(seed, epoch);
  if (order == SampleOrder::four_rounds) return through_network(place, samples, key, 4);
  if (samples <= kShuffled) return shuffled(place, samples, key);
  return through_network(place, samples, key, 12);
}

}  // namespace tutti::parallel
