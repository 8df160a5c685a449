// Data types against their slow and obvious meaning (type_map.h): thousands of random nested ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bindings/mpi/error.h"
#include "bindings/mpi/type_make.h"
#include "tests/bindings/mpi/type_map.h"

namespace tutti::mpi::test {
namespace {

constexpr int kTypes = 4000;

/// Memory around the data of a few elements; address() is what a program would pass as a buffer.
class Memory {
 public:
  Memory(const TypeMap& map, MPI_Count count) {
    for (const MPI_Aint at : map.bytes(count)) {
      lowest_ = std::min(lowest_, at);
      highest_ = std::max(highest_, at + 1);
    }
    bytes_.resize(static_cast<std::size_t>(highest_ - lowest_) + 2 * kMargin);
  }
  std::byte* address() { return bytes_.data() + kMargin - lowest_; }
  std::vector<std::byte>& all() { return bytes_; }

 private:
  static constexpr std::size_t kMargin = 8;
  MPI_Aint lowest_ = 0, highest_ = 0;
  std::vector<std::byte> bytes_;
};

void fill(std::vector<std::byte>& bytes, std::mt19937& random) {
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
}

/// Calls check(both, count, random) for many random types.
template <class Check>
void for_random_types(unsigned seed, const Check& check) {
  std::mt19937 random(seed);
  for (int i = 0; i < kTypes; ++i) {
    SCOPED_TRACE(i);
    const Both both = random_type(random, static_cast<int>(random() % 4));
    check(both, static_cast<MPI_Count>(random() % 4), random);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Types, SizesAndBoundsAreTheTypeMaps) {
  for_random_types(1, [](const Both& both, MPI_Count, std::mt19937&) {
    EXPECT_EQ(both.type->size(), both.map.size());
    EXPECT_EQ(both.type->lower_bound(), both.map.lower());
    EXPECT_EQ(both.type->extent(), both.map.extent());
    EXPECT_EQ(both.type->elements(), static_cast<MPI_Count>(both.map.entries.size()));
    EXPECT_EQ(both.type->true_lower_bound(), both.map.true_lower());
    EXPECT_EQ(both.type->true_extent(), both.map.true_upper() - both.map.true_lower());
  });
}

TEST(Types, PackingTakesTheBytesOfTheTypeMapInItsOrder) {
  for_random_types(2, [](const Both& both, MPI_Count count, std::mt19937& random) {
    Memory memory(both.map, count);
    fill(memory.all(), random);
    std::vector<std::byte> expected;
    for (const MPI_Aint at : both.map.bytes(count)) expected.push_back(memory.address()[at]);
    std::vector<std::byte> packed(expected.size());
    both.type->pack(memory.address(), count, packed.data());
    EXPECT_EQ(packed, expected);
  });
}

TEST(Types, PartsOfAMessagePackAsTheWhole) {
  for_random_types(3, [](const Both& both, MPI_Count count, std::mt19937& random) {
    Memory memory(both.map, count);
    fill(memory.all(), random);
    const MPI_Count bytes = count * both.type->size();
    std::vector<std::byte> whole(static_cast<std::size_t>(bytes)), parts(whole.size());
    both.type->pack(memory.address(), count, whole.data());
    for (MPI_Count at = 0; at < bytes;) {
      const MPI_Count n =
          std::min<MPI_Count>(bytes - at, 1 + static_cast<MPI_Count>(random() % 40));
      both.type->pack(memory.address(), count, at, n, parts.data() + at);
      at += n;
    }
    EXPECT_EQ(parts, whole);
  });
}

TEST(Types, UnpackingInPartsWritesTheBytesOfTheTypeMapAndNoOthers) {
  for_random_types(4, [](const Both& both, MPI_Count count, std::mt19937& random) {
    Memory memory(both.map, count), expected(both.map, count);
    fill(memory.all(), random);
    expected.all() = memory.all();
    const auto places = both.map.bytes(count);
    std::vector<std::byte> packed(places.size());
    fill(packed, random);
    for (std::size_t i = 0; i < places.size(); ++i) expected.address()[places[i]] = packed[i];
    const auto bytes = static_cast<MPI_Count>(packed.size());
    for (MPI_Count at = 0; at < bytes;) {
      const MPI_Count n =
          std::min<MPI_Count>(bytes - at, 1 + static_cast<MPI_Count>(random() % 60));
      both.type->unpack(packed.data() + at, at, n, memory.address(), count);
      at += n;
    }
    EXPECT_EQ(memory.all(), expected.all());
  });
}

TEST(Types, ContiguousIsWhatNeedsNoPacking) {
  int found = 0;
  for_random_types(5, [&](const Both& both, MPI_Count count, std::mt19937&) {
    const auto places = both.map.bytes(count);
    bool in_a_row = true;
    for (std::size_t i = 1; i < places.size(); ++i)
      in_a_row = in_a_row && places[i] == places[i - 1] + 1;
    if (both.type->contiguous(count)) {
      EXPECT_TRUE(in_a_row);
      if (!places.empty()) {
        EXPECT_EQ(
            both.type->address(static_cast<void*>(nullptr)) - static_cast<std::byte*>(nullptr),
            places[0]);
      }
      ++found;
    }
    if (both.type->contiguous()) {
      EXPECT_TRUE(both.type->contiguous(count));
    }
    // The other way round, but for what only happens to be in a row: negative extents, say.
    if (both.map.size() > 0 && in_a_row && count == 1) {
      EXPECT_TRUE(both.type->contiguous(1));
    }
  });
  EXPECT_GT(found, kTypes / 20);
}

TEST(Types, RunsOfElementsAreTheTypeMap) {
  for_random_types(6, [](const Both& both, MPI_Count count, std::mt19937&) {
    std::vector<std::pair<Element, MPI_Aint>> expected, found;
    for (MPI_Count i = 0; i < count; ++i) {
      for (const auto& entry : both.map.entries)
        expected.emplace_back(entry.element, i * both.map.extent() + entry.at);
    }
    both.type->typed_layout().for_each_run(count, both.type->extent(), 0, count * both.type->size(),
                                           [&](Element element, MPI_Aint at, MPI_Count bytes) {
                                             const auto width =
                                                 static_cast<MPI_Aint>(properties(element).size);
                                             for (MPI_Aint b = 0; b < bytes; b += width)
                                               found.emplace_back(element, at + b);
                                           });
    EXPECT_EQ(found, expected);
  });
}

TEST(Types, ElementsOfAPartOfAMessageAreCounted) {
  for_random_types(7, [](const Both& both, MPI_Count, std::mt19937&) {
    if (both.type->size() == 0) return;
    std::vector<MPI_Count> ends{0};  // after each element, of two elements of the type
    for (int i = 0; i < 2; ++i) {
      for (const auto& entry : both.map.entries) {
        ends.push_back(ends.back() + static_cast<MPI_Count>(properties(entry.element).size));
      }
    }
    for (MPI_Count bytes = 0; bytes <= ends.back(); ++bytes) {
      const auto at = std::find(ends.begin(), ends.end(), bytes);
      const auto n = both.type->elements_in(bytes);
      ASSERT_EQ(n.has_value(), at != ends.end()) << bytes;
      if (n) {
        ASSERT_EQ(*n, at - ends.begin());
        ASSERT_EQ(both.type->bytes_of_elements(*n), bytes);
      }
    }
  });
}

TEST(Types, SignaturesMatchWhereTheElementsDo) {
  std::mt19937 random(8);
  std::vector<Both> types;
  for (int i = 0; i < 300; ++i)
    types.push_back(random_type(random, static_cast<int>(random() % 3)));
  const auto sequence = [](const Both& both) {
    std::vector<Element> list;
    for (const auto& entry : both.map.entries)
      list.push_back(entry.element == Element::c_long ? Element::int64 : entry.element);
    return list;
  };
  int equal = 0;
  for (const Both& a : types) {
    for (const Both& b : types) {
      const auto first = sequence(a), second = sequence(b);
      const bool open = std::count(first.begin(), first.end(), Element::byte) +
                            std::count(second.begin(), second.end(), Element::byte) >
                        0;
      ASSERT_EQ(a.type->signature().matches(b.type->signature()), open || first == second);
      equal += first == second ? 1 : 0;
    }
  }
  EXPECT_GT(equal, 300);
}

TEST(Types, AVectorIsOnePartAndAMatrixTwo) {
  const TypeRef real = shared_type(MPI_DOUBLE);
  EXPECT_EQ(make_vector(1000000, 2, 5, real)->layout().parts().size(), 1u);
  const int sizes[] = {100, 200, 300}, parts[] = {50, 60, 70}, starts[] = {1, 2, 3};
  const TypeRef cube = make_subarray(3, sizes, parts, starts, MPI_ORDER_C, real);
  EXPECT_EQ(cube->layout().parts().size(), 1u);
  EXPECT_EQ(cube->size(), 50 * 60 * 70 * 8);
  std::vector<int> places(1000);
  for (int i = 0; i < 1000; ++i) places[static_cast<std::size_t>(i)] = 7 * i;
  EXPECT_EQ(make_indexed_block(1000, 3, places.data(), real)->layout().parts().size(), 1u);
  EXPECT_TRUE(make_vector(100, 4, 4, real)->contiguous());
}

TEST(Types, CountsBeyondAnIntAreExact) {
  const TypeRef huge = make_vector<MPI_Count>(MPI_Count{1} << 33, 3, 4, shared_type(MPI_INT));
  EXPECT_EQ(huge->size(), (MPI_Count{1} << 33) * 12);
  EXPECT_EQ(huge->extent(), (MPI_Count{1} << 33) * 16 - 4);
  EXPECT_EQ(huge->elements(), (MPI_Count{1} << 33) * 3);
  EXPECT_TRUE(huge->contents().large);
  EXPECT_EQ(huge->contents().counts.size(), 3u);
  EXPECT_THROW(make_vector<MPI_Count>(MPI_Count{1} << 61, 3, 4, shared_type(MPI_INT)), Failure);
  EXPECT_THROW(make_contiguous<MPI_Count>(MPI_Count{1} << 62, shared_type(MPI_INT)), Failure);
}

TEST(Types, ContentsAreTheArguments) {
  const TypeRef real = shared_type(MPI_DOUBLE);
  const int lengths[] = {2, 3};
  const MPI_Aint places[] = {8, 100};
  const TypeRef made = make_hindexed(2, lengths, places, real);
  const Contents& contents = made->contents();
  EXPECT_EQ(contents.combiner, MPI_COMBINER_HINDEXED);
  EXPECT_EQ(contents.integers, (std::vector<int>{2, 2, 3}));
  EXPECT_EQ(contents.addresses, (std::vector<MPI_Aint>{8, 100}));
  EXPECT_EQ(contents.types, std::vector<TypeRef>{real});
  EXPECT_EQ(shared_type(MPI_DOUBLE_INT)->contents().combiner, MPI_COMBINER_NAMED);
}

TEST(Types, WrongArgumentsAreRefusedWithTheStandardsClass) {
  const TypeRef real = shared_type(MPI_DOUBLE);
  const auto class_of = [](const auto& make) {
    try {
      make();
    } catch (const Failure& failure) {
      return failure.error_class();
    }
    return MPI_SUCCESS + 0;
  };
  const int sizes[] = {4}, parts[] = {3}, starts[] = {2};
  EXPECT_EQ(class_of([&] { make_contiguous(-1, real); }), MPI_ERR_COUNT);
  EXPECT_EQ(class_of([&] { make_vector(1, -1, 1, real); }), MPI_ERR_ARG);
  EXPECT_EQ(class_of([&] { make_subarray(1, sizes, parts, starts, MPI_ORDER_C, real); }),
            MPI_ERR_ARG);
  EXPECT_EQ(class_of([&] { make_subarray(1, sizes, parts, starts, 5, real); }), MPI_ERR_ARG);
  EXPECT_EQ(class_of([] { type_of(MPI_DATATYPE_NULL); }), MPI_ERR_TYPE);
  EXPECT_EQ(class_of([&] { committed_type(types().add(make_contiguous(2, real))); }), MPI_ERR_TYPE);
}

TEST(Types, AFreedHandleIsNoticed) {
  const MPI_Datatype handle = types().add(make_contiguous(2, shared_type(MPI_INT)));
  types().remove(handle);
  EXPECT_THROW(type_of(handle), Failure);
  EXPECT_THROW(type_of(reinterpret_cast<MPI_Datatype>(MPI_SUM)), Failure);
}

}  // namespace
}  // namespace tutti::mpi::test
