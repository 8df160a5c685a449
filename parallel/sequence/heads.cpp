#include "parallel/sequence/heads.h"

#include <numeric>
#include <utility>

#include "parallel/layer_math.h"
#include "parallel/sequence/kernel.h"

namespace tutti::parallel::sequence {
namespace {

/// Part i of `count`, cut into `parts` as equal as can be.
Range share(std::size_t count, std::size_t parts, std::size_t i) {
  const std::size_t first = count * i / parts;
  return {first, count * (i + 1) / parts - first};
}

}  // namespace

std::vector<HeadShare> share_heads(std::size_t heads, std::size_t kv_heads, std::size_t ranks) {
  const std::size_t group = heads / kv_heads;
  std::vector<HeadShare> shares;
  if (kv_heads >= ranks) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const Range keys = share(kv_heads, ranks, r);
      shares.push_back({{keys.first * group, keys.count * group}, keys});
    }
    return shares;
  }
  for (std::size_t k = 0; k < kv_heads; ++k) {
    const std::size_t of_head = share(ranks, kv_heads, k).count;
    for (std::size_t r = 0; r < of_head; ++r) {
      const Range queries = share(group, of_head, r);
      shares.push_back({{k * group + queries.first, queries.count}, {k, 1}});
    }
  }
  return shares;
}

HeadExchange::HeadExchange(Axis& axis, std::size_t heads, std::vector<Range> shares,
                           std::size_t rows, std::size_t batch, std::size_t dim, DataType type)
    : axis_(axis),
      heads_(heads),
      rows_(rows),
      batch_(batch),
      dim_(dim),
      type_(type),
      shares_(std::move(shares)),
      row_(dim * size_of(type)) {
  const std::size_t own = shares_[static_cast<std::size_t>(axis.rank())].count;
  std::size_t end = 0;
  for (const Range& s : shares_) {
    firsts_.push_back(s.first);
    counts_.push_back(rows * batch * s.count * dim);
    own_counts_.push_back(rows * batch * own * dim);
    even_ = even_ && s.count == shares_.front().count;
    shared_ = shared_ || s.first < end;
    end = s.end();
  }
}

std::size_t HeadExchange::share_bytes() const {
  return std::accumulate(own_counts_.begin(), own_counts_.end(), std::size_t{0}) * size_of(type_);
}

std::size_t HeadExchange::message_bytes() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::size_t{0}) * size_of(type_);
}

template <class Copy>
void HeadExchange::for_each_rank(const Copy& copy) const {
  std::size_t message = 0;
  for (const Range& s : shares_) {
    copy(message, s.count * row_, s.first * row_);
    message += rows_ * batch_ * s.count * row_;
  }
}

void HeadExchange::start(InFlight& in_flight, const void* in, void* out, bool to_heads) const {
  if (even_) {
    in_flight.add(axis_, call_of(Collective::all_to_all, in, out, counts_.front(), type_));
    return;
  }
  Call call = call_of(Collective::all_to_all_v, in, out, 0, type_);
  call.in_counts = to_heads ? counts_ : own_counts_;
  call.out_counts = to_heads ? own_counts_ : counts_;
  in_flight.add(axis_, call);
}

void HeadExchange::to_heads(InFlight& in_flight, const void* own, void* messages,
                            void* share) const {
  for_each_rank([&](std::size_t message, std::size_t run, std::size_t first) {
    axis_.device().copy_rows(static_cast<std::byte*>(messages) + message, run,
                             static_cast<const std::byte*>(own) + first, heads_ * row_, run,
                             rows_ * batch_);
  });
  start(in_flight, messages, share, true);
}

void HeadExchange::to_rows(InFlight& in_flight, const void* share, void* messages) const {
  start(in_flight, share, messages, false);
}

void HeadExchange::finish(const void* messages, void* own) const {
  Device& device = axis_.device();
  if (shared_) {  // a message has one head
    device.layer_math()->sum_heads(type_, rows_ * batch_, dim_, heads_, firsts_, messages, own);
    return;
  }
  for_each_rank([&](std::size_t message, std::size_t run, std::size_t first) {
    device.copy_rows(static_cast<std::byte*>(own) + first, heads_ * row_,
                     static_cast<const std::byte*>(messages) + message, run, run, rows_ * batch_);
  });
}

}  // namespace tutti::parallel::sequence
