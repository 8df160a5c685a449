// Memory that becomes a window where it is, and ordinary memory again.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "core/window_memory.h"

namespace tutti {
namespace {

std::string refusal(void* pointer, std::size_t bytes) {
  try {
    register_memory(pointer, bytes);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  unregister_memory(pointer);
  return "accepted";
}

const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

TEST(RegisteredMemory, KeepsWhatItHolds) {
  std::vector<std::uint8_t> all(1'000'003);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  const std::vector<std::uint8_t> before = all;
  std::uint8_t* const part = all.data() + 12'345;
  for (int round = 0; round < 3; ++round) {
    const std::span<std::byte> pages = register_memory(part, 700'001);
    const WindowMemory w = find_window(pages.data(), pages.size());
    EXPECT_NE(w.id, 0u);
    EXPECT_EQ(all, before);
    // A process that maps the memfd sees what is written here.
    pages[5] ^= std::byte{0xFF};
    std::byte seen{};
    ASSERT_EQ(pread(w.fd, &seen, 1, pages.data() + 5 - w.base), 1);
    EXPECT_EQ(seen, pages[5]);
    pages[5] ^= std::byte{0xFF};
    deallocate(part);  // is not what allocate() returned
    deallocate(pages.data());
    EXPECT_EQ(find_window(pages.data(), 1).id, w.id);
    unregister_memory(part);
    EXPECT_EQ(find_window(pages.data(), 1).id, 0u);
    EXPECT_LT(fcntl(w.fd, F_GETFD), 0) << "the memfd is closed";
    EXPECT_EQ(all, before);
  }
  unregister_memory(part);  // is ignored
  unregister_memory(nullptr);
}

// What else lies on a buffer's first and last page belongs to others, malloc() among them.
TEST(RegisteredMemory, IsWholePagesAlone) {
  auto* const all = static_cast<char*>(std::aligned_alloc(kPage, 5 * kPage));
  std::memset(all, 1, 5 * kPage);
  const auto registered = [&](std::size_t from, std::size_t to) {
    const std::span<std::byte> pages = register_memory(all + from, to - from);
    EXPECT_NE(find_window(pages.data(), pages.size()).id, 0u);
    EXPECT_EQ(find_window(pages.data() - 1, 1).id, 0u);
    EXPECT_EQ(find_window(pages.data() + pages.size(), 1).id, 0u);
    unregister_memory(all + from);
    const auto begin = static_cast<std::size_t>(reinterpret_cast<char*>(pages.data()) - all);
    return std::pair(begin, begin + pages.size());
  };
  EXPECT_EQ(registered(0, 5 * kPage), std::pair(0 * kPage, 5 * kPage));
  EXPECT_EQ(registered(1, 5 * kPage), std::pair(1 * kPage, 5 * kPage));
  EXPECT_EQ(registered(0, 5 * kPage - 1), std::pair(0 * kPage, 4 * kPage));
  EXPECT_EQ(registered(1, 3 * kPage - 1), std::pair(1 * kPage, 2 * kPage));
  EXPECT_NE(refusal(all + 1, 2 * kPage - 2).find("no whole page"), std::string::npos);
  std::free(all);
}

// A neighbour that is written to all the time loses no write.
TEST(RegisteredMemory, DisturbsNoNeighbour) {
  auto* const all = static_cast<char*>(std::aligned_alloc(kPage, 4 * kPage));
  std::memset(all, 0, 4 * kPage);
  auto& counter = *reinterpret_cast<std::atomic<std::uint64_t>*>(all);
  std::atomic<bool> stop{false};
  std::uint64_t counted = 0;
  std::thread neighbour([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      counter.fetch_add(1, std::memory_order_relaxed);
      ++counted;
    }
  });
  for (int round = 0; round < 2000; ++round) {
    register_memory(all + 64, 4 * kPage - 64);
    unregister_memory(all + 64);
  }
  stop = true;
  neighbour.join();
  EXPECT_EQ(counter.load(), counted);
  std::free(all);
}

// The owner's pages go when it frees them, even if others have them mapped.
TEST(Window, GivesItsPagesBackAtOnce) {
  constexpr std::size_t kBytes = 8 << 20;
  void* const memory = allocate(kBytes);
  std::memset(memory, 1, kBytes);
  const WindowMemory w = find_window(memory, kBytes);
  void* const others = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, w.fd, 0);
  const int fd = dup(w.fd);
  const auto held = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(fd, &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  };
  EXPECT_EQ(held(), kBytes);
  deallocate(memory);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(*static_cast<char*>(others), 0);
  munmap(others, kBytes);
  close(fd);
}

// What a child of fork() has is not taken away from it, and what it frees stays the parent's.
TEST(Window, OfBothAParentAndItsChildStaysUntilBothHaveFreedIt) {
  constexpr std::size_t kBytes = 1 << 20;
  auto* const first = static_cast<char*>(allocate(kBytes));
  auto* const second = static_cast<char*>(allocate(kBytes));
  std::memset(first, 1, kBytes);
  std::memset(second, 2, kBytes);
  int parent_freed[2];
  ASSERT_EQ(pipe(parent_freed), 0);
  const pid_t child = fork();
  if (child == 0) {
    deallocate(first);
    char go = 0;
    if (read(parent_freed[0], &go, 1) != 1) _exit(1);
    for (std::size_t i = 0; i < kBytes; ++i) {
      if (second[i] != 2) _exit(2);
    }
    deallocate(second);
    _exit(0);
  }
  deallocate(second);
  ASSERT_EQ(write(parent_freed[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(first[i], 1);
  deallocate(first);
  close(parent_freed[0]);
  close(parent_freed[1]);
}

TEST(RegisteredMemory, MayBeFreedOnceItIsOrdinaryAgain) {
  for (int round = 0; round < 100; ++round) {
    void* const p = std::malloc(3 << 20);
    std::memset(p, round, 3 << 20);
    register_memory(p, 3 << 20);
    unregister_memory(p);
    EXPECT_EQ(static_cast<unsigned char*>(p)[3 << 19], round);
    std::free(p);
  }
}

TEST(RegisteredMemory, ThatIsNotTheProcessesOwnIsRefused) {
  const std::size_t page = kPage;
  EXPECT_NE(refusal(nullptr, 8).find("there is no such memory"), std::string::npos);
  std::vector<char> some(64 << 10);
  EXPECT_NE(refusal(some.data(), 0).find("there is no such memory"), std::string::npos);
  EXPECT_NE(refusal(some.data(), SIZE_MAX).find("there is no such memory"), std::string::npos);
  alignas(4096) char on_stack[4 * 4096] = {};
  EXPECT_NE(refusal(on_stack, sizeof on_stack).find("no stack"), std::string::npos);
  std::jthread([] {  // whose stack looks like any memory
    alignas(4096) char of_thread[4 * 4096] = {};
    EXPECT_NE(refusal(of_thread, sizeof of_thread).find("no stack"), std::string::npos);
  })
      .join();
  static const std::array<char, 1 << 16> constant{1};
  EXPECT_NE(refusal(const_cast<char*>(constant.data()), constant.size()).find("process's own"),
            std::string::npos);

  const auto map = [&](int flags) {
    return mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  };
  void* const shared = map(MAP_SHARED);
  EXPECT_NE(refusal(shared, page).find("process's own"), std::string::npos);
  munmap(shared, 3 * page);
  auto* const hole = static_cast<char*>(map(MAP_PRIVATE));
  munmap(hole + page, page);
  EXPECT_NE(refusal(hole, 3 * page).find("process's own"), std::string::npos);
  EXPECT_EQ(refusal(hole, page), "accepted");
  munmap(hole, page);
  munmap(hole + 2 * page, page);

  void* const window = allocate(2 * page);
  EXPECT_NE(refusal(window, page).find("in a window already"), std::string::npos);
  EXPECT_NE(refusal(window, page).find(fmt::format("the one at {}", fmt::ptr(window))),
            std::string::npos)
      << refusal(window, page);
  deallocate(window);
  const std::span<std::byte> part = register_memory(some.data() + 100, 20'000);
  EXPECT_NE(refusal(part.data(), part.size()).find("in a window already"), std::string::npos);
  EXPECT_NE(refusal(some.data(), some.size()).find("in a window already"), std::string::npos);
  unregister_memory(some.data() + 100);
  EXPECT_EQ(refusal(some.data(), some.size()), "accepted");
}

}  // namespace
}  // namespace tutti
