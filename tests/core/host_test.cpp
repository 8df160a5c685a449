// Which cores share a last-level cache, as hwloc says and as the kernel's files do.
#include "core/host.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

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

/// From now on this process may not ask for its cores, as where a filter of system calls forbids
/// it.
bool forbid_asking_for_cores() {
  std::array<sock_filter, 4> rules{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(rules.size()), rules.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Host, IsLookedAtWhereItsCoresMayNotBeAskedFor) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // in a process that has not looked yet
  EXPECT_EXIT(
      {
        if (!forbid_asking_for_cores()) std::_Exit(0);  // not on this system
        alarm(20);
        const bool right = host().cores >= 1 && allowed_cores().any() && domain_of({}) == -1;
        std::_Exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti
