// Names of data types and operators, the scalar of pre_multiplied_sum, and the texts of errors.
#include <gtest/gtest.h>

#include <bit>
#include <cerrno>
#include <limits>
#include <set>
#include <string>
#include <type_traits>

#include "core/error.h"
#include "core/types.h"

namespace tutti {
namespace {

TEST(Types, NamesAreDistinctAndParseBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(parse_data_type(name(type)), type);
    EXPECT_GT(size_of(type), 0u);
    names.insert(name(type));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kDataTypes));
  names.clear();
  for (int i = 0; i < kReduceKinds; ++i) {
    const auto kind = static_cast<ReduceKind>(i);
    EXPECT_EQ(parse_reduce_kind(name(kind)), kind);
    names.insert(name(kind));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kReduceKinds));
}

TEST(Types, TheNameSaysWhichValueItIs) {
  EXPECT_EQ(name(DataType::int8), "int8");
  EXPECT_EQ(name(DataType::float16), "float16");
  EXPECT_EQ(name(DataType::float64), "float64");
  EXPECT_EQ(name(DataType::bfloat16), "bfloat16");
  EXPECT_EQ(name(DataType::float8_e5m2), "float8_e5m2");
  EXPECT_EQ(name(ReduceKind::sum), "sum");
  EXPECT_EQ(name(ReduceKind::max), "max");
  EXPECT_EQ(name(ReduceKind::min), "min");
  EXPECT_EQ(name(ReduceKind::pre_multiplied_sum), "pre_multiplied_sum");
}

TEST(Types, KnowsTheSpellingsOfNcclTests) {
  EXPECT_EQ(parse_data_type("half"), DataType::float16);
  EXPECT_EQ(parse_data_type("float"), DataType::float32);
  EXPECT_EQ(parse_data_type("double"), DataType::float64);
  EXPECT_EQ(parse_data_type("f8e4m3"), DataType::float8_e4m3);
  EXPECT_EQ(parse_data_type("f8e5m2"), DataType::float8_e5m2);
  EXPECT_EQ(parse_reduce_kind("mulsum"), ReduceKind::pre_multiplied_sum);
}

TEST(Types, UnknownNamesAndValuesHaveNoType) {
  for (const char* text : {"", "Float32", "float3", "float322", "?"}) {
    EXPECT_EQ(parse_data_type(text), std::nullopt) << text;
    EXPECT_EQ(parse_reduce_kind(text), std::nullopt) << text;
  }
  EXPECT_EQ(name(static_cast<DataType>(kDataTypes)), "?");
  EXPECT_EQ(name(static_cast<ReduceKind>(kReduceKinds)), "?");
  EXPECT_EQ(size_of(static_cast<DataType>(200)), 0u);
}

// A number after the kind would be taken for bits: 2 is 2.8e-45 of a float32.
static_assert(!std::is_constructible_v<ReduceOp, ReduceKind, int>);
static_assert(!std::is_constructible_v<ReduceOp, ReduceKind, float>);
static_assert(!std::is_constructible_v<ReduceOp, ReduceKind, std::uint64_t>);
static_assert(!std::is_constructible_v<ReduceOp, ReduceKind, DataType, int>);

std::uint64_t scalar(DataType type, double value) {
  const ReduceOp op = ReduceOp::pre_multiplied_sum(type, value);
  EXPECT_EQ(op.kind, ReduceKind::pre_multiplied_sum);
  EXPECT_EQ(op.scalar_type, type);
  return op.scalar;
}

TEST(PreMultipliedSum, IntegersTruncate) {
  EXPECT_EQ(scalar(DataType::int8, -2.9), 0xFEu);
  EXPECT_EQ(scalar(DataType::int8, -128.9), 0x80u);
  EXPECT_EQ(scalar(DataType::uint8, 255.9), 0xFFu);
  EXPECT_EQ(scalar(DataType::uint8, -0.9), 0u);
  EXPECT_EQ(scalar(DataType::int32, -1.0), 0xFFFFFFFFu);
  EXPECT_EQ(scalar(DataType::uint32, 4294967295.0), 0xFFFFFFFFu);
  EXPECT_EQ(scalar(DataType::int64, -0x1p63), 0x8000000000000000u);
  EXPECT_EQ(scalar(DataType::uint64, 0x1p63), 0x8000000000000000u);
}

TEST(PreMultipliedSum, IntegersOutOfRangeAreAnError) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(scalar(DataType::int8, 128), Error);
  EXPECT_THROW(scalar(DataType::int8, -129), Error);
  EXPECT_THROW(scalar(DataType::uint8, -1), Error);
  EXPECT_THROW(scalar(DataType::uint32, 0x1p32), Error);
  EXPECT_THROW(scalar(DataType::int64, 0x1p63), Error);
  EXPECT_THROW(scalar(DataType::uint64, 0x1p64), Error);
  EXPECT_THROW(scalar(DataType::int32, nan), Error);
  EXPECT_THROW(scalar(static_cast<DataType>(77), 1), Error);
}

TEST(PreMultipliedSum, FloatsRoundOnce) {
  EXPECT_EQ(scalar(DataType::float64, 0.1), std::bit_cast<std::uint64_t>(0.1));
  EXPECT_EQ(scalar(DataType::float32, 0.1), std::bit_cast<std::uint32_t>(0.1f));
  EXPECT_EQ(scalar(DataType::float16, 1.5), 0x3E00u);
  // Above a tie of bfloat16 by less than float32 can say: twice rounded, it would go down.
  EXPECT_EQ(scalar(DataType::bfloat16, 1.0 + 0x1p-8 + 0x1p-40), 0x3F81u);
  EXPECT_EQ(scalar(DataType::float8_e4m3, 448.0), 0x7Eu);
  EXPECT_EQ(scalar(DataType::float8_e5m2, -0.0), 0x80u);
}

TEST(Errors, SayWhatAndHaveACode) {
  const Error error(ErrorCode::peer_lost, "rank 3 left", 3);
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_EQ(error.rank(), 3);
  EXPECT_STREQ(error.what(), "rank 3 left");
  EXPECT_EQ(name(ErrorCode::timed_out), "timed_out");
  EXPECT_EQ(name(static_cast<ErrorCode>(99)), "?");
}

TEST(Errors, OfTheSystemNameTheReason) {
  try {
    errno = ENOENT;
    throw_system_error("opening /nowhere");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_STREQ(error.what(), "opening /nowhere: No such file or directory");
  }
  try {
    throw_system_error("mapping", ENOMEM);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "mapping: Cannot allocate memory");
  }
}

}  // namespace
}  // namespace tutti
