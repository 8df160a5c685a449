// Painting and comparing, a block at a time: no second buffer as large as the first.
#include "bench/perf/image.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::perf {

namespace {

constexpr std::size_t kBlock = 2048;  // elements

// Paints elements [first, first + count) of the image to `out`.
void paint_block(const Data& data, const Image& image, std::size_t first, std::size_t count,
                 std::byte* out) {
  const std::size_t size = size_of(data.recipe().type);
  // A patch that a later one covers is not painted: the last patch that covers the whole block, or
  // filler, comes first.
  auto patch = image.patches.end();
  bool covered = false;
  while (!covered && patch != image.patches.begin()) {
    --patch;
    covered = patch->at <= first && first + count <= patch->at + patch->count;
  }
  if (!covered) data.filler(first, count, out);
  for (; patch != image.patches.end(); ++patch) {
    const std::size_t begin = std::max(first, patch->at);
    const std::size_t end = std::min(first + count, patch->at + patch->count);
    if (begin >= end) continue;
    const std::uint64_t position = patch->position + (begin - patch->at);
    std::byte* target = out + (begin - first) * size;
    if (patch->content == Content::input) {
      data.input(patch->rank, position, end - begin, target);
    } else {
      data.reduction(position, end - begin, target);
    }
  }
}

}  // namespace

void paint(const Data& data, const Image& image, std::size_t first, std::size_t count, void* out) {
  const std::size_t size = size_of(data.recipe().type);
  for (std::size_t done = 0; done < count; done += kBlock) {
    paint_block(data, image, first + done, std::min(kBlock, count - done),
                static_cast<std::byte*>(out) + done * size);
  }
}

std::size_t count_wrong(const Data& data, const Image& image, std::size_t first, std::size_t count,
                        const void* found) {
  const std::size_t size = size_of(data.recipe().type);
  std::array<std::byte, kBlock * sizeof(std::uint64_t)> expected;
  std::size_t wrong = 0;
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t block = std::min(kBlock, count - done);
    const std::byte* const there = static_cast<const std::byte*>(found) + done * size;
    paint_block(data, image, first + done, block, expected.data());
    if (std::memcmp(there, expected.data(), block * size) == 0) continue;
    for (std::size_t i = 0; i < block; ++i) {
      wrong += std::memcmp(there + i * size, expected.data() + i * size, size) != 0 ? 1 : 0;
    }
  }
  return wrong;
}

}  // namespace tutti::perf
