// The intended contents of a buffer: patches of known numbers, and filler everywhere else. The
// program paints an image into the buffer before a call, and compares all of the buffer with an
// image afterwards: the result, the input that the call had no right to change, and the guard zones
// around both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/perf/data.h"

namespace tutti::perf {

enum class Content : std::uint8_t { input, reduction };

struct Patch {
  Content content = Content::input;
  int rank = 0;                // input: its owner
  std::size_t at = 0;          // the patch's first element in the buffer
  std::size_t count = 0;       // elements
  std::uint64_t position = 0;  // of the patch's first element in the rank's data
};

/// Patches are painted in this order; a later one covers an earlier one.
struct Image {
  std::size_t elements = 0;
  std::vector<Patch> patches;
};

/// Paints elements [first, first + count) of the image to `out`.
void paint(const Data& data, const Image& image, std::size_t first, std::size_t count, void* out);
inline void paint(const Data& data, const Image& image, void* buffer) {
  paint(data, image, 0, image.elements, buffer);
}

/// `found` has the elements [first, first + count) of a buffer. Counts those with bits that differ
/// from the image's.
std::size_t count_wrong(const Data& data, const Image& image, std::size_t first, std::size_t count,
                        const void* found);
inline std::size_t count_wrong(const Data& data, const Image& image, const void* buffer) {
  return count_wrong(data, image, 0, image.elements, buffer);
}

}  // namespace tutti::perf
