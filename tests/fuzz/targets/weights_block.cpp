// A block of weights on its way, in each of its forms: refused, or decoded into its place and
// nowhere else. What the coder made of the same bytes comes back with the same bits.
#include <algorithm>
#include <array>
#include <vector>

#include "parallel/weights/block.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::weights_block {
namespace {

using namespace parallel::weights;

constexpr std::array kTypes{DataType::bfloat16, DataType::float32, DataType::int8,
                            DataType::float64};

/// type, elements, header, content.
void run(std::string_view input) {
  Input in(input);
  const DataType type = kTypes[in.byte() % kTypes.size()];
  std::vector<std::byte> block((1 + in.value<std::uint16_t>() % 2048) * size_of(type));
  const auto head = in.value<std::array<std::byte, BlockHeader::kBytes>>();
  const auto content = bytes_in(in.rest());
  BlockCoder coder(type);
  accepts(ErrorCode::mismatch,
          [&] { coder.decode(BlockHeader::decoded(head, block.size()), content, block); });
  // And as a sender's block, of which the receiver has none, or a version that differs.
  if (content.size() % size_of(type) != 0 || content.empty()) return;
  std::vector<std::byte> before(content.begin(), content.end());
  for (std::size_t i = 0; i < before.size(); i += 37) before[i] ^= head[i % head.size()];
  for (const bool has_before : {false, true}) {
    BlockCoder sender(type);
    const BlockHeader header =
        sender.encode(content, has_before ? before : std::span<const std::byte>(), {});
    std::vector<std::byte> decoded = before;
    coder.decode(BlockHeader::decoded(header.encoded(), content.size()), sender.content(), decoded);
    require(std::ranges::equal(decoded, content), "a block comes back with its bits");
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  std::vector<std::byte> now(1024), before(1024);
  for (std::size_t i = 0; i < now.size(); ++i) {
    // As exponents are: few, and with mantissas of many.
    now[i] = static_cast<std::byte>(i % 2 == 0 ? i * 37 : 0x3c + i % 3);
    before[i] = i % 128 == 6 ? std::byte{1} : now[i];
  }
  const auto add = [&](std::span<const std::byte> old, const Ways& ways) {
    BlockCoder coder(DataType::bfloat16);
    const BlockHeader header = coder.encode(now, old, ways);
    all.push_back(std::string(1, '\0') + text_of_bytes(std::uint16_t{511}) +
                  text_of_bytes(header.encoded()) + text_of_bytes(coder.content()));
  };
  add({}, {.changes = false});
  add({}, {.planes = false});
  add(before, {});
  add(now, {});
  for (std::size_t i = 64; i < 192; ++i) before[i] = std::byte{9};
  for (std::size_t i = 0; i < 1024; ++i) {
    if (i < 64 || i >= 192) before[i] = now[i];
  }
  add(before, {});
  return all;
}

const Registered target({"weights_block", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::weights_block
