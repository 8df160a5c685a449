// The kernel that measures the limit of copies (laboratory/limits/gpu_copy.cu), as PTX: every byte
// once, and none beside them.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/ptx/ptx_device.h"

namespace tutti::ptx {
namespace {

constexpr std::size_t kPack = 16;

struct Copied {
  std::vector<std::byte> from, to;
};

Copied run(const Program& program, std::size_t packs, std::uint32_t blocks, std::uint64_t seed) {
  PtxDevice device(seed);
  std::byte* const from = device.allocate(packs * kPack);
  std::byte* const to = device.allocate(packs * kPack);
  for (std::size_t i = 0; i < packs * kPack; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  struct {
    std::byte* to;
    const std::byte* from;
    std::size_t count;
  } const parameters{to, from, packs};
  device.machine.run(program, std::as_bytes(std::span(&parameters, 1)),
                     std::vector<std::uint32_t>(blocks));
  Copied c;
  c.from.assign(from, from + packs * kPack);
  c.to.assign(to, to + packs * kPack);
  device.deallocate(from);
  device.deallocate(to);
  return c;
}

TEST(PtxCopy, MovesEveryByte) {
  const std::string text = ptx_text("gpu_copy", 90);
  if (text.empty()) GTEST_SKIP() << "nvcc is missing: no PTX";
  const auto program = make_program(text);
  ASSERT_EQ(program->threads, 512U);
  std::uint64_t seed = 0;
  for (const std::uint32_t blocks : {1u, 3u}) {
    const std::size_t once = std::size_t{512} * blocks;
    // Nothing, parts of a warp, and about whole rounds of all blocks.
    for (const std::size_t packs : {std::size_t{1}, std::size_t{31}, once - 1, once, once + 1,
                                    4 * once - 1, 4 * once, 4 * once + 1, 9 * once + 77}) {
      const Copied c = run(*program, packs, blocks, ++seed);
      ASSERT_EQ(c.to, c.from) << packs << " packs by " << blocks << " blocks";
    }
  }
}

// A kernel that goes one pack too far is found, though the memory behind is the process's own.
TEST(PtxCopy, DoesNotGoBeyondItsEnd) {
  const std::string text = ptx_text("gpu_copy", 90);
  if (text.empty()) GTEST_SKIP() << "nvcc is missing: no PTX";
  const auto program = make_program(text);
  PtxDevice device(1);
  std::byte* const memory = device.allocate(2 * 512 * kPack);
  struct {
    std::byte* to;
    const std::byte* from;
    std::size_t count;
  } const parameters{memory + 512 * kPack, memory, 513};
  EXPECT_THROW(device.machine.run(*program, std::as_bytes(std::span(&parameters, 1)), {0}), Fault);
  device.deallocate(memory);
}

}  // namespace
}  // namespace tutti::ptx
