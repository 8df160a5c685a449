// Creating, splitting and destroying communicators over and over leaves nothing: no file
// descriptors, no maps, no memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/window.h"
#include "core/memory.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

struct Usage {
  std::size_t files = 0;
  std::size_t maps = 0;
  long resident_pages = 0;
};

Usage usage() {
  Usage u;
  for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator("/proc/self/fd"))
    ++u.files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++u.maps;
  long total = 0;
  std::ifstream("/proc/self/statm") >> total >> u.resident_pages;
  return u;
}

void cycle() {
  test::run_thread_ranks(2, [](Communicator& c) {
    std::vector<float, Allocator<float>> x(100'000, 1.0F);
    c.all_reduce(x.data(), x.data(), x.size(), DataType::float32);
    Communicator half = c.split(c.rank() % 2, 0);
    Communicator both = c.split(0, c.rank());
    both.all_reduce(x.data(), x.data(), 10, DataType::float32);
    half.barrier();
  });
}

int cycles() { return test::number_from("TUTTI_TEST_CYCLES", 200); }

TEST(Leaks, WindowsThatFail) {
  const test::Variable variable("TUTTI_APART", "1");
  std::vector<std::size_t> files;
  test::run_thread_ranks(3, [&](Communicator& c) {
    for (int i = 0; i < 20; ++i) {
      const auto opens = [&] { c.window(c.rank() == 1 ? std::size_t{1} << 55 : 4096); };
      EXPECT_NE(test::error_of(opens).code(), ErrorCode{});
      c.barrier();
      if (c.rank() == 0) files.push_back(usage().files);
      c.barrier();
    }
  });
  EXPECT_EQ(files.back(), files.front());
}

TEST(Leaks, CreateSplitDestroy) {
  for (int i = 0; i < 20; ++i) cycle();
  const Usage before = usage();
  for (int i = 0; i < cycles(); ++i) cycle();
  const Usage after = usage();
  EXPECT_EQ(after.files, before.files);
  // Stacks of the test's own threads come and go; a leak would be at least one map a cycle.
  EXPECT_LT(after.maps, before.maps + static_cast<std::size_t>(cycles()) / 10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
  const long pages = after.resident_pages - before.resident_pages;
  EXPECT_LT(pages * sysconf(_SC_PAGESIZE), 1L * 1024 * cycles()) << "bytes more than before";
#endif
  std::printf("%d cycles: files %zu -> %zu, maps %zu -> %zu, resident %ld -> %ld pages\n", cycles(),
              before.files, after.files, before.maps, after.maps, before.resident_pages,
              after.resident_pages);
}

TEST(Leaks, UniqueIdsAndRendezvous) {
  const auto meet = [] {
    const UniqueId id = make_unique_id();
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.emplace_back([&id, r] { Communicator::create(id, r, 2).barrier(); });
    }
  };
  for (int i = 0; i < 10; ++i) meet();
  const Usage before = usage();
  for (int i = 0; i < 50; ++i) meet();
  EXPECT_EQ(usage().files, before.files);
}

TEST(Leaks, WindowsThatAreFreedAreForgotten) {
  test::run_thread_ranks(2, [](Communicator& c) {
    std::size_t files = 0;
    for (int i = 0; i < 300; ++i) {
      std::vector<float, Allocator<float>> x(200'000, 1.0F);
      c.all_reduce(x.data(), x.data(), x.size(), DataType::float32);
      c.barrier();
      if (i == 20) files = usage().files;
      if (i > 20) {
        ASSERT_LE(usage().files, files + 2);
      }
    }
  });
}

}  // namespace
}  // namespace tutti
