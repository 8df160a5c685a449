// Names of data types and operators, and the scalar of pre_multiplied_sum as an element.
#include "core/types.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/float_types.h"

namespace tutti {
namespace {

struct TypeName {
  DataType type;
  std::string_view text;
};

// By value first, so that name() can index it; then what else is understood.
constexpr std::array kTypeNames{
    TypeName{DataType::int8, "int8"},
    TypeName{DataType::uint8, "uint8"},
    TypeName{DataType::int32, "int32"},
    TypeName{DataType::uint32, "uint32"},
    TypeName{DataType::int64, "int64"},
    TypeName{DataType::uint64, "uint64"},
    TypeName{DataType::float16, "float16"},
    TypeName{DataType::float32, "float32"},
    TypeName{DataType::float64, "float64"},
    TypeName{DataType::bfloat16, "bfloat16"},
    TypeName{DataType::float8_e4m3, "float8_e4m3"},
    TypeName{DataType::float8_e5m2, "float8_e5m2"},
    TypeName{DataType::float16, "half"},
    TypeName{DataType::float32, "float"},
    TypeName{DataType::float64, "double"},
    TypeName{DataType::float8_e4m3, "f8e4m3"},
    TypeName{DataType::float8_e5m2, "f8e5m2"},
};

struct KindName {
  ReduceKind kind;
  std::string_view text;
};

constexpr std::array kKindNames{
    KindName{ReduceKind::sum, "sum"},
    KindName{ReduceKind::prod, "prod"},
    KindName{ReduceKind::max, "max"},
    KindName{ReduceKind::min, "min"},
    KindName{ReduceKind::avg, "avg"},
    KindName{ReduceKind::pre_multiplied_sum, "pre_multiplied_sum"},
    KindName{ReduceKind::pre_multiplied_sum, "mulsum"},
};

template <class Integer>
std::uint64_t integer_bits(DataType type, double value) {
  const double whole = std::trunc(value);
  // 2^digits is a double exactly, where the largest value of a 64-bit integer is not.
  const double limit = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  const double lowest = std::numeric_limits<Integer>::is_signed ? -limit : 0.0;
  if (!(whole >= lowest && whole < limit)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("pre_multiplied_sum: the scalar {} does not fit into {}; use a number "
                            "in its range, or a floating point type",
                            value, name(type)));
  }
  return static_cast<std::make_unsigned_t<Integer>>(static_cast<Integer>(whole));
}

}  // namespace

std::string_view name(DataType type) {
  return is_valid(type) ? kTypeNames[static_cast<std::size_t>(type)].text : "?";
}

std::string_view name(ReduceKind kind) {
  return is_valid(kind) ? kKindNames[static_cast<std::size_t>(kind)].text : "?";
}

std::optional<DataType> parse_data_type(std::string_view text) {
  for (const TypeName& entry : kTypeNames) {
    if (entry.text == text) return entry.type;
  }
  return std::nullopt;
}

std::optional<ReduceKind> parse_reduce_kind(std::string_view text) {
  for (const KindName& entry : kKindNames) {
    if (entry.text == text) return entry.kind;
  }
  return std::nullopt;
}

ReduceOp ReduceOp::pre_multiplied_sum(DataType type, double scalar) {
  const auto bits = [&]() -> std::uint64_t {
    switch (type) {
      case DataType::int8:
        return integer_bits<std::int8_t>(type, scalar);
      case DataType::uint8:
        return integer_bits<std::uint8_t>(type, scalar);
      case DataType::int32:
        return integer_bits<std::int32_t>(type, scalar);
      case DataType::uint32:
        return integer_bits<std::uint32_t>(type, scalar);
      case DataType::int64:
        return integer_bits<std::int64_t>(type, scalar);
      case DataType::uint64:
        return integer_bits<std::uint64_t>(type, scalar);
      case DataType::float16:
        return to_float16(scalar);
      case DataType::float32:
        return std::bit_cast<std::uint32_t>(static_cast<float>(scalar));
      case DataType::float64:
        return std::bit_cast<std::uint64_t>(scalar);
      case DataType::bfloat16:
        return to_bfloat16(scalar);
      case DataType::float8_e4m3:
        return to_float8_e4m3(scalar);
      case DataType::float8_e5m2:
        return to_float8_e5m2(scalar);
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("pre_multiplied_sum: {} is no data type", static_cast<int>(type)));
  };
  return pre_multiplied_sum_of_bits(type, bits());
}

}  // namespace tutti
