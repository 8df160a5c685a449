// A system that gives no more threads: what needs one fails at once, says so, and leaves nothing in
// progress.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "bindings/nccl/nccl.h"
#include "tests/bindings/nccl/ranks.h"

namespace {
constexpr int kNoLimit = 1'000'000;
std::atomic<int> threads_left{kNoLimit};
}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  if (threads_left.fetch_sub(1) <= 0) return EAGAIN;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// While it lives, `count` more threads can be started.
class ThreadLimit {
 public:
  explicit ThreadLimit(int count) { threads_left = count; }
  ~ThreadLimit() { threads_left = kNoLimit; }
};

class Threads : public testing::Test {
 protected:
  // Without the mend these tests would wait for ever, and now only for a while.
  void SetUp() override { setenv("TUTTI_RENDEZVOUS_TIMEOUT", "10", 1); }
  void TearDown() override {
    unsetenv("TUTTI_RENDEZVOUS_TIMEOUT");
    EXPECT_LT(Clock::now() - began_, 5s);
  }

 private:
  Clock::time_point began_ = Clock::now();
};

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  expect_success(ncclCommGetAsyncError(comm, &state));
  return state;
}

void expect_why(ncclComm_t comm) {
  const std::string why = ncclGetLastError(comm);
  EXPECT_NE(why.find("starting"), std::string::npos) << why;
  EXPECT_NE(why.find("thread"), std::string::npos) << why;
}

TEST_F(Threads, ANonblockingInitialisationFails) {
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  ncclConfig_t config = nonblocking();
  ncclComm_t comm = nullptr;
  {
    const ThreadLimit none(0);
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSystemError);
  }
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(state_of(comm), ncclSystemError);
  expect_why(comm);
  std::int32_t x = 1;
  EXPECT_EQ(sum_in_place(x, comm), ncclInvalidUsage);
  expect_success(ncclCommDestroy(comm));
}

TEST_F(Threads, ANonblockingCollectiveFailsAndTheNextMaySucceed) {
  run_ranks(
      1,
      [](int, ncclComm_t& comm) {
        std::int32_t x = 7;
        ncclComm_t child = nullptr;
        {
          const ThreadLimit none(0);
          EXPECT_EQ(sum_in_place(x, comm), ncclSystemError);
          EXPECT_EQ(state_of(comm), ncclSystemError);
          expect_why(comm);
          EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclSystemError);
          EXPECT_EQ(state_of(comm), ncclSystemError);
          ASSERT_NE(child, nullptr);
          EXPECT_EQ(state_of(child), ncclSystemError);
          expect_why(child);
        }
        expect_success(ncclCommDestroy(child));
        EXPECT_EQ(sum_in_place(x, comm), ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(x, 7);
      },
      nonblocking());
}

TEST_F(Threads, AGroupOfInitialisationsFailsAsAWhole) {
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  std::array<ncclComm_t, 3> comms{};
  expect_success(ncclGroupStart());
  for (int r = 0; r < 3; ++r) {
    expect_success(ncclCommInitRank(&comms[static_cast<std::size_t>(r)], 3, id, r));
  }
  {
    const ThreadLimit one(1);  // of the two that three ranks need beside the caller's
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  }
  expect_why(nullptr);
  for (const ncclComm_t comm : comms) EXPECT_EQ(comm, nullptr);
}

TEST_F(Threads, AllRanksOfAProcessFailAsAWhole) {
  std::array<ncclComm_t, 3> comms{};
  {
    const ThreadLimit one(1);
    EXPECT_EQ(ncclCommInitAll(comms.data(), 3, nullptr), ncclSystemError);
  }
  expect_why(nullptr);
  expect_success(ncclCommInitAll(comms.data(), 3, nullptr));
  for (const ncclComm_t comm : comms) expect_success(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace tutti::test
