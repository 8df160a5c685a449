// Test data with one right answer; data.h says how it is made.
#include "bench/perf/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "bench/perf/numbers.h"

namespace tutti::perf {

namespace {

// Stand in for a rank where a hash belongs to a position, or to filler.
constexpr int kPosition = -1;
constexpr int kFiller = -2;

constexpr int kWidestScale = 16;      // sums: 2^-16 .. 2^16 is variety enough
constexpr int kMostFactorsOf2 = 100;  // products: ranks that multiply by 2 or 1/2

template <DataType type>
using Type = std::integral_constant<DataType, type>;

// Calls write(Type<type>), so that what it calls is compiled for each type.
template <class Write>
void with_type(DataType type, const Write& write) {
  switch (type) {
    case DataType::int8:
      return write(Type<DataType::int8>());
    case DataType::uint8:
      return write(Type<DataType::uint8>());
    case DataType::int32:
      return write(Type<DataType::int32>());
    case DataType::uint32:
      return write(Type<DataType::uint32>());
    case DataType::int64:
      return write(Type<DataType::int64>());
    case DataType::uint64:
      return write(Type<DataType::uint64>());
    case DataType::float16:
      return write(Type<DataType::float16>());
    case DataType::float32:
      return write(Type<DataType::float32>());
    case DataType::float64:
      return write(Type<DataType::float64>());
    case DataType::bfloat16:
      return write(Type<DataType::bfloat16>());
    case DataType::float8_e4m3:
      return write(Type<DataType::float8_e4m3>());
    case DataType::float8_e5m2:
      return write(Type<DataType::float8_e5m2>());
  }
}

// Writes bits(i) as each element. `out` may be unaligned.
template <DataType type, class Bits>
void write_elements(void* out, std::size_t count, const Bits& bits) {
  auto* element = static_cast<std::byte*>(out);
  for (std::size_t i = 0; i < count; ++i, element += size_of(type)) store(type, element, bits(i));
}

bool is_sum(ReduceKind kind) {
  return kind == ReduceKind::sum || kind == ReduceKind::avg ||
         kind == ReduceKind::pre_multiplied_sum;
}

// A number below `bound` from 32 random bits, without a division.
std::uint64_t below(std::uint64_t random, std::uint64_t bound) { return random * bound >> 32; }

std::uint64_t scalar_of(int rank) { return rank % 2 == 0 ? 1 : 2; }

}  // namespace

// Inline: it is most of the work.
[[gnu::always_inline]] inline std::uint64_t Data::hash(int rank, std::uint64_t position) const {
  return mix(key_ + static_cast<std::uint64_t>(rank + 3) * 0x9e3779b97f4a7c15u +
             position * 0xd1342543de82ef95u);
}

Data::Data(const Recipe& recipe) : recipe_(recipe), key_(mix(recipe.seed + 1)) {
  if (!recipe.kind || !is_float(recipe.type)) return;
  const FloatFormat format = float_format(recipe.type);
  const auto ranks = static_cast<std::uint64_t>(recipe.ranks);
  if (*recipe.kind == ReduceKind::prod) {
    // The product of any ranks is between 2^-k and 2^(k+1): neither subnormal nor infinite.
    product_contributors_ =
        std::min({recipe.ranks, format.bias() - 1, format.max_exponent - 1, kMostFactorsOf2});
    return;
  }
  if (!is_sum(*recipe.kind)) return;

  // Integers up to 2^precision are exact. The contributors share that range, each at least 2 of it,
  // so that a doubled or a negated contribution is another value.
  // What compressed messages carry exactly, if the scales of a block are the same.
  constexpr int kCompressed = 6;
  const std::uint64_t whole = std::uint64_t{1}
                              << (recipe.compressed ? kCompressed : format.precision());
  const std::uint64_t range = *recipe.kind == ReduceKind::pre_multiplied_sum ? whole / 2 : whole;
  const std::uint64_t contributors = std::min(ranks, range / 2);
  sum_.contributors = static_cast<int>(contributors);
  sum_.magnitude = std::bit_floor(range / contributors);
  sum_.factor = 1;
  sum_.shift = 0;
  sum_.scale_high = std::min(format.max_exponent - format.precision(), kWidestScale);
  sum_.scale_low = std::max(format.quantum(), -kWidestScale);
  if (recipe.compressed) sum_.scale_low = sum_.scale_high = 0;
  if (*recipe.kind != ReduceKind::avg) return;

  const int shift = std::countr_zero(ranks);
  const std::uint64_t factor = ranks >> shift;
  const int scale_low = std::max(sum_.scale_low, format.quantum() + shift);
  if (factor <= whole && scale_low <= sum_.scale_high) {
    // Exact whether each input is divided or, with invariant bits, the sum.
    const std::uint64_t few = std::min(contributors, whole / factor);
    sum_.contributors = static_cast<int>(few);
    sum_.magnitude = std::bit_floor(whole / (few * factor));
    sum_.factor = factor;
    sum_.shift = shift;
    sum_.scale_low = scale_low;
  } else {  // no multiple of `ranks` fits into the mantissa
    sum_.contributors = 1;
    sum_.magnitude = whole;
    sum_.scale_low = sum_.scale_high;
    divides_late_ = true;
  }
}

ReduceOp Data::op(int rank) const {
  const ReduceKind kind = recipe_.kind.value_or(ReduceKind::sum);
  if (kind != ReduceKind::pre_multiplied_sum) return kind;
  return ReduceOp::pre_multiplied_sum(recipe_.type, static_cast<double>(scalar_of(rank)));
}

void Data::input(int rank, std::uint64_t first, std::size_t count, void* out) const {
  with_type(recipe_.type, [&](auto type) {
    write_elements<type>(out, count,
                         [&](std::size_t i) { return input_bits<type>(rank, first + i); });
  });
}

void Data::reduction(std::uint64_t first, std::size_t count, void* out) const {
  with_type(recipe_.type, [&](auto type) {
    write_elements<type>(out, count, [&](std::size_t i) { return reduced_bits<type>(first + i); });
  });
}

void Data::filler(std::uint64_t first, std::size_t count, void* out) const {
  with_type(recipe_.type, [&](auto type) {
    write_elements<type>(out, count, [&](std::size_t i) { return hash(kFiller, first + i); });
  });
}

std::uint64_t Data::position_hash(std::uint64_t position) const {
  return hash(kPosition, position);
}

int Data::first_contributor(std::uint64_t position) const {
  return static_cast<int>(
      below(position_hash(position) >> 32, static_cast<std::uint64_t>(recipe_.ranks)));
}

// The contributors are consecutive ranks from first_contributor() on, modulo the number of ranks.
bool Data::contributes(int rank, std::uint64_t position, int contributors) const {
  if (contributors == recipe_.ranks) return true;
  const int distance = rank - first_contributor(position);
  return (distance < 0 ? distance + recipe_.ranks : distance) < contributors;
}

std::int64_t Data::integer_of(int rank, std::uint64_t position) const {
  const std::uint64_t h = hash(rank, position);
  const auto integer = static_cast<std::int64_t>(1 + (h >> 1 & (sum_.magnitude - 1)));
  return (h & 1) != 0 ? -integer : integer;
}

double Data::scale_of(std::uint64_t position) const {
  const auto scales = static_cast<std::uint64_t>(sum_.scale_high - sum_.scale_low + 1);
  const int exponent =
      sum_.scale_low + static_cast<int>(below(position_hash(position) & 0xffffffffu, scales));
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);  // 2^exponent
}

// A float's contribution to a product.
template <DataType type>
double Data::factor_of(int rank, std::uint64_t position) const {
  const std::uint64_t h = hash(rank, position);
  std::uint64_t exponent = 1023;
  if (contributes(rank, position, product_contributors_)) exponent += (h & 2) != 0 ? 1 : -1;
  std::uint64_t mantissa = 0;
  if (first_contributor(position) == rank) {
    const int bits = float_format(type).mantissa_bits;
    mantissa = h >> (64 - bits) << (52 - bits);
  }
  return std::bit_cast<double>((h << 63) | (exponent << 52) | mantissa);
}

template <DataType type>
std::uint64_t Data::input_bits(int rank, std::uint64_t position) const {
  const std::uint64_t bits = truncate(type, hash(rank, position));
  if (!recipe_.kind) return bits;
  const ReduceKind kind = *recipe_.kind;
  if (!is_float(type)) return kind == ReduceKind::prod ? bits | 1 : bits;
  if (kind == ReduceKind::min || kind == ReduceKind::max) {
    if (!is_nan(type, bits)) return bits;
    return bits & ~(std::uint64_t{1} << float_format(type).mantissa_bits);  // of the exponent
  }
  if (kind == ReduceKind::prod) return encode(type, factor_of<type>(rank, position));
  if (!contributes(rank, position, sum_.contributors)) return 0;
  const std::int64_t integer = integer_of(rank, position) * static_cast<std::int64_t>(sum_.factor);
  return encode(type, static_cast<double>(integer) * scale_of(position));
}

template <DataType type>
std::uint64_t Data::reduced_bits(std::uint64_t position) const {
  const int ranks = recipe_.ranks;
  const ReduceKind kind = recipe_.kind.value_or(ReduceKind::sum);
  if (kind == ReduceKind::min || kind == ReduceKind::max) {
    std::uint64_t best = input_bits<type>(0, position);
    for (int rank = 1; rank < ranks; ++rank) {
      const std::uint64_t bits = input_bits<type>(rank, position);
      const bool less = order_key(type, bits) < order_key(type, best);
      if (less == (kind == ReduceKind::min)) best = bits;
    }
    return best;
  }
  if (!is_float(type)) return reduced_integer<type>(position);
  if (kind == ReduceKind::prod) {
    double product = 1;
    for (int rank = 0; rank < ranks; ++rank) product *= factor_of<type>(rank, position);
    return encode(type, product);
  }

  std::int64_t sum = 0;
  int rank = sum_.contributors == ranks ? 0 : first_contributor(position);
  for (int i = 0; i < sum_.contributors; ++i, rank = rank + 1 == ranks ? 0 : rank + 1) {
    const std::int64_t integer = integer_of(rank, position);
    sum += kind == ReduceKind::pre_multiplied_sum
               ? integer * static_cast<std::int64_t>(scalar_of(rank))
               : integer;
  }
  const double value = static_cast<double>(sum) * scale_of(position);
  if (!divides_late_) return encode(type, std::ldexp(value, -sum_.shift));
  if (type == DataType::float64) return encode(type, value / ranks);
  return encode(type, static_cast<float>(value) / static_cast<float>(ranks));
}

template <DataType type>
std::uint64_t Data::reduced_integer(std::uint64_t position) const {
  const ReduceKind kind = recipe_.kind.value_or(ReduceKind::sum);
  const int ranks = recipe_.ranks;
  std::uint64_t result = kind == ReduceKind::prod ? 1 : 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::uint64_t bits = input_bits<type>(rank, position);
    if (kind == ReduceKind::prod) {
      result *= bits;
    } else {
      result += kind == ReduceKind::pre_multiplied_sum ? bits * scalar_of(rank) : bits;
    }
  }
  result = truncate(type, result);
  if (kind != ReduceKind::avg) return result;
  if (!is_signed_integer(type)) return result / static_cast<std::uint64_t>(ranks);
  return truncate(type, static_cast<std::uint64_t>(sign_extend(type, result) / ranks));
}

}  // namespace tutti::perf
