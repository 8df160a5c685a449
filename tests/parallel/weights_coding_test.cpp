// Blocks of weights on their way: planes and changes give the same bits back, take the size that
// they should, and damaged ones are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/weights/block.h"
#include "parallel/weights/changes.h"
#include "parallel/weights/planes.h"

namespace tutti::parallel::weights {
namespace {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

Bytes random_bytes(std::size_t bytes, Random& random) {
  Bytes out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

/// Normal numbers, as a trained layer's weights.
Bytes weights_of(DataType type, std::size_t count, Random& random) {
  std::normal_distribution<float> normal(0, 0.02F);
  Bytes out(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const float x = normal(random);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    if (type == DataType::bfloat16) bits >>= 16;
    if (type == DataType::float16) {
      const auto half = static_cast<_Float16>(x);
      std::memcpy(&bits, &half, sizeof half);
    }
    std::memcpy(out.data() + i * size_of(type), &bits, size_of(type));
  }
  return out;
}

/// Changes `part` of the elements.
void change(Bytes& block, std::size_t width, double part, Random& random) {
  std::uniform_real_distribution<double> chance(0, 1);
  for (std::size_t at = 0; at + width <= block.size(); at += width) {
    if (chance(random) < part) block[at] ^= static_cast<std::byte>(1 + random() % 255);
  }
}

TEST(Planes, GiveTheSameBitsBack) {
  Random random(1);
  PlaneCoder coder;
  for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32}) {
    for (const std::size_t count : {1UL, 2UL, 31UL, 1000UL, 65'536UL, 100'003UL}) {
      const Bytes block = weights_of(type, count, random);
      Bytes coded(3, std::byte{7});  // what was there stays
      if (!coder.encode(type, block, coded)) {
        EXPECT_EQ(coded, Bytes(3, std::byte{7}));
        EXPECT_LT(count, 1000U) << name(type);
        continue;
      }
      Bytes back(block.size());
      coder.decode(type, std::span(coded).subspan(3), back);
      EXPECT_EQ(back, block) << name(type) << ", " << count;
    }
  }
}

TEST(Planes, HaveTheSizeThatTheEntropyOfExponentsSays) {
  Random random(2);
  PlaneCoder coder;
  const auto part_of = [&](DataType type) {
    const Bytes block = weights_of(type, 1 << 17, random);
    Bytes coded;
    EXPECT_TRUE(coder.encode(type, block, coded));
    const double part = static_cast<double>(coded.size()) / static_cast<double>(block.size());
    EXPECT_NEAR(PlaneCoder::estimate(type, block), part, 0.03) << name(type);
    return part;
  };
  EXPECT_LT(part_of(DataType::bfloat16), 0.68);  // exponents of 2.6 bits: 10.6 / 16
  EXPECT_LT(part_of(DataType::float16), 0.87);   // 13.6 / 16
  EXPECT_LT(part_of(DataType::float32), 0.85);   // 26.6 / 32
}

TEST(Planes, OfFloat32ThatHoldBfloat16HaveTwoEmptyOnes) {
  Random random(3);
  const Bytes narrow = weights_of(DataType::bfloat16, 1 << 16, random);
  Bytes wide(2 * narrow.size());
  for (std::size_t i = 0; i < narrow.size(); i += 2) {
    std::memcpy(wide.data() + 2 * i + 2, narrow.data() + i, 2);
  }
  Bytes coded, back(wide.size());
  PlaneCoder coder;
  ASSERT_TRUE(coder.encode(DataType::float32, wide, coded));
  EXPECT_LT(coded.size(), wide.size() * 2 / 5);
  coder.decode(DataType::float32, coded, back);
  EXPECT_EQ(back, wide);
}

TEST(Planes, AreNotUsedWhereTheyDoNotPay) {
  Random random(4);
  const Bytes block = random_bytes(1 << 17, random);
  PlaneCoder coder;
  Bytes coded;
  for (const DataType type : {DataType::bfloat16, DataType::float32}) {
    EXPECT_EQ(PlaneCoder::estimate(type, block), 1);
    EXPECT_FALSE(coder.encode(type, block, coded));
  }
  EXPECT_FALSE(PlaneCoder::serves(DataType::int32));
  EXPECT_FALSE(coder.encode(DataType::int32, block, coded));
  EXPECT_TRUE(coded.empty());
}

/// Finds the changes, and applies them to the version before.
ChangeForm changed_and_back(const Bytes& now, const Bytes& before, std::size_t width,
                            std::size_t* size = nullptr) {
  Bytes out(5, std::byte{9});
  const Changes changes = find_changes(now, before, width, now.size(), out);
  EXPECT_TRUE(changes.few);
  if (!changes.few) {
    EXPECT_EQ(out.size(), 5U);
    return ChangeForm::none;
  }
  EXPECT_LT(out.size() - 5, now.size());
  Bytes block = before;
  apply_changes(std::span(out).subspan(5), changes.form, width, block);
  EXPECT_EQ(block, now);
  if (size != nullptr) *size = out.size() - 5;
  return changes.form;
}

TEST(Changes, OfScatteredElementsTakeAByteAndTheElement) {
  Random random(5);
  for (const std::size_t width : {1UL, 2UL, 4UL, 8UL}) {
    const Bytes before = random_bytes((1 << 16) * width, random);
    Bytes now = before;
    change(now, width, 0.02, random);
    std::size_t size = 0, changed = 0;
    EXPECT_EQ(changed_and_back(now, before, width, &size), ChangeForm::elements) << width;
    for (std::size_t at = 0; at < now.size(); at += width) {
      changed += std::memcmp(now.data() + at, before.data() + at, width) != 0;
    }
    EXPECT_LT(size, changed * (width + 1) * 101 / 100 + 50) << width;
    EXPECT_GE(size, changed * (width + 1)) << width;
  }
}

TEST(Changes, OfRowsAreLines) {
  Random random(6);
  const Bytes before = random_bytes(1 << 17, random);
  Bytes now = before;
  const Bytes row = random_bytes(8192, random);
  std::ranges::copy(row, now.begin() + 40'960);
  std::size_t size = 0;
  EXPECT_EQ(changed_and_back(now, before, 2, &size), ChangeForm::lines);
  EXPECT_LE(size, 8192U + (1 << 17) / 64 / 8);
}

TEST(Changes, OfNothingTakeNothing) {
  Random random(7);
  const Bytes before = random_bytes(4098, random);
  std::size_t size = 1;
  EXPECT_EQ(changed_and_back(before, before, 2, &size), ChangeForm::none);
  EXPECT_EQ(size, 0U);
}

TEST(Changes, OfAllElementsAreNotFew) {
  Random random(8);
  const Bytes before = random_bytes(1 << 16, random), now = random_bytes(1 << 16, random);
  Bytes out;
  EXPECT_FALSE(find_changes(now, before, 2, now.size(), out).few);
  EXPECT_TRUE(out.empty());
}

TEST(Changes, OfAnyGapAndAtTheEndsAreFound) {
  Random random(9);
  for (const std::size_t gap : {0UL, 1UL, 253UL, 254UL, 255UL, 256UL, 509UL, 510UL, 511UL, 765UL}) {
    for (const std::size_t tail : {0UL, 1UL, 40UL, 255UL, 600UL}) {
      const Bytes before = random_bytes(2 * (gap + 1 + tail + 600), random);
      Bytes now = before;
      now[2 * gap] ^= std::byte{1};
      now[2 * (gap + 1 + tail) - 2] ^= std::byte{4};
      changed_and_back(now, before, 2);
      now[now.size() - 1] ^= std::byte{128};
      changed_and_back(now, before, 2);
    }
  }
}

TEST(Changes, OfRandomKindsComeBack) {
  Random random(10);
  for (int round = 0; round < 400; ++round) {
    const std::size_t width = std::size_t{1} << random() % 4;
    const Bytes before = random_bytes((1 + random() % 5000) * width, random);
    Bytes now = before;
    change(now, width, 1.0 / static_cast<double>(1 + random() % 2000), random);
    if (random() % 2 == 0) {
      const std::size_t at = random() % now.size();
      const Bytes part = random_bytes(random() % (now.size() - at) / 2, random);
      std::ranges::copy(part, now.begin() + static_cast<std::ptrdiff_t>(at));
    }
    Bytes out;
    const Changes changes = find_changes(now, before, width, now.size(), out);
    if (!changes.few) continue;
    Bytes block = before;
    apply_changes(out, changes.form, width, block);
    ASSERT_EQ(block, now) << round;
  }
}

TEST(Blocks, TakeTheShortestForm) {
  Random random(11);
  BlockCoder coder(DataType::bfloat16);
  const Bytes before = weights_of(DataType::bfloat16, 1 << 16, random);
  const auto form = [&](const Bytes& now, const Ways& ways, bool has_before = true) {
    const BlockHeader header =
        coder.encode(now, has_before ? std::span(before) : std::span<const std::byte>{}, ways);
    const Bytes content(coder.content().begin(), coder.content().end());
    EXPECT_EQ(header.bytes, content.size());
    Bytes block = before;
    BlockCoder other(DataType::bfloat16);
    other.decode(BlockHeader::decoded(header.encoded(), block.size()), content, block);
    EXPECT_EQ(block, now);
    return header.form;
  };
  const Ways all{}, none{.changes = false, .planes = false}, planes{.changes = false};
  Bytes few = before, half = before;
  change(few, 2, 0.02, random);
  change(half, 2, 0.3, random);
  const Bytes other = weights_of(DataType::bfloat16, 1 << 16, random);
  const Bytes noise = random_bytes(before.size(), random);
  EXPECT_EQ(form(before, all), BlockForm::unchanged);
  EXPECT_EQ(form(few, all), BlockForm::elements);
  EXPECT_EQ(form(half, all), BlockForm::elements);
  EXPECT_EQ(form(other, all), BlockForm::planes);
  EXPECT_EQ(form(other, {.planes = false}), BlockForm::plain);
  EXPECT_EQ(form(few, all, false), BlockForm::planes);
  EXPECT_EQ(form(few, planes), BlockForm::planes);
  EXPECT_EQ(form(few, none), BlockForm::plain);
  EXPECT_EQ(form(noise, all), BlockForm::plain);
}

/// Decodes what may be damaged: an Error, or some block, and nothing else.
void decode_damaged(std::span<const std::byte> header, const Bytes& content, Bytes block,
                    std::size_t& refused) {
  BlockCoder coder(DataType::bfloat16);
  try {
    const auto said = BlockHeader::decoded(header.first<BlockHeader::kBytes>(), block.size());
    coder.decode(said, content, block);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_GT(std::string(e.what()).size(), 20U);
    ++refused;
  }
}

TEST(Blocks, ThatAreDamagedGiveAnErrorOrABlock) {
  Random random(12);
  BlockCoder coder(DataType::bfloat16);
  std::size_t refused = 0, tried = 0;
  for (int round = 0; round < 8; ++round) {
    const Bytes before = weights_of(DataType::bfloat16, 700 + random() % 3000, random);
    Bytes now = before;
    if (round % 4 == 0) change(now, 2, 0.02, random);
    if (round % 4 == 1) std::ranges::fill(std::span(now).subspan(128, 300), std::byte{5});
    if (round % 4 == 2) now = weights_of(DataType::bfloat16, before.size() / 2, random);
    if (round % 4 == 3) now = random_bytes(before.size(), random);
    const BlockHeader header = coder.encode(now, before, {});
    const Bytes content(coder.content().begin(), coder.content().end());
    for (int mutant = 0; mutant < 500; ++mutant, ++tried) {
      auto bytes = header.encoded();
      Bytes damaged = content;
      switch (random() % 5) {
        case 0:
          damaged.resize(random() % (content.size() + 1));
          break;
        case 1:
          damaged.resize(content.size() + 1 + random() % 9, static_cast<std::byte>(random()));
          break;
        case 2:
          bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
          break;
        default:
          for (std::uint64_t n = 1 + random() % 3; n > 0 && !damaged.empty(); --n) {
            damaged[random() % std::min<std::size_t>(damaged.size(), 64)] =
                static_cast<std::byte>(random());
          }
      }
      decode_damaged(bytes, damaged, before, refused);
    }
  }
  EXPECT_GT(refused, tried / 3);
}

TEST(Blocks, ThatLieAboutTheirLengthsAreRefused) {
  const Bytes block(4096);
  const auto refuses = [&](BlockHeader header, const Bytes& content) {
    std::size_t refused = 0;
    decode_damaged(header.encoded(), content, block, refused);
    return refused == 1;
  };
  const auto number = [](std::uint32_t a, std::uint32_t b) {
    Bytes bytes(8);
    std::memcpy(bytes.data(), &a, 4);
    std::memcpy(bytes.data() + 4, &b, 4);
    return bytes;
  };
  EXPECT_TRUE(refuses({BlockForm::unchanged, 1}, Bytes(1)));
  EXPECT_TRUE(refuses({BlockForm::plain, 4095}, Bytes(4095)));
  EXPECT_TRUE(refuses({BlockForm::plain, 4096}, Bytes(4095)));
  EXPECT_TRUE(refuses({BlockForm::elements, 4096}, Bytes(4096)));
  EXPECT_TRUE(refuses({static_cast<BlockForm>(5), 0}, {}));
  EXPECT_TRUE(refuses({BlockForm::elements, 8}, number(~0U, ~0U)));
  EXPECT_TRUE(refuses({BlockForm::elements, 8}, number(1, 0xffff'fffe)));
  EXPECT_TRUE(refuses({BlockForm::elements, 4}, Bytes(4)));
  EXPECT_TRUE(refuses({BlockForm::lines, 7}, Bytes(7)));
  EXPECT_TRUE(refuses({BlockForm::lines, 8}, Bytes(8, std::byte{255})));
  EXPECT_TRUE(refuses({BlockForm::planes, 5}, Bytes(5, std::byte{255})));
  Bytes last = number(1, 9);  // an element behind the last
  last.insert(last.end(), 8, std::byte{255});
  last.insert(last.end(), {std::byte{8}, std::byte{1}, std::byte{1}});
  EXPECT_TRUE(refuses({BlockForm::elements, 19}, last));
  last[16] = std::byte{7};  // the last one
  EXPECT_FALSE(refuses({BlockForm::elements, 19}, last));
}

}  // namespace
}  // namespace tutti::parallel::weights
