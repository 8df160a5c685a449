// Windows: among the ranks of a host, and of several.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/bindings/mpi/cases/cases.h"

namespace tutti::test {
namespace {

bool one_host() {
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int n = -1;
  MPI_Comm_size(host, &n);
  MPI_Comm_free(&host);
  return n == size();
}

MPI_CASE(AWindowIsReadWrittenAndCountedByOthers) {
  const int right = (rank() + 1) % size();
  const int left = (rank() + size() - 1) % size();
  std::vector<int> own(1000, -1);
  for (const bool allocated : {true, false}) {
    int* memory = own.data();
    MPI_Win win;
    if (allocated) {
      MPI_Win_allocate(4000, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else {
      MPI_Win_create(memory, 4000, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    std::fill(memory, memory + 1000, 0);
    MPI_Win_fence(0, win);
    const std::vector<int> out = data(rank(), 500);
    MPI_Put(out.data(), 500, MPI_INT, right, 100, 500, MPI_INT, win);
    MPI_Win_fence(0, win);
    EXPECT(std::equal(memory + 100, memory + 600, data(left, 500).begin()));
    std::vector<int> in(500);
    MPI_Get(in.data(), 500, MPI_INT, right, 100, 500, MPI_INT, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    EXPECT(in == data(rank(), 500));
    for (int i = 0; i < 200; ++i) {
      const int one = 1;
      int before = -1;
      MPI_Win_lock(i % 2 == 0 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, win);
      MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 0, MPI_SUM, win);
      MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, win);
      MPI_Win_unlock(0, win);
      EXPECT(before >= i && before < 200 * size());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(rank() != 0 || (memory[0] == 200 * size() && memory[1] == 200 * size()));
    MPI_Group world;
    MPI_Group sources;
    MPI_Group targets;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &left, &sources);
    MPI_Group_incl(world, 1, &right, &targets);
    MPI_Win_post(sources, 0, win);
    MPI_Win_start(targets, 0, win);
    const int value = datum(rank(), 7);
    MPI_Put(&value, 1, MPI_INT, right, 5, 1, MPI_INT, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    EXPECT(memory[5] == datum(left, 7));
    MPI_Group_free(&world);
    MPI_Group_free(&sources);
    MPI_Group_free(&targets);
    MPI_Win_free(&win);
  }
}

MPI_CASE(TheMemoryOfASharedWindowIsOnePiece) {
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int own = -1;
  int n = -1;
  MPI_Comm_rank(host, &own);
  MPI_Comm_size(host, &n);
  // Rank r has r + 1 numbers; the second one has none.
  const auto has = [](int r) { return r == 1 ? 0 : r + 1; };
  MPI_Info apart;
  MPI_Info_create(&apart);
  MPI_Info_set(apart, "alloc_shared_noncontig", "true");
  for (const MPI_Info info : {MPI_INFO_NULL, apart}) {
    MPI_Win win;
    int* mine = nullptr;
    MPI_Win_allocate_shared(has(own) * static_cast<MPI_Aint>(sizeof(int)), sizeof(int), info, host,
                            &mine, &win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < has(own); ++i) mine[i] = datum(own, static_cast<std::size_t>(i), 4);
    MPI_Win_fence(0, win);
    int* next = nullptr;
    for (int r = 0; r < n; ++r) {
      MPI_Aint bytes = -1;
      int unit = -1;
      int* theirs = nullptr;
      MPI_Win_shared_query(win, r, &bytes, &unit, &theirs);
      EXPECT(bytes == has(r) * static_cast<MPI_Aint>(sizeof(int)) && unit == sizeof(int));
      for (int i = 0; i < has(r); ++i) {
        EXPECT(theirs[i] == datum(r, static_cast<std::size_t>(i), 4));
      }
      if (has(r) == 0) continue;
      EXPECT(info != MPI_INFO_NULL || next == nullptr || theirs == next);
      next = theirs + has(r);
    }
    // Calls reach the same memory.
    const int last = n - 1 == 1 ? 0 : n - 1;
    int first = -1;
    MPI_Get(&first, 1, MPI_INT, last, 0, 1, MPI_INT, win);
    EXPECT(first == datum(last, 0, 4));
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
  }
  MPI_Info_free(&apart);
  MPI_Comm_free(&host);
}

MPI_CASE(AnAccumulateTakesTypesThatAreMadeOfPairsAndEmptyOnes) {
  struct Pair {
    double value;
    int index;
  };
  MPI_Datatype every_second;
  MPI_Type_vector(2, 1, 2, MPI_DOUBLE_INT, &every_second);
  MPI_Type_commit(&every_second);
  MPI_Datatype nothing;
  MPI_Type_contiguous(0, MPI_INT, &nothing);
  MPI_Type_commit(&nothing);
  MPI_Win win;
  Pair* there = nullptr;
  MPI_Win_allocate(3 * sizeof(Pair), sizeof(Pair), MPI_INFO_NULL, MPI_COMM_WORLD, &there, &win);
  for (int i = 0; i < 3; ++i) there[i] = {-1.0, -1};
  MPI_Win_fence(0, win);
  // The largest first one is the last rank's, the largest third one that of rank 0.
  const Pair mine[] = {{rank() + 0.5, rank()}, {100.0, 100}, {-0.25 * rank(), rank()}};
  EXPECT(MPI_Accumulate(mine, 1, every_second, 0, 0, 1, every_second, MPI_MAXLOC, win) ==
         MPI_SUCCESS);
  int number = 0;
  EXPECT(MPI_Accumulate(&number, 1, nothing, 0, 0, 1, nothing, MPI_SUM, win) == MPI_SUCCESS);
  MPI_Win_fence(0, win);
  if (rank() == 0) {
    EXPECT(there[0].value == size() - 0.5 && there[0].index == size() - 1);
    EXPECT(there[1].value == -1.0 && there[1].index == -1);
    EXPECT(there[2].value == 0.0 && there[2].index == 0);
  }
  MPI_Win_free(&win);
  MPI_Type_free(&nothing);
  MPI_Type_free(&every_second);
}

/// What a rank's memory begins with in the cases below.
constexpr std::size_t kInts = 70000;
struct Memory {
  int* ints = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  explicit Memory(std::size_t n = kInts) {
    MPI_Win_allocate(static_cast<MPI_Aint>(n * sizeof(int)), sizeof(int), MPI_INFO_NULL,
                     MPI_COMM_WORLD, &ints, &win);
    for (std::size_t i = 0; i < n; ++i) ints[i] = datum(rank(), i, 3);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~Memory() { MPI_Win_free(&win); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

MPI_CASE(DataOfAnyLengthAndLayoutGoIntoAWindowAndComeBack) {
  Memory memory;
  const int to = (rank() + size() - 1) % size();
  const int from = (rank() + 1) % size();
  MPI_Datatype pieces;  // of 3 ints, 7 apart
  MPI_Type_vector(5000, 3, 7, MPI_INT, &pieces);
  MPI_Type_commit(&pieces);
  MPI_Win_lock_all(0, memory.win);
  const std::vector<int> out = data(rank(), 15000, 6);
  EXPECT(MPI_Put(out.data(), 15000, MPI_INT, to, 10, 1, pieces, memory.win) == MPI_SUCCESS);
  MPI_Win_flush(to, memory.win);
  std::vector<int> back(15000);
  MPI_Get(back.data(), 15000, MPI_INT, to, 10, 1, pieces, memory.win);
  MPI_Win_flush_all(memory.win);
  EXPECT(back == out);
  MPI_Win_unlock_all(memory.win);
  MPI_Barrier(MPI_COMM_WORLD);
  const std::vector<int> theirs = data(from, 15000, 6);
  for (std::size_t i = 0; i < kInts; ++i) {
    const std::size_t k = i < 10 ? kInts : i - 10;
    const bool is_written = k < 35000 && k % 7 < 3;
    EXPECT(memory.ints[i] == (is_written ? theirs[k / 7 * 3 + k % 7] : datum(rank(), i, 3)));
  }
  MPI_Type_free(&pieces);
  MPI_Win_fence(0, memory.win);
  std::vector<int> all(kInts);
  MPI_Get(all.data(), static_cast<int>(kInts), MPI_INT, to, 0, static_cast<int>(kInts), MPI_INT,
          memory.win);
  MPI_Win_fence(0, memory.win);
  EXPECT(all[0] == datum(to, 0, 3) && all[10] == out[0] &&
         all[kInts - 1] == datum(to, kInts - 1, 3));
}

MPI_CASE(OneSidedReductionsOfAllRanksAddUp) {
  constexpr int kMany = 9000;
  Memory memory(kMany);
  std::fill(memory.ints, memory.ints + kMany, rank());
  MPI_Win_fence(0, memory.win);
  std::vector<int> mine(kMany);
  for (int i = 0; i < kMany; ++i) mine[static_cast<std::size_t>(i)] = i + rank();
  for (int r = 0; r < size(); ++r) {
    MPI_Accumulate(mine.data(), kMany, MPI_INT, r, 0, kMany, MPI_INT, MPI_SUM, memory.win);
  }
  MPI_Win_fence(0, memory.win);
  const int ranks = size() * (size() - 1) / 2;
  for (int i = 0; i < kMany; ++i) EXPECT(memory.ints[i] == rank() + i * size() + ranks);
  // What was there before comes back, whole.
  const int last = size() - 1;
  MPI_Win_fence(0, memory.win);
  std::vector<int> before(kMany, -1);
  if (rank() == 0) {
    MPI_Get_accumulate(mine.data(), kMany, MPI_INT, before.data(), kMany, MPI_INT, last, 0, kMany,
                       MPI_INT, MPI_REPLACE, memory.win);
    for (int i = 0; i < kMany; ++i) {
      EXPECT(before[static_cast<std::size_t>(i)] == last + i * size() + ranks);
    }
  }
  MPI_Win_fence(0, memory.win);
  if (rank() == last) {
    for (int i = 0; i < kMany; ++i) EXPECT(memory.ints[i] == i);
  }
}

MPI_CASE(ACompareAndSwapLetsOneRankInAtATime) {
  Memory memory(2);
  if (rank() == 0) memory.ints[0] = memory.ints[1] = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, memory.win);
  for (int round = 0; round < 20; ++round) {
    const int free = 0;
    const int own = rank() + 1;
    int before = -1;
    for (;;) {
      MPI_Compare_and_swap(&own, &free, &before, MPI_INT, 0, 0, memory.win);
      MPI_Win_flush(0, memory.win);
      if (before == 0) break;
      EXPECT(before >= 1 && before <= size() && before != own);
      std::this_thread::yield();
    }
    int count = -1;  // not atomic: the lock alone keeps it right
    MPI_Get(&count, 1, MPI_INT, 0, 1, 1, MPI_INT, memory.win);
    MPI_Win_flush(0, memory.win);
    ++count;
    MPI_Put(&count, 1, MPI_INT, 0, 1, 1, MPI_INT, memory.win);
    MPI_Win_flush(0, memory.win);
    MPI_Compare_and_swap(&free, &own, &before, MPI_INT, 0, 0, memory.win);
    MPI_Win_flush(0, memory.win);
    EXPECT(before == own);
  }
  MPI_Win_unlock_all(memory.win);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT(rank() != 0 || (memory.ints[0] == 0 && memory.ints[1] == 20 * size()));
}

MPI_CASE(ATargetThatComputesHoldsUpNobody) {
  Memory memory(64);
  std::fill(memory.ints, memory.ints + 64, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank() == 0) {  // in no call of MPI until all others have written
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (int r = 1; r < size(); ++r) {
      while (std::atomic_ref(memory.ints[r]).load(std::memory_order_acquire) != datum(r, 1)) {
        EXPECT(std::chrono::steady_clock::now() < end);
      }
    }
  } else {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, memory.win);
    const int value = datum(rank(), 1);
    MPI_Put(&value, 1, MPI_INT, 0, rank(), 1, MPI_INT, memory.win);
    int sum = -1;
    MPI_Fetch_and_op(&value, &sum, MPI_INT, 0, 0, MPI_SUM, memory.win);
    MPI_Win_unlock(0, memory.win);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  int sum = 0;
  for (int r = 1; r < size(); ++r) sum += datum(r, 1);
  EXPECT(rank() != 0 || memory.ints[0] == sum);
}

MPI_CASE(MemoryThatIsAttachedLaterIsReachedAtItsAddress) {
  MPI_Win win;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  std::vector<int> own(3000, -1);
  MPI_Win_attach(win, own.data(), static_cast<MPI_Aint>(own.size() * sizeof(int)));
  MPI_Aint mine = 0;
  MPI_Get_address(own.data(), &mine);
  std::vector<MPI_Aint> all(static_cast<std::size_t>(size()));
  MPI_Allgather(&mine, 1, MPI_AINT, all.data(), 1, MPI_AINT, MPI_COMM_WORLD);
  const int right = (rank() + 1) % size();
  const int left = (rank() + size() - 1) % size();
  MPI_Win_fence(0, win);
  const std::vector<int> out = data(rank(), 2000, 8);
  MPI_Put(out.data(), 2000, MPI_INT, right, all[static_cast<std::size_t>(right)] + 400, 2000,
          MPI_INT, win);
  MPI_Win_fence(0, win);
  EXPECT(own[99] == -1 && own[2100] == -1);
  EXPECT(std::equal(own.begin() + 100, own.begin() + 2100, data(left, 2000, 8).begin()));
  MPI_Win_detach(win, own.data());
  MPI_Win_free(&win);
}

MPI_CASE(WhatLiesOutsideOfAWindowIsRefused) {
  Memory memory(16);
  MPI_Win_set_errhandler(memory.win, MPI_ERRORS_RETURN);
  const int right = (rank() + 1) % size();
  const int value = 1;
  EXPECT(class_of(MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, memory.win)) ==
         MPI_ERR_RMA_SYNC);
  MPI_Win_fence(0, memory.win);
  EXPECT(class_of(MPI_Put(&value, 1, MPI_INT, right, 16, 1, MPI_INT, memory.win)) ==
         MPI_ERR_RMA_RANGE);
  MPI_Win_fence(0, memory.win);
  EXPECT(memory.ints[15] == datum(rank(), 15, 3));
  if (one_host()) return;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int* shared = nullptr;
  MPI_Win none = MPI_WIN_NULL;
  EXPECT(class_of(MPI_Win_allocate_shared(4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &none)) ==
         MPI_ERR_RMA_SHARED);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

}  // namespace
}  // namespace tutti::test
