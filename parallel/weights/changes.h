// What has changed between two versions of a block of weights, in the shorter of two forms:
//
// - elements: for each changed element, the unchanged ones before it (a byte; 255 stands for 255
//   unchanged ones, and more to come), and then the new elements. In reinforcement learning 1 to
//   3 % of the elements change from one version to the next, all over the tensors.
// - lines: a bit for each line of 64 bytes, and then the changed lines: rows of an embedding.
//
// One pass over the block counts both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::parallel::weights {

enum class ChangeForm : std::uint8_t { none, elements, lines };

/// What find_changes() has found.
struct Changes {
  bool few = false;  // false: they are as long as `limit` or longer, and nothing was appended
  ChangeForm form = ChangeForm::none;
};

/// Appends to `out` how `now` differs from `before`, if that takes less than `limit` bytes. Both
/// have the same size: whole elements of `width` bytes (1, 2, 4 or 8).
Changes find_changes(std::span<const std::byte> now, std::span<const std::byte> before,
                     std::size_t width, std::size_t limit, std::vector<std::byte>& out);

/// Writes the changes to `block`, which has the version before. Throws Error(mismatch) for what
/// find_changes() has not made of a block of this size and width; `block` may have some of them
/// then.
void apply_changes(std::span<const std::byte> changes, ChangeForm form, std::size_t width,
                   std::span<std::byte> block);

}  // namespace tutti::parallel::weights
