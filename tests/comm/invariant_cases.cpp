#include "tests/comm/invariant_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "core/memory.h"
#include "tests/core/core_reference.h"

namespace tutti::test {
namespace {

/// Inputs repeat after so many elements, and so do results: a prime, which divides no tile.
constexpr std::size_t kPeriod = 1009;

/// A number of rank `rank`, of no regular size: sums of them depend on their order.
std::uint64_t number(DataType type, int rank, std::size_t i) {
  std::uint64_t h = (i + 1) * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(rank + 1) * 0xd6e8feb86659fd93ULL;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ULL;
  h ^= h >> 32;
  const double v = std::ldexp(static_cast<double>(h >> 11), -53) * 2 - 1;
  const double scaled = v * (h % 3 == 0 ? 1.5 : 0.03);
  if (type == DataType::float64) return reference::float_to<double>(type, scaled);
  return reference::float_to<float>(type, static_cast<float>(scaled));
}

std::uint64_t scalar(DataType type, int rank) {
  const double v = 0.6 + 0.1 * (rank % 7);
  if (type == DataType::float64) return reference::float_to<double>(type, v);
  return reference::float_to<float>(type, static_cast<float>(v));
}

template <class Wide>
std::vector<std::byte> canonical(DataType type, ReduceKind kind, int ranks) {
  const std::size_t size = size_of(type);
  std::vector<std::byte> result(kPeriod * size);
  std::vector<Wide> terms(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < kPeriod; ++i) {
    for (int r = 0; r < ranks; ++r) {
      Wide& term = terms[static_cast<std::size_t>(r)];
      term = reference::float_from<Wide>(type, number(type, r, i));
      if (kind != ReduceKind::pre_multiplied_sum) continue;
      const Wide product = term * reference::float_from<Wide>(type, scalar(type, r));
      term = reference::float_from<Wide>(type, reference::float_to<Wide>(type, product));
    }
    Wide sum = reference::tree<Wide>(kind, terms);
    if (kind == ReduceKind::avg) sum /= static_cast<Wide>(ranks);
    const std::uint64_t bits = reference::float_to<Wide>(type, sum);
    std::memcpy(result.data() + i * size, &bits, size);
  }
  return result;
}

/// `count` elements: element i is element (first + i) % kPeriod of `period`.
void repeat(std::span<const std::byte> period, std::size_t size, std::size_t first,
            std::size_t count, std::byte* to) {
  for (std::size_t at = 0; at < count;) {
    const std::size_t from = (first + at) % kPeriod;
    const std::size_t n = std::min(kPeriod - from, count - at);
    std::memcpy(to + at * size, period.data() + from * size, n * size);
    at += n;
  }
}
bool is_repeated(std::span<const std::byte> period, std::size_t size, std::size_t first,
                 std::size_t count, const std::byte* found) {
  for (std::size_t at = 0; at < count;) {
    const std::size_t from = (first + at) % kPeriod;
    const std::size_t n = std::min(kPeriod - from, count - at);
    if (std::memcmp(found + at * size, period.data() + from * size, n * size) != 0) return false;
    at += n;
  }
  return true;
}

class Buffer {
 public:
  Buffer(std::size_t bytes, bool window) : window_(window) {
    data_ = static_cast<std::byte*>(window ? allocate(bytes) : std::malloc(bytes));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { window_ ? deallocate(data_) : std::free(data_); }
  std::byte* at(std::size_t byte) const { return data_ + byte; }

 private:
  bool window_;
  std::byte* data_;
};

class Run {
 public:
  Run(Communicator& c, const InvariantCases& cases)
      : c_(c), cases_(cases), ranks_(static_cast<std::size_t>(c.size())) {
    std::size_t most = 1;
    for (const std::size_t n : cases.counts) most = std::max(most, n);
    const std::size_t bytes = (most + 1) * 8;
    in_ = std::make_unique<Buffer>(bytes, cases.window);
    out_ = std::make_unique<Buffer>(bytes, cases.window);
  }

  InvariantTally run() {
    for (const DataType type : cases_.types) {
      type_ = type;
      size_ = size_of(type);
      input_.resize(kPeriod * size_);
      for (std::size_t i = 0; i < kPeriod; ++i) {
        const std::uint64_t bits = number(type, c_.rank(), i);
        std::memcpy(input_.data() + i * size_, &bits, size_);
      }
      for (const ReduceKind kind : cases_.kinds) {
        kind_ = kind;
        result_ = type == DataType::float64 ? canonical<double>(type, kind, c_.size())
                                            : canonical<float>(type, kind, c_.size());
        for (const std::size_t count : cases_.counts) run(count);
      }
    }
    return tally_;
  }

 private:
  void run(std::size_t count) {
    all_reduce(count);
    if (++turn_ % 2 == 0) reduce(count);
    if (count >= ranks_) turn_ % 3 == 0 ? scatter_unevenly(count) : scatter(count);
  }

  Call call(Collective collective, const std::byte* in, std::byte* out, std::size_t count) const {
    Call call;
    call.collective = collective;
    call.in = in;
    call.out = out;
    call.count = count;
    call.type = type_;
    call.op = kind_;
    if (kind_ == ReduceKind::pre_multiplied_sum) {
      call.op = ReduceOp::pre_multiplied_sum_of_bits(type_, scalar(type_, c_.rank()));
    }
    return call;
  }
  void make(const Call& call) {
    if (cases_.run) return cases_.run(c_, call);
    turn_ % 4 == 3 ? c_.start(call).wait() : c_.run(call);
  }
  /// The inputs, an element off the alignment every other time; where the result goes.
  std::byte* prepare(std::size_t count) {
    shift_ = turn_ % 2 * size_;
    repeat(input_, size_, 0, count, in_->at(shift_));
    return turn_ % 5 < 2 ? in_->at(shift_) : out_->at(shift_);
  }
  void check(std::string_view what, std::size_t count, const std::byte* found, std::size_t first,
             std::size_t own) {
    ++tally_.cases;
    if (is_repeated(result_, size_, first, own, found)) return;
    if (tally_.wrong++ > 0) return;
    tally_.first = fmt::format("{} of {} x {}, {}, on rank {} of {}, memory of {}, turn {}", what,
                               name(type_), count, name(kind_), c_.rank(), ranks_,
                               cases_.window ? "windows" : "malloc", turn_);
  }

  void all_reduce(std::size_t count) {
    std::byte* const out = prepare(count);
    if (turn_ % 3 == 1 && count >= 3) {
      // As buckets: three calls, which cut at odd places.
      std::size_t first = 0;
      for (const std::size_t n : {count / 5, count / 3, count - count / 5 - count / 3}) {
        make(call(Collective::all_reduce, in_->at(shift_) + first * size_, out + first * size_, n));
        first += n;
      }
    } else {
      make(call(Collective::all_reduce, in_->at(shift_), out, count));
    }
    check("all_reduce", count, out, 0, count);
  }

  void reduce(std::size_t count) {
    std::byte* const out = prepare(count);
    Call c = call(Collective::reduce, in_->at(shift_), out, count);
    c.root = static_cast<int>(turn_ / 2 % ranks_);
    make(c);
    const bool is_root = c.root == c_.rank();
    check("reduce", count, out, 0, is_root ? count : 0);
  }

  void scatter(std::size_t count) {
    prepare(count);
    const std::size_t block = count / ranks_;
    const std::size_t first = static_cast<std::size_t>(c_.rank()) * block;
    std::byte* const out = turn_ % 5 < 2 ? in_->at(shift_) + first * size_ : out_->at(shift_);
    make(call(Collective::reduce_scatter, in_->at(shift_), out, block));
    check("reduce_scatter", count, out, first, block);
  }

  void scatter_unevenly(std::size_t count) {
    prepare(count);
    std::vector<std::size_t> counts(ranks_, count / ranks_);
    if (ranks_ > 1) {  // the first has least, the last has all that is left
      counts.back() += counts.front() / 2 + count % ranks_;
      counts.front() -= counts.front() / 2;
    } else {
      counts[0] = count;
    }
    std::size_t first = 0;
    for (int r = 0; r < c_.rank(); ++r) first += counts[static_cast<std::size_t>(r)];
    const std::size_t own = counts[static_cast<std::size_t>(c_.rank())];
    Call c = call(Collective::reduce_scatter_v, in_->at(shift_), out_->at(shift_), 0);
    c.in_counts = counts;
    make(c);
    check("reduce_scatter_v", count, out_->at(shift_), first, own);
  }

  Communicator& c_;
  const InvariantCases& cases_;
  std::size_t ranks_;
  std::unique_ptr<Buffer> in_, out_;
  DataType type_{};
  std::size_t size_ = 0;
  ReduceKind kind_{};
  std::vector<std::byte> input_, result_;
  std::size_t turn_ = 0, shift_ = 0;
  InvariantTally tally_;
};

}  // namespace

InvariantTally run_invariant_cases(Communicator& c, const InvariantCases& cases) {
  return Run(c, cases).run();
}

}  // namespace tutti::test
