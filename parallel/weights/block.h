// A block of weights on its way: the shortest of its changes, its coded planes, and its bytes as
// they are. The sender decides block by block, by counting.
#pragma once

#include <tutti/core/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "changes.h"
#include "planes.h"

namespace tutti::parallel::weights {

/// What the sender may use.
struct Ways {
  bool changes = true;  // where the receiver has the version before
  bool planes = true;   // pays where the link is slower than the coder
};

enum class BlockForm : std::uint8_t {
  unchanged = 0,
  elements = 1,
  lines = 2,
  planes = 3,
  plain = 4
};
constexpr std::size_t kBlockForms = 5;

/// What travels before the block's bytes.
struct BlockHeader {
  BlockForm form = BlockForm::plain;
  std::uint32_t bytes = 0;  // that follow

  static constexpr std::size_t kBytes = 8;
  std::array<std::byte, kBytes> encoded() const;
  /// Throws Error(mismatch) for what encoded() has not made, or no block of `block` bytes can have.
  static BlockHeader decoded(std::span<const std::byte, kBytes> bytes, std::size_t block);
};

/// Encodes and decodes blocks of one type. One thread at a time.
class BlockCoder {
 public:
  explicit BlockCoder(DataType type) : type_(type) {}

  /// The block `now`, as `ways` allow it; `before` has its version that the receiver has, or is
  /// empty. What follows the header is content(), until the next call; of a plain block it is
  /// `now`.
  BlockHeader encode(std::span<const std::byte> now, std::span<const std::byte> before,
                     const Ways& ways);
  std::span<const std::byte> content() const { return content_; }
  /// Writes the block to `block`, which has the version before if changes may come. Throws
  /// Error(mismatch) for damaged content.
  void decode(const BlockHeader& header, std::span<const std::byte> content,
              std::span<std::byte> block);

 private:
  const DataType type_;
  PlaneCoder planes_;
  std::vector<std::byte> memory_;
  std::span<const std::byte> content_;
};

}  // namespace tutti::parallel::weights
