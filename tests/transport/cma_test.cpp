// Copies from and to the memory of another process that does not keep still: it frees the memory
// meanwhile, or dies. The copy ends with an error then, and the process that makes it goes on.
#include "transport/host/cma.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::error_of;

constexpr std::size_t kPage = 65536;  // or a multiple of it
constexpr std::size_t kMapped = 4 * kPage;

/// A child that has a copy of `memory`, without its last page, until it is killed.
class Child {
 public:
  explicit Child(std::span<std::byte> memory) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw_system_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      munmap(memory.data() + memory.size() - kPage, kPage);
      if (write(ends[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char said = 0;
    EXPECT_EQ(read(ends[0], &said, 1), 1);
    close(ends[0]);
    close(ends[1]);
  }
  ~Child() { reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  /// Returns when it is dead; its parent has not asked for its status yet.
  void kill_it() const {
    kill(pid_, SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void reap() {
    if (reaped_) return;
    kill_it();
    waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
};

TEST(Cma, MemoryThatIsGoneIsAnErrorAndSoIsAProcess) {
  void* const mapped =
      mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span memory{static_cast<std::byte*>(mapped), kMapped};
  std::memset(memory.data(), 5, memory.size());
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  Child child(memory);
  if (!cma_probe(child.pid(), address, 0x0505'0505'0505'0505)) {
    GTEST_SKIP() << "this system allows no process_vm_readv";
  }
  std::vector<std::byte> here(kMapped);
  const auto codes = [&](std::size_t bytes) {
    return std::array{
        error_of([&] { cma_read(child.pid(), here.data(), address, bytes); }).code(),
        error_of([&] { cma_write(child.pid(), here.data(), address, bytes); }).code()};
  };
  constexpr std::array kFine{ErrorCode{}, ErrorCode{}};
  constexpr std::array kSystem{ErrorCode::system, ErrorCode::system};
  EXPECT_EQ(codes(kMapped - kPage), kFine);
  EXPECT_EQ(here[kMapped - kPage - 1], std::byte{5});
  EXPECT_EQ(codes(kMapped), kSystem) << "its last page is not there";
  child.kill_it();
  EXPECT_EQ(codes(kPage), kSystem) << "it is dead";
  child.reap();
  EXPECT_EQ(codes(kPage), kSystem) << "there is no such process";
  munmap(mapped, kMapped);
}

}  // namespace
}  // namespace tutti
