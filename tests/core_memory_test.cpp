// Memory that becomes a window where it is, and ordinary memory again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
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

TEST(RegisteredMemory, KeepsWhatItAndItsNeighboursHold) {
  std::vector<std::uint8_t> all(1'000'003);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  const std::vector<std::uint8_t> before = all;
  std::uint8_t* const part = all.data() + 12'345;
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(find_window(part, 700'001).id, 0u);
    register_memory(part, 700'001);
    const WindowMemory w = find_window(part, 700'001);
    EXPECT_NE(w.id, 0u);
    EXPECT_EQ(all, before);
    // Who maps the memfd sees what is written here.
    part[5] ^= 0xFF;
    std::uint8_t seen = 0;
    const auto at = reinterpret_cast<std::byte*>(part + 5) - w.base;
    ASSERT_EQ(pread(w.fd, &seen, 1, at), 1);
    EXPECT_EQ(seen, part[5]);
    part[5] ^= 0xFF;
    deallocate(part);  // is not what allocate() returned
    EXPECT_EQ(find_window(part, 1).id, w.id);
    unregister_memory(part);
    EXPECT_EQ(find_window(part, 1).id, 0u);
    EXPECT_LT(fcntl(w.fd, F_GETFD), 0) << "the memfd is closed";
    EXPECT_EQ(all, before);
  }
  unregister_memory(part);  // is ignored
  unregister_memory(nullptr);
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
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_NE(refusal(nullptr, 8).find("there is no such memory"), std::string::npos);
  std::vector<char> some(64 << 10);
  EXPECT_NE(refusal(some.data(), 0).find("there is no such memory"), std::string::npos);
  EXPECT_NE(refusal(some.data(), SIZE_MAX).find("there is no such memory"), std::string::npos);
  char on_stack[16] = {};
  EXPECT_NE(refusal(on_stack, sizeof on_stack).find("no stack"), std::string::npos);
  static const char kConstant[] = "read only";
  EXPECT_NE(refusal(const_cast<char*>(kConstant), 4).find("process's own"), std::string::npos);

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
  EXPECT_NE(refusal(window, 8).find("in a window already"), std::string::npos);
  deallocate(window);
  register_memory(some.data() + 100, 20'000);
  EXPECT_NE(refusal(some.data() + 20'000, 20'000).find("in a window already"), std::string::npos);
  EXPECT_NE(refusal(some.data(), 101).find("in a window already"), std::string::npos);
  unregister_memory(some.data() + 100);
  EXPECT_EQ(refusal(some.data(), 101), "accepted");
}

}  // namespace
}  // namespace tutti
