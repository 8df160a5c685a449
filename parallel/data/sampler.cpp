#include "parallel/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::parallel {
namespace {

constexpr int kRounds = 4;

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
  while (done_ == of_epoch_) begin_epoch(epoch_ + 1, 0);
  const std::size_t place = from_ + done_++ * static_cast<std::size_t>(options_.ranks) +
                            static_cast<std::size_t>(options_.rank);
  // Beyond the end (Tail::repeat) the epoch begins once more.
  const std::size_t within = place % options_.samples;
  return options_.shuffle ? permuted(within, options_.samples, options_.seed, epoch_) : within;
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

// A Feistel network over the next power of four, again and again until the place is one of the
// samples: a permutation that needs no memory, so that a place of a billion samples costs no more
// than of ten.
std::size_t DistributedSampler::permuted(std::size_t place, std::size_t samples, std::uint64_t seed,
                                         std::uint64_t epoch) {
  const int half = (std::bit_width(samples - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::uint64_t x = place;
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t key = mix(mix(seed, epoch), static_cast<std::uint64_t>(round));
      const std::uint64_t next = left ^ (mix(key, right) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= samples);
  return static_cast<std::size_t>(x);
}

}  // namespace tutti::parallel
