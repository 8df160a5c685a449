// What Tutti says about the binary interface of libpmix, compared with the library's own header.
#include "bootstrap/pmix_abi.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#if __has_include(<pmix.h>)
#include <pmix.h>

namespace tutti {
namespace {

template <class T, class U>
constexpr bool kSame = std::is_same_v<T, U>;

TEST(PmixAbi, IsThatOfTheHeader) {
  EXPECT_EQ(sizeof(pmix::Process), sizeof(pmix_proc_t));
  EXPECT_EQ(offsetof(pmix::Process, rank), offsetof(pmix_proc_t, rank));
  EXPECT_EQ(sizeof(pmix::Value), sizeof(pmix_value_t));
  EXPECT_EQ(offsetof(pmix::Value, string), offsetof(pmix_value_t, data.string));
  EXPECT_EQ(offsetof(pmix::Value, flag), offsetof(pmix_value_t, data.flag));
  EXPECT_EQ(sizeof(pmix::Info), sizeof(pmix_info_t));
  EXPECT_EQ(offsetof(pmix::Info, flags), offsetof(pmix_info_t, flags));
  EXPECT_EQ(offsetof(pmix::Info, value), offsetof(pmix_info_t, value));
  EXPECT_EQ(pmix::kSuccess, PMIX_SUCCESS);
  EXPECT_EQ(pmix::kBoolean, PMIX_BOOL);
  EXPECT_EQ(pmix::kString, PMIX_STRING);
  EXPECT_EQ(pmix::kUint32, PMIX_UINT32);
  EXPECT_EQ(offsetof(pmix::Value, number), offsetof(pmix_value_t, data.uint32));
  EXPECT_EQ(pmix::kAnyRank, PMIX_RANK_WILDCARD);
  EXPECT_STREQ(pmix::kJobSize, PMIX_JOB_SIZE);
  EXPECT_STREQ(pmix::kLocalSize, PMIX_LOCAL_SIZE);
  EXPECT_EQ(pmix::kToAll, PMIX_GLOBAL);
  EXPECT_STREQ(pmix::kCollectData, PMIX_COLLECT_DATA);
  EXPECT_TRUE((kSame<pmix_status_t, int>));
  EXPECT_TRUE((kSame<pmix_scope_t, std::uint8_t>));
  EXPECT_TRUE((kSame<pmix_data_type_t, std::uint16_t>));
}

}  // namespace
}  // namespace tutti
#else
TEST(PmixAbi, IsThatOfTheHeader) { GTEST_SKIP() << "no pmix.h here (Debian: libpmix-dev)"; }
#endif
