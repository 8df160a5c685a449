#include "parallel/weights/block.h"

#include <fmt/format.h>
#include <tutti/core/error.h>

#include <cstring>

namespace tutti::parallel::weights {
namespace {

/// Planes are tried where changes take more than a quarter of the block: elsewhere planes cannot
/// be shorter.
constexpr std::size_t kClearlyFew = 4;

BlockForm form_of(ChangeForm form) {
  switch (form) {
    case ChangeForm::elements:
      return BlockForm::elements;
    case ChangeForm::lines:
      return BlockForm::lines;
    default:
      return BlockForm::unchanged;
  }
}

}  // namespace

std::array<std::byte, BlockHeader::kBytes> BlockHeader::encoded() const {
  std::array<std::byte, kBytes> out{};
  out[0] = static_cast<std::byte>(form);
  std::memcpy(out.data() + 4, &bytes, sizeof bytes);
  return out;
}

BlockHeader BlockHeader::decoded(std::span<const std::byte, kBytes> bytes, std::size_t block) {
  BlockHeader header;
  header.form = static_cast<BlockForm>(bytes[0]);
  std::memcpy(&header.bytes, bytes.data() + 4, sizeof header.bytes);
  const bool known = static_cast<std::size_t>(bytes[0]) < kBlockForms && bytes[1] == std::byte{} &&
                     bytes[2] == std::byte{} && bytes[3] == std::byte{};
  // The sender takes a form only where it is shorter than the block.
  const bool fits = header.form == BlockForm::unchanged ? header.bytes == 0
                    : header.form == BlockForm::plain   ? header.bytes == block
                                                        : header.bytes < block;
  if (!known || !fits) {
    throw Error(
        ErrorCode::mismatch,
        fmt::format("a block of {} bytes of weights is announced with form {} and {} bytes, "
                    "which no sender does: the connection has changed it, or the other "
                    "side has another version of Tutti",
                    block, static_cast<int>(bytes[0]), header.bytes));
  }
  return header;
}

BlockHeader BlockCoder::encode(std::span<const std::byte> now, std::span<const std::byte> before,
                               const Ways& ways) {
  memory_.clear();
  content_ = {};
  BlockHeader header{BlockForm::plain, static_cast<std::uint32_t>(now.size())};
  std::size_t best = now.size(), begin = 0;
  if (ways.changes && !before.empty()) {
    const Changes changes = find_changes(now, before, size_of(type_), best, memory_);
    if (changes.few) {
      header.form = form_of(changes.form);
      best = memory_.size();
    }
  }
  if (ways.planes && best > now.size() / kClearlyFew && PlaneCoder::estimate(type_, now) < 1) {
    const std::size_t changed = memory_.size();
    if (planes_.encode(type_, now, memory_) && memory_.size() - changed < best) {
      header.form = BlockForm::planes;
      begin = changed;
      best = memory_.size() - changed;
    }
  }
  header.bytes = static_cast<std::uint32_t>(best);
  content_ = header.form == BlockForm::plain
                 ? now
                 : std::span<const std::byte>(memory_).subspan(begin, best);
  return header;
}

void BlockCoder::decode(const BlockHeader& header, std::span<const std::byte> content,
                        std::span<std::byte> block) {
  switch (header.form) {
    case BlockForm::unchanged:
      return apply_changes(content, ChangeForm::none, size_of(type_), block);
    case BlockForm::elements:
      return apply_changes(content, ChangeForm::elements, size_of(type_), block);
    case BlockForm::lines:
      return apply_changes(content, ChangeForm::lines, size_of(type_), block);
    case BlockForm::planes:
      return planes_.decode(type_, content, block);
    case BlockForm::plain:
      if (content.size() == block.size()) {
        std::memcpy(block.data(), content.data(), block.size());
        return;
      }
  }
  throw Error(ErrorCode::mismatch,
              fmt::format("a block of {} bytes of weights has come with {} bytes in form {}",
                          block.size(), content.size(), static_cast<int>(header.form)));
}

}  // namespace tutti::parallel::weights
