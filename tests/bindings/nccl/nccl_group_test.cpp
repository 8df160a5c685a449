// Groups: several communicators of one thread, made, split and used together; calls that spoil
// them.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "bindings/nccl/nccl.h"
#include "tests/bindings/nccl/ranks.h"

namespace tutti::test {
namespace {

TEST(Group, OneThreadDrivesAllRanks) {
  for (const int n : {1, 2, 5}) {
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(n));
    expect_success(ncclCommInitAll(comms.data(), n, nullptr));
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}}) {
      std::vector<std::vector<std::int64_t>> x(comms.size());
      expect_success(ncclGroupStart());
      for (std::size_t r = 0; r < x.size(); ++r) {
        x[r].resize(count);
        std::iota(x[r].begin(), x[r].end(), static_cast<std::int64_t>(r) * 1'000'000);
        expect_success(
            ncclAllReduce(x[r].data(), x[r].data(), count, ncclInt64, ncclSum, comms[r], nullptr));
      }
      expect_success(ncclGroupEnd());
      for (std::size_t r = 0; r < x.size(); ++r) {
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(x[r][i], n * (n - 1) / 2 * 1'000'000 + n * static_cast<std::int64_t>(i));
        }
      }
    }
    expect_success(ncclGroupStart());
    for (auto* comm : comms) expect_success(ncclCommDestroy(comm));
    expect_success(ncclGroupEnd());
  }
}

TEST(Group, OneThreadMakesAllRanksAndSplitsThem) {
  constexpr int kRanks = 4;
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  std::array<ncclComm_t, kRanks> comms{}, halves{};
  expect_success(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    expect_success(ncclCommInitRank(&comms.at(r), kRanks, id, r));
  }
  expect_success(ncclGroupEnd());
  expect_success(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    expect_success(ncclCommSplit(comms.at(r), r / 2, r, &halves.at(r), nullptr));
  }
  expect_success(ncclGroupEnd());
  // Both communicators of every rank in one group, in another order on each rank, and messages.
  std::array<std::int32_t, kRanks> whole{1, 2, 3, 4}, half{1, 2, 3, 4}, from{};
  expect_success(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    expect_success(ncclSend(&half.at(r), 0, ncclInt32, (r + 1) % kRanks, comms.at(r), nullptr));
    if (r % 2 == 0) expect_success(sum_in_place(whole.at(r), comms.at(r)));
    expect_success(sum_in_place(half.at(r), halves.at(r)));
    if (r % 2 == 1) expect_success(sum_in_place(whole.at(r), comms.at(r)));
    expect_success(ncclRecv(&from.at(r), 0, ncclInt32, (r + 3) % kRanks, comms.at(r), nullptr));
  }
  expect_success(ncclGroupEnd());
  EXPECT_EQ(whole, (std::array<std::int32_t, kRanks>{10, 10, 10, 10}));
  EXPECT_EQ(half, (std::array<std::int32_t, kRanks>{3, 3, 7, 7}));
  for (auto* comm : halves) expect_success(ncclCommDestroy(comm));
  for (auto* comm : comms) expect_success(ncclCommDestroy(comm));
}

TEST(Group, ARefusedCallSpoilsTheGroup) {
  std::array<ncclComm_t, 2> comms{};
  expect_success(ncclCommInitAll(comms.data(), 2, nullptr));
  std::int32_t x = 5;
  expect_success(ncclGroupStart());
  expect_success(sum_in_place(x, comms[0]));
  EXPECT_EQ(ncclReduce(&x, &x, 1, ncclInt32, ncclSum, 7, comms[1], nullptr), ncclInvalidArgument);
  EXPECT_NE(last_error().find("root 7"), std::string::npos) << last_error();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(x, 5) << "nothing of the group ran";
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  // What would wait for ever is refused.
  EXPECT_EQ(ncclSend(&x, 1, ncclInt32, 0, comms[0], nullptr), ncclInvalidUsage);
  for (auto* comm : comms) expect_success(ncclCommDestroy(comm));
}

TEST(Group, SimulationRunsNothing) {
  ncclComm_t comm = nullptr;
  expect_success(ncclCommInitAll(&comm, 1, nullptr));
  std::int32_t x = 5, y = 0;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  expect_success(ncclGroupStart());
  expect_success(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, comm, nullptr));
  expect_success(ncclGroupSimulateEnd(&info));
  EXPECT_EQ(y, 0);
  EXPECT_EQ(info.estimatedTime, NCCL_UNDEF_FLOAT);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  info.magic = 1;
  expect_success(ncclGroupStart());
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
  expect_success(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace tutti::test
