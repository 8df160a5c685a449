// What memory there is, as a host and its control groups say it; sizes that cannot be are refused
// before anything is touched.
#include "core/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "tests/support/address_space.h"
#include "tests/support/grouping_locale.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// A folder in the place of "/": a host of 64 GiB, 40 of them available, 8 of swap, 6 free.
class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    write("proc/meminfo",
          "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   41943040 kB\n"
          "SwapTotal:       8388608 kB\nSwapFree:        6291456 kB\nHugepagesize: 2048 kB\n");
    write("proc/sys/kernel/random/boot_id", "0123\n");
  }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder.path() + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    folder.write(path, text);
  }
  HostMemory look() const { return host_memory(folder.path()); }

  const TemporaryFolder folder;
};

TEST_F(HostMemoryTest, IsTheHostsWhereNoGroupHasALimit) {
  for (const std::string groups : {"", "0::/a/b\n", "4:memory:/a\n0::/\n"}) {
    write("proc/self/cgroup", groups);
    write("sys/fs/cgroup/a/b/memory.max", "max\n");
    write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(look().total, 72 * kGiB);
    EXPECT_EQ(look().available, 46 * kGiB);
  }
}

TEST_F(HostMemoryTest, DoesNotDependOnTheProgramsLocale) {
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", "34359738368\n");
  write("sys/fs/cgroup/job/memory.current", "32212254720\n");
  write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 3221225472\nslab 7\n");
  const HostMemory before = look();
  const test::GroupingLocale locale;
  const HostMemory m = look();
  EXPECT_EQ(m.total, before.total);
  EXPECT_EQ(m.available, before.available);
  EXPECT_EQ(m.total, 40 * kGiB);
}

TEST_F(HostMemoryTest, IsWhatTheTightestGroupLeaves) {
  const std::uint64_t domain = look().domain;
  write("proc/self/cgroup", "0::/job/step/task\n");
  write("sys/fs/cgroup/job/memory.max", "34359738368\n");  // 32 GiB, 30 used, 4 of them files'
  write("sys/fs/cgroup/job/memory.current", "32212254720\n");
  write("sys/fs/cgroup/job/memory.stat",
        "anon 1\nfile 9\ninactive_file 3221225472\nactive_file 1073741824\nslab 7\n");
  write("sys/fs/cgroup/job/step/task/memory.max", "17179869184\n");  // 16 GiB, 1 used
  write("sys/fs/cgroup/job/step/task/memory.current", "1073741824\n");
  EXPECT_EQ(look().total, 24 * kGiB);      // 16, and swap
  EXPECT_EQ(look().available, 12 * kGiB);  // the job's 32 - (30 - 4), and free swap
  // Tasks of the job share that.
  const std::uint64_t of_job = look().domain;
  EXPECT_NE(of_job, domain);
  write("proc/self/cgroup", "0::/job/step/other\n");
  EXPECT_EQ(look().domain, of_job);
}

TEST_F(HostMemoryTest, IsWhatAGroupOfTheFirstVersionLeaves) {
  write("proc/self/cgroup", "9:name=systemd:/x\n4:memory:/y\n");
  write("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "2147483648\n");
  write("sys/fs/cgroup/memory/y/memory.usage_in_bytes", "1610612736\n");
  write("sys/fs/cgroup/memory/y/memory.stat", "cache 1\ntotal_inactive_file 536870912\n");
  EXPECT_EQ(look().total, 10 * kGiB);
  EXPECT_EQ(look().available, 7 * kGiB);
}

TEST_F(HostMemoryTest, IsUnknownWhereNobodySaysIt) {
  std::filesystem::remove_all(folder.path() + "/proc");
  EXPECT_EQ(look().total, HostMemory::kUnknown);
  EXPECT_EQ(look().available, HostMemory::kUnknown);
}

TEST(HostMemory, OfThisMachineIsPlausible) {
  const HostMemory here = host_memory();
  EXPECT_GE(here.total, std::uint64_t(sysconf(_SC_PAGESIZE)));
  EXPECT_LE(here.available, here.total);
  EXPECT_EQ(here.domain, host_memory().domain);
}

TEST(HostMemory, IsWrittenForPeople) {
  EXPECT_EQ(memory_text(12), "12 B");
  EXPECT_EQ(memory_text(1536), "1.5 KiB");
  EXPECT_EQ(memory_text(8.0 * 1024 * kGiB), "8 TiB");
}

// --- Windows -------------------------------------------------------------------------------------

void expect_no_memory(std::size_t bytes, const std::string& part) {
  void* memory = nullptr;
  const Error e = test::error_of([&] { memory = allocate(bytes); });
  deallocate(memory);
  EXPECT_EQ(e.code(), ErrorCode::system) << bytes;
  EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
}

TEST(Windows, LargerThanTheMachineAreRefused) {
  const std::string part = "of window memory cannot be had: there are ";
  expect_no_memory(std::size_t{1} << 43, "8 TiB " + part);
  expect_no_memory(~std::size_t{0}, part);
  expect_no_memory(~std::size_t{0}, "(docs/memory.md)");
  EXPECT_EQ(
      test::error_of([] { std::vector<double, Allocator<double>> x(std::size_t{1} << 42); }).code(),
      ErrorCode::system);
}

TEST(Windows, LargerThanTheMachineTogetherAreRefused) {
  const auto most = static_cast<std::size_t>(host_memory().total / 5 * 3);
  void* const first = allocate(most);
  expect_no_memory(most, "its windows have ");
  deallocate(first);
  deallocate(allocate(most));  // there is room again
}

TEST(Windows, ThatTheSystemRefusesAreErrorsToo) {
  const test::AddressSpace limit(std::size_t{256} << 20);
  expect_no_memory(std::size_t{1} << 30, "1 GiB of window memory cannot be had (limits on files");
}

TEST(FileLimit, IsAnErrorAndNoSignal) {
  EXPECT_EXIT(
      {
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = 20 << 20;
        setrlimit(RLIMIT_FSIZE, &limit);
        deallocate(allocate(10 << 20));
        try {
          allocate(30 << 20);
        } catch (const Error& e) {
          std::fputs(e.what(), stderr);
          _exit(e.code() == ErrorCode::system ? 3 : 4);
        }
        _exit(5);
      },
      testing::ExitedWithCode(3), "30 MiB of shared memory cannot be had.*20 MiB.*ulimit -f");
}

}  // namespace
}  // namespace tutti
