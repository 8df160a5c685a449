// Data types and reduction operators: the vocabulary that every layer shares.
//
// The numbering is NCCL's (nccl.h, ncclDataType_t and ncclRedOp_t), so a binding converts by a
// cast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class DataType : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8_e4m3 = 10,  // OCP OFP8 E4M3: no infinity, one NaN pattern, largest value 448
  float8_e5m2 = 11,  // OCP OFP8 E5M2: IEEE-like, largest finite value 57344
};
inline constexpr int kDataTypes = 12;

enum class ReduceKind : std::uint8_t {
  sum = 0,
  prod = 1,
  max = 2,
  min = 3,
  avg = 4,                 // floats: every input is divided by the number of ranks, then summed;
                           // integers: the wrapping sum, then one truncating division
  pre_multiplied_sum = 5,  // every rank's input times that rank's scalar, then summed
};
inline constexpr int kReduceKinds = 6;

/// A reduction operator. That of pre_multiplied_sum has a scalar: one element of the call's data
/// type.
struct ReduceOp {
  ReduceKind kind = ReduceKind::sum;
  DataType scalar_type{0xff};  // of no data: there is no scalar
  std::uint64_t scalar = 0;    // its bits, in the low bytes

  constexpr ReduceOp() = default;
  /// Every kind but pre_multiplied_sum: calls refuse that without a scalar.
  constexpr ReduceOp(ReduceKind k) : kind(k) {}  // NOLINT: a kind alone is an operator
  /// The scalar given as a number and rounded into `type` (to nearest even; integers truncate).
  /// Throws Error(invalid_argument) if it is out of an integer's range.
  static ReduceOp pre_multiplied_sum(DataType type, double scalar);
  /// The scalar given as the bits of an element, in the low bytes.
  static constexpr ReduceOp pre_multiplied_sum_of_bits(DataType type, std::uint64_t bits) {
    return {ReduceKind::pre_multiplied_sum, type, bits};
  }

 private:
  friend class Communicator;  // copies it field by field
  // A scalar that follows a kind would be taken for its bits: {pre_multiplied_sum, 2}.
  constexpr ReduceOp(ReduceKind k, DataType type, std::uint64_t bits)
      : kind(k), scalar_type(type), scalar(bits) {}
};

/// Bytes of one element; 0 for a value outside the enumeration.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::int8:
    case DataType::uint8:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return 1;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    case DataType::int32:
    case DataType::uint32:
    case DataType::float32:
      return 4;
    case DataType::int64:
    case DataType::uint64:
    case DataType::float64:
      return 8;
  }
  return 0;
}

constexpr bool is_signed_integer(DataType type) {
  return type == DataType::int8 || type == DataType::int32 || type == DataType::int64;
}
constexpr bool is_float(DataType type) {
  return type == DataType::float16 || type == DataType::float32 || type == DataType::float64 ||
         type == DataType::bfloat16 || type == DataType::float8_e4m3 ||
         type == DataType::float8_e5m2;
}

/// Whether the operator multiplies or divides inputs as it reads them.
constexpr bool scales_inputs(ReduceKind kind, DataType type) {
  return kind == ReduceKind::pre_multiplied_sum || (kind == ReduceKind::avg && is_float(type));
}

constexpr bool is_valid(DataType type) { return static_cast<int>(type) < kDataTypes; }
constexpr bool is_valid(ReduceKind kind) { return static_cast<int>(kind) < kReduceKinds; }

/// "float32", "sum", ...; "?" for a value outside the enumeration.
std::string_view name(DataType type);
std::string_view name(ReduceKind kind);

/// The inverse of name(); also knows the spellings of nccl-tests ("half", "float", "double",
/// "f8e4m3", "f8e5m2", "mulsum").
std::optional<DataType> parse_data_type(std::string_view text);
std::optional<ReduceKind> parse_reduce_kind(std::string_view text);

}  // namespace tutti
