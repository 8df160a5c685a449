#include "parallel/weights/planes.h"

#include <fmt/format.h>
#include <tutti/core/error.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti::parallel::weights {
namespace {

constexpr std::size_t kPlaneHeader = 5;  // how it is coded, and its size
constexpr std::size_t kLargestBlock = std::size_t{1} << 30;
constexpr std::size_t kSample = 2048;   // bytes of a plane that estimate() looks at
constexpr double kWorthCoding = 0.925;  // a plane that keeps more of its size travels as it is
enum class PlaneForm : std::uint8_t { plain = 0, coded = 1 };

std::uint16_t rotated(std::uint16_t bits) {
  return static_cast<std::uint16_t>(bits << 1 | bits >> 15);
}
std::uint16_t rotated_back(std::uint16_t bits) {
  return static_cast<std::uint16_t>(bits >> 1 | bits << 15);
}
std::uint32_t rotated(std::uint32_t bits) { return bits << 1 | bits >> 31; }
std::uint32_t rotated_back(std::uint32_t bits) { return bits >> 1 | bits << 31; }

/// planes[p * count + i] = byte p of number i, rotated.
template <class Bits>
void split(const std::byte* block, std::size_t count, std::byte* planes) {
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, block + i * sizeof bits, sizeof bits);
    bits = rotated(bits);
    for (std::size_t p = 0; p < sizeof bits; ++p) {
      planes[p * count + i] = static_cast<std::byte>(bits >> (8 * p));
    }
  }
}

template <class Bits>
void join(const std::array<const std::byte*, 4>& planes, std::size_t count, std::byte* block) {
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits = 0;
    for (std::size_t p = 0; p < sizeof bits; ++p) {
      bits = static_cast<Bits>(bits | static_cast<Bits>(planes[p][i]) << (8 * p));
    }
    bits = rotated_back(bits);
    std::memcpy(block + i * sizeof bits, &bits, sizeof bits);
  }
}

void split(std::size_t width, const std::byte* block, std::size_t count, std::byte* planes) {
  width == 2 ? split<std::uint16_t>(block, count, planes)
             : split<std::uint32_t>(block, count, planes);
}

/// The part of a plane that a coder of single bytes leaves, by a sample of it.
double remains(const std::byte* plane, std::size_t count) {
  std::array<std::uint32_t, 256> seen{};
  const std::size_t step = std::max<std::size_t>(1, count / kSample);
  double n = 0, bits = 0;
  for (std::size_t i = 0; i < count; i += step, ++n) ++seen[static_cast<std::uint8_t>(plane[i])];
  for (const std::uint32_t s : seen) {
    if (s > 0) bits += s * std::log2(n / s);
  }
  return n > 0 ? bits / (8 * n) : 1;
}

[[noreturn]] void refuse_planes(const std::string& what) {
  throw Error(ErrorCode::mismatch,
              fmt::format("a coded block of weights is damaged: {}. The connection, or the other "
                          "side's memory, has changed it: send the version again",
                          what));
}

}  // namespace

struct PlaneCoder::Context {
  Context() : encoder(ZSTD_createCCtx()), decoder(ZSTD_createDCtx()) {
    if (encoder == nullptr || decoder == nullptr) {
      throw Error(ErrorCode::system, "there is no memory for zstd's coder");
    }
    // Huffman codes of single bytes, at 0.5 GB/s and more: matches of seven bytes or more, in a
    // table of 64 places, are not found in exponents, and zstd's search then skips ahead.
    const std::array<std::pair<ZSTD_cParameter, int>, 7> parameters{{
        {ZSTD_c_compressionLevel, 1},
        {ZSTD_c_strategy, ZSTD_fast},
        {ZSTD_c_minMatch, 7},
        {ZSTD_c_hashLog, 6},
        {ZSTD_c_chainLog, 6},
        {ZSTD_c_searchLog, 1},
        {ZSTD_c_windowLog, 18},
    }};
    for (const auto& [parameter, value] : parameters) {
      ZSTD_CCtx_setParameter(encoder, parameter, value);
    }
  }
  ~Context() {
    ZSTD_freeCCtx(encoder);
    ZSTD_freeDCtx(decoder);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ZSTD_CCtx* encoder;
  ZSTD_DCtx* decoder;
};

PlaneCoder::PlaneCoder() : context_(std::make_unique<Context>()) {}
PlaneCoder::~PlaneCoder() = default;

bool PlaneCoder::serves(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32;
}

double PlaneCoder::estimate(DataType type, std::span<const std::byte> block) {
  const std::size_t width = size_of(type), count = block.size() / width;
  if (!serves(type) || count == 0) return 1;
  // Runs of numbers from all over the block.
  constexpr std::size_t runs = 16;
  const std::size_t run = std::min(count, kSample / runs);
  std::vector<std::byte> sample;
  for (std::size_t r = 0; r < runs && sample.size() < block.size(); ++r) {
    const auto from = block.subspan((count - run) * r / runs * width, run * width);
    sample.insert(sample.end(), from.begin(), from.end());
  }
  const std::size_t numbers = sample.size() / width;
  std::vector<std::byte> planes(sample.size());
  split(width, sample.data(), numbers, planes.data());
  double all = 0;
  for (std::size_t p = 0; p < width; ++p) {
    const double part = remains(planes.data() + p * numbers, numbers);
    all += part < kWorthCoding ? part : 1;
  }
  return all / static_cast<double>(width);
}

bool PlaneCoder::encode(DataType type, std::span<const std::byte> block,
                        std::vector<std::byte>& out) {
  const std::size_t width = size_of(type), count = block.size() / width, before = out.size();
  if (!serves(type) || count == 0 || count > kLargestBlock) return false;
  planes_.resize(block.size());
  split(width, block.data(), count, planes_.data());
  out.resize(before + width * (kPlaneHeader + ZSTD_compressBound(count)));
  std::size_t at = before;
  for (std::size_t p = width; p-- > 0;) {
    const std::byte* const plane = planes_.data() + p * count;
    std::byte* const to = out.data() + at + kPlaneHeader;
    PlaneForm form = PlaneForm::plain;
    std::size_t size = count;
    if (remains(plane, count) < kWorthCoding) {
      const std::size_t coded =
          ZSTD_compress2(context_->encoder, to, ZSTD_compressBound(count), plane, count);
      if (ZSTD_isError(coded) == 0 && coded < count) {
        form = PlaneForm::coded;
        size = coded;
      }
    }
    if (form == PlaneForm::plain) std::memcpy(to, plane, count);
    out[at] = static_cast<std::byte>(form);
    const auto said = static_cast<std::uint32_t>(size);
    std::memcpy(out.data() + at + 1, &said, sizeof said);
    at += kPlaneHeader + size;
  }
  const bool smaller = at - before < block.size();
  out.resize(smaller ? at : before);
  return smaller;
}

void PlaneCoder::decode(DataType type, std::span<const std::byte> coded,
                        std::span<std::byte> block) {
  const std::size_t width = size_of(type);
  if (!serves(type) || block.size() % width != 0) refuse_planes("its type has no planes");
  const std::size_t count = block.size() / width;
  planes_.resize(block.size());
  std::array<const std::byte*, 4> planes{};
  for (std::size_t p = width; p-- > 0;) {
    if (coded.size() < kPlaneHeader) refuse_planes(fmt::format("it ends before plane {}", p));
    const auto form = static_cast<PlaneForm>(coded[0]);
    std::uint32_t size = 0;
    std::memcpy(&size, coded.data() + 1, sizeof size);
    coded = coded.subspan(kPlaneHeader);
    if (size > coded.size()) {
      refuse_planes(fmt::format("plane {} says {} bytes, and {} are left", p, size, coded.size()));
    }
    const auto plane = coded.first(size);
    coded = coded.subspan(size);
    if (form == PlaneForm::plain) {
      if (size != count) refuse_planes(fmt::format("plane {} has {} bytes of {}", p, size, count));
      planes[p] = plane.data();
      continue;
    }
    if (form != PlaneForm::coded) refuse_planes(fmt::format("plane {} has an unknown form", p));
    std::byte* const to = planes_.data() + p * count;
    const std::size_t got =
        ZSTD_decompressDCtx(context_->decoder, to, count, plane.data(), plane.size());
    if (ZSTD_isError(got) != 0) {
      refuse_planes(fmt::format("plane {}: {}", p, ZSTD_getErrorName(got)));
    }
    if (got != count) refuse_planes(fmt::format("plane {} has {} bytes of {}", p, got, count));
    planes[p] = to;
  }
  if (!coded.empty()) refuse_planes(fmt::format("{} bytes are left over", coded.size()));
  width == 2 ? join<std::uint16_t>(planes, count, block.data())
             : join<std::uint32_t>(planes, count, block.data());
}

}  // namespace tutti::parallel::weights
