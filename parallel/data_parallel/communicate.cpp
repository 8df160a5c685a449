// The collectives of the data-parallel engine: which, and in which order, the same on all ranks.
//
// A step has these; those in brackets only where they are needed:
//   [backwards]     all-gather of 8 bytes         uneven_inputs, or after a backward of no_sync()
//   buckets         all-reduce; all first rounds in the order of the buckets, then all second ones
//   [are any wrong] all-reduce of 8 bytes         on a GPU, for Unused::error
//   [whose fault]   all-gather of a few bytes     where the averages show that something is wrong
//   [the order]     broadcast of 4 B a parameter  after the first step
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/combine.h"
#include "core/convert.h"
#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/data_parallel/data_parallel.h"

namespace tutti::parallel {
namespace {

constexpr const char* kBackwards = "how many backwards ranks have had";

/// "w on ranks 1, 2"
std::string on_ranks(const std::string& parameter, const std::vector<int>& ranks) {
  return fmt::format("{} on rank{} {}", parameter, ranks.size() > 1 ? "s" : "",
                     fmt::join(ranks, ", "));
}

}  // namespace

/// Errors of a collective say which one it was.
template <class What, class Body>
void DataParallel::during(const What& what, const Body& body) const {
  try {
    body();
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("data parallel, step {}, {}: {}{}", statistics_.steps, describe(what),
                            error.what(),
                            error.code() == ErrorCode::mismatch
                                ? "; ranks are at different steps where no_sync() holds on some of "
                                  "them only"
                                : ""),
                error.rank());
  }
}

/// Reductions may be a user's: the others would wait for one that has thrown.
template <class Body>
auto DataParallel::reduced(std::size_t b, const Body& body) const {
  try {
    return body();
  } catch (const std::exception& e) {
    axis_.abort(fmt::format("rank {} failed in data parallel, step {}, when it reduced {}: {}",
                            axis_.world_rank(axis_.rank()), statistics_.steps, describe(b),
                            e.what()));
    throw;
  }
}

std::string DataParallel::describe(std::size_t b) const {
  const Bucket& bucket = layout_.buckets[b];
  return fmt::format("bucket {} of {} ({} to {})", b, layout_.buckets.size(),
                     parameters_[bucket.gradients.front()].name,
                     parameters_[bucket.gradients.back()].name);
}

void DataParallel::begin_step() {
  in_step_ = true;
  reduction_->begin(statistics_.steps);
  backwards_.clear();
  // A rank that was not under no_sync() where others were sends its gradients now, and meets this
  // call, which does not match.
  if (!policy_.uneven_inputs && own_backwards_ == 1) return;
  backwards_.resize(static_cast<std::size_t>(axis_.size()));
  during(kBackwards, [&] {
    backwards_pending_ = axis_.start(labelled(call_of(Collective::all_gather, &own_backwards_,
                                                      backwards_.data(), 1, DataType::uint64)),
                                     kBackwards);
  });
}

void DataParallel::wait_for_backwards() {
  during(kBackwards, [&] { backwards_pending_.wait(); });
}

void DataParallel::refuse_uneven_backwards() const {
  std::uint64_t first = 0;  // that is not of a rank without data
  for (std::size_t r = 0; r < backwards_.size(); ++r) {
    if (first == 0) first = backwards_[r];
    if (backwards_[r] == 0 || backwards_[r] == first) continue;
    throw Error(
        ErrorCode::mismatch,
        fmt::format("data parallel, step {}: rank {} has had {} backward(s) since the last "
                    "average, and another rank {}: no_sync() holds on some ranks only",
                    statistics_.steps, axis_.world_rank(static_cast<int>(r)), backwards_[r], first),
        axis_.world_rank(static_cast<int>(r)));
  }
}

void DataParallel::start_ready() {
  while (started_ < missing_.size() && missing_[started_] == 0) start(started_++, 0);
}

void DataParallel::start(std::size_t b, int round) {
  const Call call = labelled(reduced(b, [&] { return reduction_->prepare(b, round); }));
  if (call.count == 0) return;
  during(b, [&] {
    const std::string label = axis_.trace() ? fmt::format("bucket {}", b) : "";
    if (overlaps()) {
      pending_[b] = axis_.start(call, label);
    } else {
      axis_.run(call, label);
    }
  });
}

bool DataParallel::average() {
  const auto waited_before = axis_.traffic().waited;
  start_ready();
  wait_for_backwards();
  for (int round = 1; round <= reduction_->rounds(); ++round) {
    for (std::size_t b = 0; b < pending_.size(); ++b) {
      during(b, [&] { pending_[b].wait(); });
      if (round < reduction_->rounds()) {
        start(b, round);
      } else {
        reduced(b, [&] { reduction_->complete(b); });
      }
    }
  }
  try {
    check_results();
  } catch (...) {
    reduction_->discard();
    end_step();
    throw;
  }
  if (policy_.uneven_inputs) average_over_those_with_data();
  const bool moved = !order_known_ && learn_order();
  statistics_.last_exposed = axis_.traffic().waited - waited_before;
  statistics_.exposed += statistics_.last_exposed;
  ++statistics_.steps;
  end_step();
  return moved;
}

void DataParallel::average_over_those_with_data() {
  const auto all_ranks = static_cast<std::uint32_t>(backwards_.size());
  const auto some = all_ranks - static_cast<std::uint32_t>(std::ranges::count(backwards_, 0));
  if (some == all_ranks) return;
  for (const Bucket& b : layout_.buckets) {
    // Divided first, so that nothing overflows that would not have without the others' zeros.
    void* const data = flat_->data() + b.offset;
    const Source divided{data, Prescale::divide, 0};
    combine(b.type, ReduceKind::sum, {&data, 1}, {&divided, 1}, b.count, {.divisor = some});
    const auto all = ReduceOp::pre_multiplied_sum(b.type, axis_.size());
    const Source multiplied{data, Prescale::multiply, all.scalar};
    combine(b.type, ReduceKind::sum, {&data, 1}, {&multiplied, 1}, b.count);
  }
}

/// The first parameter in the buckets' order with an average that is not finite, where that is
/// checked; else size().
std::size_t DataParallel::first_not_finite() const {
  if (policy_.check_finite) {
    for (const Bucket& b : layout_.buckets) {
      for (const std::uint32_t i : b.gradients) {
        if (!all_finite(gradient(i), b.type, parameters_[i].count())) return i;
      }
    }
  }
  return parameters_.size();
}

/// The same answer on all ranks, so all ask for more or none does. On the host the averages say
/// it, which have the same bits everywhere. On a GPU, where nobody reads averages, ranks ask.
bool DataParallel::are_wrong_anywhere(std::size_t bad) {
  if (bad != parameters_.size()) return true;
  if (policy_.unused != Unused::error) return false;
  if (axis_.device().is_gpu()) {
    bool any = false;
    during("whether gradients are missing",
           [&] { any = Agreement(axis_).largest(absent_.size()) > 0; });
    return any;
  }
  return std::ranges::any_of(layout_.buckets, [&](const Bucket& b) {
    return b.count > 0 && !all_finite(flat_->data() + b.offset, b.type, 1);
  });
}

void DataParallel::check_results() {
  refuse_uneven_backwards();
  const std::size_t bad = first_not_finite();
  if (!are_wrong_anywhere(bad)) return;

  // From each rank: its first gradient that was not finite, and a bit for each that is missing.
  const std::size_t record = sizeof(std::uint64_t) + (parameters_.size() + 7) / 8;
  std::vector<std::uint8_t> own(record), all(record * static_cast<std::size_t>(axis_.size()));
  const std::uint64_t first = not_finite_;
  std::memcpy(own.data(), &first, sizeof(first));
  for (const std::uint32_t i : absent_) {
    own[sizeof(first) + i / 8] |= static_cast<std::uint8_t>(1u << i % 8);
  }
  during("whose gradients are wrong", [&] {
    axis_.run(
        labelled(call_of(Collective::all_gather, own.data(), all.data(), record, DataType::uint8)),
        "whose gradients are wrong");
  });
  if (policy_.unused == Unused::error) refuse_missing(all, record);
  if (policy_.check_finite) refuse_not_finite(all, record, bad);
}

void DataParallel::refuse_missing(std::span<const std::uint8_t> records, std::size_t record) const {
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> named;
  std::size_t more = 0;
  int culprit = -1;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::vector<int> ranks;
    for (int r = 0; r < axis_.size(); ++r) {
      const std::uint8_t bits =
          records[static_cast<std::size_t>(r) * record + sizeof(std::uint64_t) + i / 8];
      if ((bits >> i % 8 & 1) != 0) ranks.push_back(axis_.world_rank(r));
    }
    if (ranks.empty()) continue;
    if (culprit < 0 || ranks.front() < culprit) culprit = ranks.front();
    if (named.size() == kNamed) {
      ++more;
    } else {
      named.push_back(on_ranks(parameters_[i].name, ranks));
    }
  }
  if (named.empty()) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("data parallel, step {}: gradients were not ready when backward was "
                          "over: {}{}; where that is meant to be, the policy Unused::zero_fill "
                          "takes them for zero",
                          statistics_.steps, fmt::join(named, "; "),
                          more > 0 ? fmt::format("; and {} more", more) : ""),
              culprit);
}

void DataParallel::refuse_not_finite(std::span<const std::uint8_t> records, std::size_t record,
                                     std::size_t bad) const {
  for (int r = 0; r < axis_.size(); ++r) {
    std::uint64_t first = 0;
    std::memcpy(&first, records.data() + static_cast<std::size_t>(r) * record, sizeof(first));
    if (first == 0 || first > parameters_.size()) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("data parallel, step {}: the gradient of {} is not finite on rank {}",
                            statistics_.steps, parameters_[first - 1].name, axis_.world_rank(r)),
                axis_.world_rank(r));
  }
  if (bad == parameters_.size()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("data parallel, step {}: the average of the gradients of {} is not "
                          "finite, though each rank's is: they are too large for the type that "
                          "they are added in",
                          statistics_.steps, parameters_[bad].name));
}

bool DataParallel::learn_order() {
  // Rank 0 may lack some, or all where it had no data: they stay in their order, at the end.
  std::vector<std::uint8_t> known(parameters_.size());
  for (const std::uint32_t i : order_) known[i] = 1;
  std::vector<std::uint32_t> present;
  for (const Bucket& b : layout_.buckets) {
    for (const std::uint32_t i : b.gradients) {
      present.push_back(i);
      if (known[i] == 0) order_.push_back(i);
    }
  }
  during("the order of gradients", [&] {
    axis_.run(labelled(call_of(Collective::broadcast, order_.data(), order_.data(), order_.size(),
                               DataType::uint32)),
              "the order of gradients");
  });
  std::ranges::fill(known, std::uint8_t{0});
  for (const std::uint32_t i : order_) {
    if (i >= known.size() || std::exchange(known[i], 1) != 0) {
      throw Error(ErrorCode::internal, "data parallel: rank 0's order of gradients is none");
    }
  }
  order_known_ = true;
  if (order_ == present) return false;

  BucketLayout layout = lay_out(parameters_, order_, policy_);
  std::shared_ptr<Buffer> flat = shared_buffer(layout.bytes, memory_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    axis_.device().copy(flat->data() + layout.offset_of[i], gradient(i),
                        parameters_[i].count() * size_of(parameters_[i].type));
  }
  layout_ = std::move(layout);
  flat_ = std::move(flat);
  reduction_->bind(layout_, flat_->data());
  return true;
}

}  // namespace tutti::parallel
