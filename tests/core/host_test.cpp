// Which cores share a last-level cache, as hwloc says and as the kernel's files do.
#include "core/host.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Domains, OfCoresAreThoseOfHwloc) {
  const CoreSet allowed = allowed_cores();
  ASSERT_TRUE(allowed.any());
  int compared = 0;
  for (const CoreSet& domain : host().domains) {
    const auto first = static_cast<int>(domain._Find_first());
    EXPECT_EQ(domain_of(domain), first);
    for (std::size_t c = 0; c < domain.size(); ++c) {
      if (!domain[c]) continue;
      EXPECT_EQ(domain_of(CoreSet().set(c)), first) << "core " << c;
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

TEST(Domains, OfNoCoresAndOfCoresThatDoNotExistAreNone) {
  EXPECT_EQ(domain_of({}), -1);
  EXPECT_EQ(domain_of(CoreSet().set(1023)), -1);
  EXPECT_EQ(domain_of(CoreSet().set()), -1);
}

// Of the kernel's files, where there are any: a rank of many does not wait for hwloc's plugins.
TEST(L3Bytes, AreThoseThatHwlocSees) { EXPECT_EQ(l3_bytes(), host().l3_bytes); }

}  // namespace
}  // namespace tutti
