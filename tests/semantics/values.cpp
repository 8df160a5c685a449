#include "tests/semantics/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

#include "core/memory.h"
#include "tests/core/core_reference.h"

namespace tutti::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostFaults = 5;

std::uint64_t hash_of(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t h = a * 0x9E3779B97F4A7C15 ^ b * 0xC2B2AE3D27D4EB4F ^ c * 0x165667B19E3779F9;
  h = (h ^ h >> 31) * 0xBF58476D1CE4E5B9;
  return h ^ h >> 29;
}

// --- Elements ------------------------------------------------------------------------------------

bool has_infinity(DataType type) { return type != DataType::float8_e4m3; }

/// The largest finite number, and the smallest one above 0.
double largest(DataType type) {
  if (type == DataType::float64) return std::numeric_limits<double>::max();
  if (type == DataType::float32) return std::numeric_limits<float>::max();
  return reference::narrow_float(type).magnitudes().end()[-2];
}
double smallest(DataType type) {
  if (type == DataType::float64) return std::numeric_limits<double>::denorm_min();
  if (type == DataType::float32) return std::numeric_limits<float>::denorm_min();
  return reference::narrow_float(type).magnitudes()[1];
}

/// The bits of a number that the type has, or of infinity; of a NaN, one of several by `which`:
/// quiet, negative, and signalling where there is one.
std::uint64_t bits_of(DataType type, double value, std::uint64_t which = 0) {
  if (std::isnan(value)) {
    const std::uint64_t sign = which % 2;
    const bool signals = which % 4 >= 2;
    switch (type) {
      case DataType::float64:
        return sign << 63 | (signals ? 0x7FF0000000000001 : 0x7FF8000000000000 + which % 7);
      case DataType::float32:
        return sign << 31 | (signals ? 0x7F800001 : 0x7FC00000 + which % 7);
      case DataType::float16:
        return sign << 15 | (signals ? 0x7C01 : 0x7E00 + which % 7);
      case DataType::bfloat16:
        return sign << 15 | (signals ? 0x7F81 : 0x7FC0 + which % 7);
      case DataType::float8_e5m2:
        return sign << 7 | (signals ? 0x7D : 0x7E);
      default:
        return sign << 7 | 0x7F;
    }
  }
  return reference::float_to<double>(type, value);
}
bool is_nan(DataType type, std::uint64_t bits) {
  return is_float(type) && std::isnan(reference::float_from<double>(type, bits));
}

std::uint64_t mask_of(DataType type) { return ~std::uint64_t{0} >> (64 - 8 * size_of(type)); }
bool is_signed(DataType type) {
  return type == DataType::int8 || type == DataType::int32 || type == DataType::int64;
}
/// An integer's value, in 64 bits: with its sign.
std::int64_t extended(DataType type, std::uint64_t bits) {
  const auto unused = static_cast<unsigned>(64 - 8 * size_of(type));
  const std::uint64_t at_the_top = bits << unused;
  return is_signed(type) ? static_cast<std::int64_t>(at_the_top) >> unused
                         : static_cast<std::int64_t>(at_the_top >> unused);
}

double scalar_of(DataType type, int rank) {
  if (!is_float(type)) return rank % 2 == 0 ? 3 : 5;
  return rank % 2 == 0 ? 2 : -1;
}

/// Numbers of which up to four, in any order, have an exact sum, product or average in any type.
double float_input(DataType type, ReduceKind kind, int ranks, int rank, std::size_t i) {
  const std::uint64_t h = hash_of(i, static_cast<std::uint64_t>(rank), 1);
  const double sign = h % 2 == 0 ? 1 : -1;
  const double infinity = has_infinity(type)        ? kInfinity
                          : kind == ReduceKind::avg ? 2.0 * ranks
                                                    : 2;
  switch (i % 16) {  // what chance does not bring
    case 0:
      return -0.0;
    case 1:
      return rank == ranks - 1 ? kNaN : 1;
    case 2:
      return rank == 0 ? kNaN : -infinity;
    case 3:
      if (kind == ReduceKind::sum) return largest(type);
      if (kind == ReduceKind::avg && ranks <= 2) return largest(type);
      break;
    case 4:
      if (kind == ReduceKind::sum) return sign * smallest(type);
      if (kind == ReduceKind::pre_multiplied_sum) return sign * smallest(type);
      if (kind == ReduceKind::avg) return sign * ranks * smallest(type);
      break;
    default:
      break;
  }
  const std::uint64_t which = h >> 8 & 15;
  if (kind == ReduceKind::min || kind == ReduceKind::max) {
    const double values[] = {0,        0, 1, largest(type), smallest(type), 2 * smallest(type),
                             infinity, 2};
    return which == 15 && h >> 16 & 1 ? kNaN : sign * values[which % 8];
  }
  if (which == 0) return kNaN;
  if (which <= 2) return sign * infinity;
  if (which <= 6) return sign * 0;
  if (kind == ReduceKind::avg) return sign * ranks * static_cast<double>(1 + which % 2);
  if (kind == ReduceKind::pre_multiplied_sum) return sign;
  if (kind == ReduceKind::prod && which > 11) return sign * 0.5;
  return sign * static_cast<double>(1 + which % 2);
}

std::uint64_t input(DataType type, ReduceKind kind, int ranks, int rank, std::size_t i) {
  const std::uint64_t h = hash_of(i, static_cast<std::uint64_t>(rank), 2);
  if (is_float(type)) return bits_of(type, float_input(type, kind, ranks, rank, i), h);
  return h & mask_of(type);
}

/// What docs/semantics.md says of element i. `invariant`: an average divides the sum, which may
/// overflow, and not each input.
std::uint64_t expected_float(DataType type, ReduceKind kind, int ranks, bool invariant,
                             std::size_t i) {
  double result = 0;
  for (int r = 0; r < ranks; ++r) {
    double x = float_input(type, kind, ranks, r, i);
    if (kind == ReduceKind::avg && !invariant) x /= ranks;
    if (kind == ReduceKind::pre_multiplied_sum) x *= scalar_of(type, r);
    if (r == 0) {
      result = x;
    } else if (kind == ReduceKind::prod) {
      result *= x;
    } else if (kind == ReduceKind::min || kind == ReduceKind::max) {
      result = reference::extreme(result, x, kind == ReduceKind::min);
    } else {
      result += x;
    }
  }
  if (kind == ReduceKind::avg && invariant) {
    // It is summed in float32, or the type.
    const bool wide = type == DataType::float64;
    result = (wide ? result : static_cast<double>(static_cast<float>(result))) / ranks;
  }
  return bits_of(type, result);
}

std::uint64_t expected_integer(DataType type, ReduceKind kind, int ranks, std::size_t i) {
  std::uint64_t result = 0;
  for (int r = 0; r < ranks; ++r) {
    std::uint64_t x = input(type, kind, ranks, r, i);
    if (kind == ReduceKind::pre_multiplied_sum) {
      x *= static_cast<std::uint64_t>(scalar_of(type, r));
    }
    const bool less = is_signed(type) ? extended(type, x) < extended(type, result) : x < result;
    if (r == 0) {
      result = x;
    } else if (kind == ReduceKind::prod) {
      result *= x;
    } else if (kind == ReduceKind::min) {
      result = less ? x : result;
    } else if (kind == ReduceKind::max) {
      result = less ? result : x;
    } else {
      result += x;
    }
    result &= mask_of(type);
  }
  if (kind != ReduceKind::avg) return result;
  if (is_signed(type)) {
    result = static_cast<std::uint64_t>(extended(type, result) / ranks);  // towards zero
  } else {
    result /= static_cast<std::uint64_t>(ranks);
  }
  return result & mask_of(type);
}

// --- Buffers -------------------------------------------------------------------------------------

/// Elements between two margins, some bytes off the alignment of the type.
class Buffer {
 public:
  static constexpr std::size_t kMargin = 64;
  static constexpr std::byte kMark{0xA5};

  Buffer(DataType type, std::size_t count, bool window, std::size_t off)
      : type_(type), count_(count), off_(off), bytes_(2 * kMargin + off + count * size_of(type)) {
    if (window) {
      memory_ = {static_cast<std::byte*>(allocate(bytes_)), [](std::byte* p) { deallocate(p); }};
    } else {
      memory_ = {new std::byte[bytes_], [](std::byte* p) { delete[] p; }};
    }
    std::fill_n(memory_.get(), bytes_, kMark);
  }

  std::byte* data(std::size_t element = 0) const {
    return memory_.get() + kMargin + off_ + element * size_of(type_);
  }
  std::uint64_t get(std::size_t i) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, data(i), size_of(type_));
    return bits;
  }
  void set(std::size_t i, std::uint64_t bits) const { std::memcpy(data(i), &bits, size_of(type_)); }
  /// Whether all bytes but those of elements [begin, end) are as they were.
  bool rest_is_marked(std::size_t begin, std::size_t end) const {
    const auto marked = [](std::byte b) { return b == kMark; };
    return std::all_of(static_cast<const std::byte*>(memory_.get()),
                       static_cast<const std::byte*>(data(begin)), marked) &&
           std::all_of(static_cast<const std::byte*>(data(end)),
                       static_cast<const std::byte*>(memory_.get() + bytes_), marked);
  }
  std::size_t count() const { return count_; }

 private:
  DataType type_;
  std::size_t count_, off_, bytes_;
  std::unique_ptr<std::byte, void (*)(std::byte*)> memory_{nullptr, nullptr};
};

// --- Calls ---------------------------------------------------------------------------------------

class Checker {
 public:
  Checker(Communicator& c, const ValueCases& cases) : c_(c), cases_(cases) {}

  std::vector<std::string> faults;

  void reductions(DataType type, ReduceKind kind, std::size_t block) {
    const auto ranks = static_cast<std::size_t>(c_.size());
    const auto rank = static_cast<std::size_t>(c_.rank());
    const std::size_t n = ranks * block;
    type_ = type;
    what_ = fmt::format("{} {}, {} ranks x {}", name(type), name(kind), ranks, block);
    std::vector<std::uint64_t> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = is_float(type)
                        ? expected_float(type, kind, c_.size(), c_.options().invariant, i)
                        : expected_integer(type, kind, c_.size(), i);
    }
    ReduceOp op(kind);
    if (kind == ReduceKind::pre_multiplied_sum) {
      op = ReduceOp::pre_multiplied_sum(type, scalar_of(type, c_.rank()));
    }
    const auto filled = [&] {
      Buffer in(type, n, cases_.window, ++buffers_ % 5);
      for (std::size_t i = 0; i < n; ++i) {
        in.set(i, input(type, kind, c_.size(), c_.rank(), i));
      }
      return in;
    };
    const Buffer in = filled();
    Call call{.in = in.data(), .count = n, .type = type, .op = op};
    const auto expect = [&](const Buffer& out, std::size_t from, std::size_t count,
                            std::size_t at = 0) {
      for (std::size_t i = 0; i < count; ++i) {
        expect_element(out.get(at + i), expected[from + i], from + i);
      }
      if (!out.rest_is_marked(at, at + count)) fault("writes outside of its output");
      for (std::size_t i = 0; i < n; ++i) {
        if (in.get(i) != input(type, kind, c_.size(), c_.rank(), i)) fault("writes to its input");
      }
    };
    {
      const Buffer out = empty(n);
      run(call, Collective::all_reduce, out);
      expect(out, 0, n);
    }
    {
      const Buffer both = filled();
      call.in = both.data();
      run(call, Collective::all_reduce, both);
      call.in = in.data();
      for (std::size_t i = 0; i < n; ++i) expect_element(both.get(i), expected[i], i);
    }
    {
      const Buffer out = empty(n);
      call.root = c_.size() - 1;
      run(call, Collective::reduce, out);
      expect(out, 0, c_.rank() == call.root ? n : 0);
    }
    call.count = block;
    {
      const Buffer out = empty(block);
      run(call, Collective::reduce_scatter, out);
      expect(out, rank * block, block);
    }
    {
      // Rank 0 takes nothing, the last one what it leaves.
      std::vector<std::size_t> counts(ranks, block);
      counts.front() -= block;
      counts.back() += block;
      const std::size_t from = rank == 0 ? 0 : (rank - 1) * block;
      const Buffer out = empty(counts[rank]);
      call.count = 0;
      call.in_counts = counts;
      run(call, Collective::reduce_scatter_v, out);
      expect(out, from, counts[rank]);
    }
  }

  void copies(DataType type, std::size_t block) {
    const auto ranks = static_cast<std::size_t>(c_.size());
    const auto rank = static_cast<std::size_t>(c_.rank());
    const std::size_t n = ranks * block;
    const int root = c_.size() - 1;
    type_ = type;
    what_ = fmt::format("{}, {} ranks x {}", name(type), ranks, block);
    // Any bits: NaNs of all kinds are among them.
    const auto bits = [&](std::size_t r, std::size_t i) {
      const std::uint64_t h = hash_of(i, r, 3);
      const bool special = is_float(type) && h % 3 == 0;
      return (special ? bits_of(type, kNaN, h >> 8) : h) & mask_of(type);
    };
    const Buffer in(type, n, cases_.window, ++buffers_ % 5);
    for (std::size_t i = 0; i < n; ++i) in.set(i, bits(rank, i));
    // Blocks of `block`: from rank r, its elements from begin(r) on.
    const auto expect = [&](const char* call, const Buffer& out, std::size_t blocks, auto&& from,
                            auto&& begin) {
      for (std::size_t b = 0; b < blocks; ++b) {
        for (std::size_t i = 0; i < block; ++i) {
          const std::size_t r = from(b);
          if (out.get(b * block + i) == bits(r, begin(b) + i)) continue;
          fault(fmt::format("{}: element {} from rank {} has other bits", call, i, r));
        }
      }
      if (!out.rest_is_marked(0, blocks * block)) fault(fmt::format("{} writes outside", call));
    };
    const auto rooted = [&](std::size_t) { return static_cast<std::size_t>(root); };
    const auto itself = [](std::size_t b) { return b; };
    const auto packed = [&](std::size_t b) { return b * block; };
    const auto none = [](std::size_t) { return std::size_t{0}; };
    const auto mine = [&](std::size_t) { return rank * block; };
    Call call{.in = in.data(), .count = block, .type = type, .root = root};
    const bool is_root = c_.rank() == root;
    const Buffer wide = empty(n), narrow = empty(block), whole = empty(n), at_root = empty(n),
                 swapped = empty(n);
    run(call, Collective::all_gather, wide);
    expect("all_gather", wide, ranks, itself, none);
    run(call, Collective::scatter, narrow);
    expect("scatter", narrow, 1, rooted, mine);
    run(call, Collective::gather, at_root);
    expect("gather", at_root, is_root ? ranks : 0, itself, none);
    run(call, Collective::all_to_all, swapped);
    expect("all_to_all", swapped, ranks, itself, mine);
    call.count = n;
    run(call, Collective::broadcast, whole);
    expect("broadcast", whole, ranks, rooted, packed);
  }

 private:
  Buffer empty(std::size_t count) { return {type_, count, cases_.window, ++buffers_ % 5}; }

  /// One after the other in each way that there is.
  void run(Call& call, Collective collective, const Buffer& out) {
    call.collective = collective;
    call.out = out.data();
    how_ = name(collective);
    if (cases_.run) return cases_.run(c_, call);
    switch (++calls_ % 3) {
      case 0:
        return c_.run(call);
      case 1:
        how_ += ", started";
        return c_.start(call).wait();
      default:
        how_ += ", in a group";
        return group([&] { c_.run(call); });
    }
  }

  void expect_element(std::uint64_t got, std::uint64_t expected, std::size_t i) {
    if (got == expected || (is_nan(type_, expected) && is_nan(type_, got))) return;
    fault(fmt::format("element {} has the bits {:#x}, and not {:#x}", i, got, expected));
  }
  void fault(const std::string& why) {
    if (faults.size() >= kMostFaults) return;
    faults.push_back(fmt::format("rank {}, {}, {}: {}", c_.rank(), what_, how_, why));
  }

  Communicator& c_;
  const ValueCases& cases_;
  DataType type_ = DataType::uint8;
  std::string what_, how_;
  std::size_t buffers_ = 0, calls_ = 0;
};

}  // namespace

std::vector<std::string> wrong_values(Communicator& c, const ValueCases& cases) {
  Checker checker(c, cases);
  for (int t = 0; t < kDataTypes; ++t) {
    for (int k = 0; k < kReduceKinds; ++k) {
      for (const std::size_t block : cases.blocks) {
        checker.reductions(static_cast<DataType>(t), static_cast<ReduceKind>(k), block);
      }
    }
  }
  return checker.faults;
}

std::vector<std::string> wrong_copies(Communicator& c, const ValueCases& cases) {
  Checker checker(c, cases);
  for (int t = 0; t < kDataTypes; ++t) {
    for (const std::size_t block : cases.blocks) {
      checker.copies(static_cast<DataType>(t), block);
    }
  }
  return checker.faults;
}

}  // namespace tutti::test
