// Topologies, attributes, hints and error codes, without a job.
#include <gtest/gtest.h>

#include "bindings/mpi/attributes.h"
#include "bindings/mpi/error.h"
#include "bindings/mpi/info.h"
#include "bindings/mpi/topology.h"

namespace tutti::mpi::test {
namespace {

std::vector<int> balanced(int processes, std::vector<int> sizes) {
  balance(processes, static_cast<int>(sizes.size()), sizes.data());
  return sizes;
}

TEST(Topology, GridsAreAsSquareAsTheyCanBe) {
  EXPECT_EQ(balanced(72, {0, 0}), (std::vector<int>{9, 8}));
  EXPECT_EQ(balanced(6, {0, 0}), (std::vector<int>{3, 2}));
  EXPECT_EQ(balanced(7, {0, 0}), (std::vector<int>{7, 1}));
  EXPECT_EQ(balanced(64, {0, 0, 0}), (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(balanced(36, {0, 0, 0}), (std::vector<int>{4, 3, 3}));
  EXPECT_EQ(balanced(6, {0, 3, 0}), (std::vector<int>{2, 3, 1}));
  EXPECT_EQ(balanced(2310, {0, 0, 0, 0, 0}), (std::vector<int>{11, 7, 5, 3, 2}));
  EXPECT_EQ(balanced(5040, {0, 0, 0}), (std::vector<int>{21, 16, 15}));
  EXPECT_EQ(balanced(7488, {0, 0, 0}), (std::vector<int>{26, 18, 16}));
  EXPECT_EQ(balanced(1 << 30, {0, 0, 0, 0, 0, 0, 0, 0}),
            (std::vector<int>{16, 16, 16, 16, 16, 16, 8, 8}));
  EXPECT_EQ(balanced(1, {0, 0, 0}), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(balanced(2147483647, {0, 0}), (std::vector<int>{2147483647, 1}));
  EXPECT_THROW(balanced(7, {0, 3}), Failure);
  EXPECT_THROW(balanced(6, {2, 2}), Failure);
  EXPECT_THROW(balanced(6, {-1, 0}), Failure);
}

TEST(Topology, RanksAndPlacesAreInverse) {
  const Grid grid{{3, 4, 5}, {false, true, false}};
  for (int rank = 0; rank < 60; ++rank) EXPECT_EQ(grid.rank_of(grid.place_of(rank)), rank);
  EXPECT_EQ(grid.place_of(59), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(grid.rank_of({0, -1, 0}), grid.rank_of({0, 3, 0}));
  EXPECT_EQ(grid.rank_of({0, 9, 0}), grid.rank_of({0, 1, 0}));
  EXPECT_EQ(grid.rank_of({3, 0, 0}), MPI_PROC_NULL);
  EXPECT_EQ(grid.shifted(0, 0, -1), MPI_PROC_NULL);
  EXPECT_EQ(grid.shifted(0, 1, -1), 15);
  EXPECT_EQ(grid.shifted(0, 1, 1000), 0);
}

TEST(Handles, OfManyObjectsLeadToThemUntilTheyAreFreed) {
  Handles<const int, MPI_Request> all;  // beyond the first chunks of slots
  std::vector<MPI_Request> handles;
  for (int i = 0; i < 1000; ++i) handles.push_back(all.add(std::make_shared<const int>(i)));
  for (int i = 0; i < 1000; ++i) {
    const MPI_Request handle = handles[static_cast<std::size_t>(i)];
    ASSERT_NE(all.find(handle), nullptr);
    EXPECT_EQ(*all.find(handle), i);
    EXPECT_EQ(all.numbered(all.number(handle)), handle);
  }
  EXPECT_EQ(*all.remove(handles[700]), 700);
  EXPECT_EQ(all.find(handles[700]), nullptr);
  EXPECT_EQ(all.alive(), 999);
  Handles<const int, MPI_Request> others;
  EXPECT_EQ(others.find(handles[3]), nullptr);
  EXPECT_EQ(others.numbered(1 << 30), MPI_Request{});
}

// Handles of objects that have attributes.
constexpr std::uintptr_t kObject = 1, kCopy = 2;

TEST(Attributes, AreCopiedInOrderAndDeletedInTheOppositeOne) {
  std::vector<std::string> calls;
  const auto key = [&](const char* name, int copied) {
    Key made;
    made.copy = [&calls, name, copied](std::uintptr_t, int, void*, void* value, void* copy,
                                       int* flag) {
      calls.push_back(std::string("copy ") + name);
      *static_cast<void**>(copy) = static_cast<char*>(value) + 1;
      *flag = copied;
      return 0;
    };
    made.on_delete = [&calls, name](std::uintptr_t, int, void*, void*) {
      calls.push_back(std::string("delete ") + name);
      return 0;
    };
    return find_key(new_key(std::move(made)));
  };
  const auto a = key("a", 1), b = key("b", 0), c = key("c", 1);
  char memory[8];
  Attributes object, copy;
  object.set(kObject, a, memory);
  object.set(kObject, b, memory + 2);
  object.set(kObject, c, memory + 4);
  object.copy_to(copy, kObject, kCopy);
  void* value = nullptr;
  ASSERT_TRUE(copy.get(c->number, &value));
  EXPECT_EQ(value, memory + 5);
  EXPECT_FALSE(copy.get(b->number, &value));
  copy.clear(kCopy);
  object.remove(kObject, b->number);
  EXPECT_EQ(calls, (std::vector<std::string>{"copy a", "copy b", "copy c", "delete c", "delete a",
                                             "delete b"}));
}

TEST(Attributes, AFreedKeyServesTheValuesThatHaveIt) {
  Attributes object;
  int deleted = 0;
  Key made;
  made.on_delete = [&](std::uintptr_t, int, void*, void*) { return ++deleted, 0; };
  const int number = new_key(std::move(made));
  object.set(kObject, find_key(number), nullptr);
  free_key(number);
  EXPECT_NE(find_key(number), nullptr);
  object.clear(kObject);
  EXPECT_EQ(find_key(number), nullptr);
  EXPECT_EQ(deleted, 1);
}

TEST(Attributes, AFunctionThatFailsKeepsTheValue) {
  Attributes object;
  Key made;
  made.on_delete = [](std::uintptr_t, int, void*, void*) { return 77; };
  const auto key = find_key(new_key(std::move(made)));
  object.set(kObject, key, &object);
  try {
    object.remove(kObject, key->number);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error_class(), 77);
  }
  void* value = nullptr;
  EXPECT_TRUE(object.get(key->number, &value));
}

TEST(Hints, KeepTheOrderInWhichTheyWereSet) {
  Info info;
  info.set("b", "1");
  info.set("a", "2");
  info.set("b", "3");
  EXPECT_EQ(info.entries(), (Info::Entries{{"b", "3"}, {"a", "2"}}));
  EXPECT_EQ(info.get("b"), "3");
  EXPECT_TRUE(info.erase("b"));
  EXPECT_FALSE(info.erase("b"));
  EXPECT_EQ(info.get("b"), std::nullopt);
}

TEST(ErrorCodes, LeadToTheirClassAndTheirSentence) {
  const int code = new_error_code(MPI_ERR_TRUNCATE, "8 bytes came, and there was room for 4");
  EXPECT_EQ(error_class_of(code), MPI_ERR_TRUNCATE);
  EXPECT_EQ(error_text(code), "MPI_ERR_TRUNCATE: 8 bytes came, and there was room for 4");
  EXPECT_EQ(error_class_of(MPI_ERR_ABI), MPI_ERR_ABI);
  EXPECT_EQ(error_class_of(MPI_SUCCESS), MPI_SUCCESS);
  EXPECT_EQ(error_class_of(9999), MPI_ERR_UNKNOWN);
}

TEST(ErrorCodes, AnOldOneHasTheTextOfItsClass) {
  const int code = new_error_code(MPI_ERR_RANK, "rank 9 of 4");
  for (int i = 0; i < 1024; ++i) new_error_code(MPI_ERR_TAG, "another one");
  EXPECT_EQ(error_class_of(code), MPI_ERR_RANK);
  EXPECT_EQ(error_text(code), "MPI_ERR_RANK: a rank is invalid");
}

TEST(ErrorCodes, SentencesAreCutToTheStandardsLength) {
  const int code = new_error_code(MPI_ERR_ARG, std::string(5000, 'x'));
  EXPECT_EQ(error_text(code).size(), static_cast<std::size_t>(MPI_MAX_ERROR_STRING - 1));
}

}  // namespace
}  // namespace tutti::mpi::test
