#include "execute/cuda/block_writer.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.h"

namespace tutti::device {
namespace {

template <class T>
std::uint32_t append(std::vector<std::byte>& block, const std::vector<T>& array) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
  const std::size_t at = (block.size() + 15) / 16 * 16;
  block.resize(at + array.size() * sizeof(T));
  if (!array.empty()) std::memcpy(block.data() + at, array.data(), array.size() * sizeof(T));
  if (block.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::invalid_argument, "a plan is too large for one kernel: 4 GiB");
  }
  return static_cast<std::uint32_t>(at);
}

}  // namespace

std::vector<std::byte> write_block(PlanBlock h, const BlockParts& parts) {
  std::vector<std::byte> block(sizeof h);
  h.lane = append(block, parts.lanes);
  h.range = append(block, parts.ranges);
  h.action = append(block, parts.actions);
  h.use = append(block, parts.uses);
  h.end = append(block, parts.ends);
  h.move = append(block, parts.moves);
  h.operand = append(block, parts.operands);
  h.bytes = static_cast<std::uint32_t>(block.size());
  std::memcpy(block.data(), &h, sizeof h);
  return block;
}

}  // namespace tutti::device
