// The heap of libtutti_windows.so, which is preloaded into this program: what malloc() and its
// relatives promise, and what fork() promises.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/window_heap.h"
#include "core/window_memory.h"

namespace tutti {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;

/// Of the memfds of the heap.
std::vector<int> heap_descriptors() {
  std::vector<int> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = read_symlink(entry.path(), ignored).string();
    if (target.find("tutti-heap") != std::string::npos) {
      result.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  return result;
}

/// The line of /proc/self/maps in which the memory lies.
std::string mapping_of(const void* pointer) {
  std::ifstream maps("/proc/self/maps");
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2 && from <= address && address < to) {
      return line;
    }
  }
  return "";
}
bool is_shared_heap(const void* pointer) {
  const std::string line = mapping_of(pointer);
  return line.find("rw-s") != std::string::npos && line.find("tutti-heap") != std::string::npos;
}

std::size_t shared_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "RssShmem: %zu kB", &kib) == 1) return kib >> 10;
  }
  return 0;
}

TEST(WindowsHeap, HoldsLargeBlocksAlone) {
  ASSERT_NE(dlsym(RTLD_DEFAULT, kWindowHeapSymbol), nullptr) << "LD_PRELOAD is not set";
  void* const large = malloc(kLarge);
  void* const small = malloc(1000);
  EXPECT_TRUE(is_shared_heap(large)) << mapping_of(large);
  EXPECT_FALSE(is_shared_heap(small)) << mapping_of(small);
  EXPECT_NE(find_window(large, kLarge).id, 0U);
  EXPECT_EQ(find_window(small, 1000).id, 0U);
  EXPECT_GE(malloc_usable_size(large), kLarge);
  free(large);
  free(small);
  const std::vector<float> vector(kLarge);
  EXPECT_TRUE(is_shared_heap(vector.data()));
}

TEST(WindowsHeap, AlignsAndZeroes) {
  for (std::size_t alignment = sizeof(void*); alignment <= (4U << 20); alignment *= 2) {
    void* p = nullptr;
    ASSERT_EQ(posix_memalign(&p, alignment, kLarge + 1), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % alignment, 0U) << alignment;
    std::memset(p, 0xFF, kLarge + 1);
    free(p);
    auto* const zeros = static_cast<unsigned char*>(calloc(kLarge + 1, 1));
    EXPECT_EQ(std::count(zeros, zeros + kLarge + 1, 0), static_cast<std::ptrdiff_t>(kLarge + 1));
    free(zeros);
  }
  void* p = &p;
  EXPECT_EQ(posix_memalign(&p, 24, kLarge), EINVAL);
  volatile std::size_t too_much = SIZE_MAX / 2;  // the compiler would refuse it
  EXPECT_EQ(calloc(too_much, 3), nullptr);
  EXPECT_EQ(malloc(too_much * 2 - 100), nullptr);
  EXPECT_EQ(reallocarray(nullptr, too_much, 3), nullptr);
  void* const empty = realloc(malloc(kLarge), 0);
  EXPECT_EQ(empty, nullptr);
}

/// Blocks that know what they hold: the contents depend on the seed and the position.
class Blocks {
 public:
  explicit Blocks(unsigned seed) : random_(seed) {}
  ~Blocks() {
    for (Block& b : blocks_) free(b.data);
  }
  void step() {
    const std::size_t bytes = std::size_t{1} << (random_() % 22);
    const std::size_t odd = bytes + random_() % bytes;
    switch (random_() % 4) {
      case 0:
        add(static_cast<unsigned char*>(malloc(odd)), odd);
        break;
      case 1:
        add(static_cast<unsigned char*>(aligned_alloc(64, odd / 64 * 64 + 64)), odd);
        break;
      case 2:
        if (!blocks_.empty()) change(blocks_[random_() % blocks_.size()], odd);
        break;
      default:
        if (!blocks_.empty()) remove(random_() % blocks_.size());
    }
  }
  int wrong() const { return wrong_; }

 private:
  struct Block {
    unsigned char* data;
    std::size_t bytes;
    unsigned seed;
  };
  static unsigned char value(unsigned seed, std::size_t i) {
    return static_cast<unsigned char>(seed * 31 + i * 7 + (i >> 8));
  }
  static void fill(const Block& b) {
    for (std::size_t i = 0; i < b.bytes; i += 97) b.data[i] = value(b.seed, i);
  }
  bool holds(const Block& b, std::size_t bytes) const {
    for (std::size_t i = 0; i < bytes; i += 97) {
      if (b.data[i] != value(b.seed, i)) return false;
    }
    return true;
  }
  void add(unsigned char* data, std::size_t bytes) {
    blocks_.push_back({data, bytes, static_cast<unsigned>(random_())});
    fill(blocks_.back());
  }
  void change(Block& b, std::size_t bytes) {
    b.data = static_cast<unsigned char*>(realloc(b.data, bytes));
    wrong_ += holds(b, std::min(b.bytes, bytes)) ? 0 : 1;
    b.bytes = bytes;
    fill(b);
  }
  void remove(std::size_t at) {
    wrong_ += holds(blocks_[at], blocks_[at].bytes) ? 0 : 1;
    free(blocks_[at].data);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  std::mt19937 random_;
  std::vector<Block> blocks_;
  int wrong_ = 0;
};

TEST(WindowsHeap, KeepsWhatThreadsWrite) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      Blocks blocks(t + 1);
      for (int i = 0; i < 1000; ++i) blocks.step();
      wrong += blocks.wrong();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(WindowsHeap, GivesFreedMemoryBack) {
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) {
    blocks.push_back(malloc(kLarge));
    std::memset(blocks.back(), i, kLarge);
  }
  void* const pin = malloc(kLarge);  // something lives behind them
  EXPECT_GE(shared_megabytes(), 200U);
  for (void* const b : blocks) free(b);
  EXPECT_LE(shared_megabytes(), 70U);
  free(pin);
}

TEST(WindowsHeap, ABlockMayGrowStepByStep) {
  const std::size_t before = heap_descriptors().size();
  void* block = malloc(kLarge);
  int moves = 0;
  for (std::size_t size = 2 * kLarge; size <= 512 * kLarge; size += kLarge) {
    void* const grown = realloc(block, size);
    ASSERT_NE(grown, nullptr);
    moves += grown != block ? 1 : 0;
    block = grown;
  }
  EXPECT_LE(moves, 5);
  EXPECT_LE(heap_descriptors().size(), before + 5);
  free(block);
}

/// Runs `child` in a child; its answer.
template <class Child>
bool in_child(Child child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child() ? 0 : 1);
  int status = -1;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

bool all_are(const std::vector<unsigned char>& bytes, unsigned char value) {
  return std::count(bytes.begin(), bytes.end(), value) == static_cast<std::ptrdiff_t>(bytes.size());
}

TEST(WindowsHeap, AForkCopies) {
  std::vector<unsigned char> bytes(kLarge, 1);
  std::array<int, 2> to_child{}, to_parent{};
  ASSERT_EQ(pipe(to_child.data()), 0);
  ASSERT_EQ(pipe(to_parent.data()), 0);
  const auto tell = [](int fd) { return write(fd, "x", 1) == 1; };
  const auto hear = [](int fd) {
    char c = 0;
    return read(fd, &c, 1) == 1;
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool right = hear(to_child[0]) && all_are(bytes, 1);  // not the parent's 2
    std::fill(bytes.begin(), bytes.end(), 3);
    right = right && tell(to_parent[1]) && hear(to_child[0]) && all_are(bytes, 3);
    const std::vector<unsigned char> later(kLarge, 4);
    _exit(right && is_shared_heap(later.data()) ? 0 : 1);
  }
  std::fill(bytes.begin(), bytes.end(), 2);
  const std::vector<unsigned char> later(kLarge, 5);
  EXPECT_TRUE(tell(to_child[1]) && hear(to_parent[0]));
  EXPECT_TRUE(all_are(bytes, 2));
  EXPECT_TRUE(tell(to_child[1]));
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(all_are(later, 5));
  EXPECT_FALSE(is_shared_heap(bytes.data())) << mapping_of(bytes.data());
  EXPECT_EQ(find_window(bytes.data(), bytes.size()).id, 0U);
  EXPECT_TRUE(is_shared_heap(later.data())) << mapping_of(later.data());
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
}

/// Closes the heap's descriptors, and has a file with one page under each of their numbers.
class TakenDescriptors {
 public:
  TakenDescriptors() : numbers_(heap_descriptors()) {
    const int file = memfd_create("the program's own", 0);
    EXPECT_EQ(ftruncate(file, kFileBytes), 0);
    EXPECT_EQ(pwrite(file, "x", 1, kFileBytes - 1), 1);
    for (const int number : numbers_) EXPECT_EQ(dup2(file, number), number);
    close(file);
  }
  ~TakenDescriptors() {
    for (const int number : numbers_) close(number);
  }
  /// Its one page is there.
  bool untouched() const {
    return !numbers_.empty() && std::all_of(numbers_.begin(), numbers_.end(), [](int number) {
      struct stat status {};
      char last = 0;
      return fstat(number, &status) == 0 && status.st_blocks == 8 &&
             pread(number, &last, 1, kFileBytes - 1) == 1 && last == 'x';
    });
  }

 private:
  static constexpr off_t kFileBytes = off_t{1} << 20;
  std::vector<int> numbers_;
};

TEST(WindowsHeap, ItsDescriptorsAreOutOfTheWay) {
  const std::vector<unsigned char> block(kLarge, 1);
  ASSERT_FALSE(heap_descriptors().empty());
  for (const int number : heap_descriptors()) EXPECT_GE(number, 512);
}

TEST(WindowsHeap, LeavesAloneWhatTheProgramOpensUnderItsNumbers) {
  std::vector<unsigned char> bytes(kLarge, 1);
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) {
    blocks.push_back(malloc(kLarge));
    std::memset(blocks.back(), i, kLarge);
  }
  const TakenDescriptors taken;
  EXPECT_EQ(find_window(bytes.data() + 1, 1).id, 0U) << "another rank would map the file";
  for (void* const b : blocks) free(b);  // more than it keeps
  EXPECT_TRUE(taken.untouched());
  {
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over) std::this_thread::yield();
    });
    EXPECT_EQ(fork(), -1) << "what other threads write could be lost";
    EXPECT_EQ(errno, EAGAIN);
    over = true;
    other.join();
  }
  EXPECT_TRUE(in_child([&] {
    const bool right = all_are(bytes, 1);
    std::fill(bytes.begin(), bytes.end(), 2);
    return right;
  }));
  EXPECT_TRUE(all_are(bytes, 1));
  EXPECT_TRUE(taken.untouched());
}

extern "C" int windows_fork_handlers_ran();  // windows_fork_handlers.cpp

TEST(WindowsHeap, HandlersOfForkMayAllocate) {
  const int before = windows_fork_handlers_ran();
  EXPECT_TRUE(in_child([&] { return windows_fork_handlers_ran() == before + 2; }));
  EXPECT_EQ(windows_fork_handlers_ran(), before + 2);
}

TEST(WindowsHeap, ForksBesideThreadsThatAllocate) {
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Blocks blocks(100 + t);
      while (!over) blocks.step();
      wrong += blocks.wrong();
    });
  }
  for (int i = 0; i < 30; ++i) {
    std::vector<unsigned char> mine(kLarge, static_cast<unsigned char>(i));
    EXPECT_TRUE(in_child([&] {
      Blocks blocks(static_cast<unsigned>(i));
      for (int k = 0; k < 20; ++k) blocks.step();
      return blocks.wrong() == 0 && all_are(mine, static_cast<unsigned char>(i));
    }));
  }
  over = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tutti
