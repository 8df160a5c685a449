// The representation external32: known bytes for known numbers, and all types there and back.
#include <gtest/gtest.h>

#include <complex>
#include <cstring>

#include "bindings/mpi/error.h"
#include "bindings/mpi/external32.h"
#include "tests/bindings/mpi/type_map.h"

namespace tutti::mpi::test {
namespace {

std::vector<unsigned> packed(const void* data, MPI_Count count, MPI_Datatype handle) {
  const Type& type = type_of(handle);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * type.external_size()));
  to_external32(data, count, type, bytes.data());
  std::vector<unsigned> numbers;
  for (const std::byte b : bytes) numbers.push_back(std::to_integer<unsigned>(b));
  return numbers;
}

using Bytes = std::vector<unsigned>;

TEST(External32, NumbersHaveTheStandardsBytes) {
  const std::int32_t ints[] = {1, -2};
  EXPECT_EQ(packed(ints, 2, MPI_INT), (Bytes{0, 0, 0, 1, 255, 255, 255, 254}));
  const long longs[] = {-3};
  EXPECT_EQ(packed(longs, 1, MPI_LONG), (Bytes{255, 255, 255, 253}));
  const std::int64_t wide[] = {0x0102030405060708};
  EXPECT_EQ(packed(wide, 1, MPI_INT64_T), (Bytes{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(packed(wide, 1, MPI_AINT), (Bytes{1, 2, 3, 4, 5, 6, 7, 8}));
  const short shorts[] = {0x1234};
  EXPECT_EQ(packed(shorts, 1, MPI_SHORT), (Bytes{0x12, 0x34}));
  const double real[] = {-2.5};
  EXPECT_EQ(packed(real, 1, MPI_DOUBLE), (Bytes{0xC0, 0x04, 0, 0, 0, 0, 0, 0}));
  const std::complex<float> complex[] = {{1.0F, 2.0F}};
  EXPECT_EQ(packed(complex, 1, MPI_C_FLOAT_COMPLEX), (Bytes{0x3F, 0x80, 0, 0, 0x40, 0, 0, 0}));
  const wchar_t letters[] = {L'A'};
  EXPECT_EQ(packed(letters, 1, MPI_WCHAR), (Bytes{0, 65}));
  const bool truth[] = {true};
  EXPECT_EQ(packed(truth, 1, MPI_C_BOOL), (Bytes{1}));
}

TEST(External32, ALongDoubleIsAQuadruple) {
  const long double number[] = {-1.5L};
  EXPECT_EQ(packed(number, 1, MPI_LONG_DOUBLE),
            (Bytes{0xBF, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  const long double third[] = {1.0L / 3}, expected = third[0];
  const Type& type = type_of(MPI_LONG_DOUBLE);
  std::byte bytes[16];
  to_external32(third, 1, type, bytes);
  long double back = 0;
  from_external32(bytes, 1, type, &back);
  EXPECT_EQ(back, expected);
}

TEST(External32, ANumberWithoutRoomIsRefused) {
  const long large[] = {1L << 40};
  EXPECT_THROW(packed(large, 1, MPI_LONG), Failure);
  const unsigned long unsigned_large[] = {~0UL};
  EXPECT_THROW(packed(unsigned_large, 1, MPI_UNSIGNED_LONG), Failure);
  const unsigned long fits[] = {0xFFFFFFFFUL};
  EXPECT_EQ(packed(fits, 1, MPI_UNSIGNED_LONG), (Bytes{255, 255, 255, 255}));
}

TEST(External32, APairHasNoGap) {
  struct {
    double value;
    int index;
  } pair = {1.0, 7};
  EXPECT_EQ(packed(&pair, 1, MPI_DOUBLE_INT), (Bytes{0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}));
}

TEST(External32, EveryPredefinedTypeComesBack) {
  int types_with_bytes = 0;
  for (std::uintptr_t value = 0x201; value < 0x300; ++value) {
    const auto handle = reinterpret_cast<MPI_Datatype>(value);
    if (types().find(handle) == nullptr) continue;
    const Type& type = type_of(handle);
    SCOPED_TRACE(type.name());
    std::vector<std::byte> data(static_cast<std::size_t>(3 * type.extent())), back(data.size());
    // Small numbers, which fit everywhere: the lowest byte of each element alone.
    type.typed_layout().for_each_run(
        3, type.extent(), 0, 3 * type.size(), [&](Element element, MPI_Aint at, MPI_Count bytes) {
          const auto width = static_cast<MPI_Count>(properties(element).size);
          for (MPI_Count b = 0; b < bytes; b += width) {
            if (element == Element::extended || element == Element::complex_extended) {
              const long double number = static_cast<long double>(b) + 0.25L;
              for (MPI_Count part = 0; part < width; part += 16) {
                std::memcpy(data.data() + at + b + part, &number, 10);
              }
            } else {
              data[static_cast<std::size_t>(at + b)] = static_cast<std::byte>(1 + (at + b) % 120);
            }
          }
        });
    std::vector<std::byte> bytes(static_cast<std::size_t>(3 * type.external_size()));
    to_external32(data.data(), 3, type, bytes.data());
    from_external32(bytes.data(), 3, type, back.data());
    EXPECT_EQ(back, data);
    ++types_with_bytes;
  }
  EXPECT_EQ(types_with_bytes, 72);
}

TEST(External32, NestedTypesComeBack) {
  std::mt19937 random(11);
  for (int i = 0; i < 500; ++i) {
    const Both both = random_type(random, static_cast<int>(random() % 3));
    const auto places = both.map.bytes(2);
    MPI_Aint lowest = 0, highest = 0;
    for (const MPI_Aint at : places) {
      lowest = std::min(lowest, at);
      highest = std::max(highest, at + 1);
    }
    std::vector<std::byte> data(static_cast<std::size_t>(highest - lowest)), back(data.size());
    MPI_Count external = 0;
    for (const auto& entry : both.map.entries)
      external += static_cast<MPI_Count>(properties(entry.element).external_size);
    ASSERT_EQ(both.type->external_size(), external);
    std::vector<std::byte> bytes(static_cast<std::size_t>(2 * external));
    // Zeros are numbers of every type, and each byte that is not one has to come back where it was.
    for (MPI_Count e = 0; e < 2; ++e) {
      for (const auto& entry : both.map.entries) {
        if (properties(entry.element).external_size == properties(entry.element).size &&
            entry.element != Element::extended) {
          data[static_cast<std::size_t>(e * both.map.extent() + entry.at - lowest)] =
              static_cast<std::byte>(1 + random() % 100);
        }
      }
    }
    bool overlaps = false;
    auto sorted = places;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t k = 1; k < sorted.size(); ++k)
      overlaps = overlaps || sorted[k] == sorted[k - 1];
    if (overlaps) continue;
    to_external32(data.data() - lowest, 2, *both.type, bytes.data());
    from_external32(bytes.data(), 2, *both.type, back.data() - lowest);
    ASSERT_EQ(back, data) << i;
  }
}

}  // namespace
}  // namespace tutti::mpi::test
