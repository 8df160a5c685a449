// Piece by piece: plain sources are widened into scratch memory that stays in the first-level
// cache, float32 is combined, and what plain destinations get is rounded.
#include "core/wide.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/convert.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr std::size_t kScratch = 4096;  // floats
constexpr std::size_t kLeastPiece = 64;

struct Scratch {
  std::vector<float> floats;
  std::vector<Source> sources;
  std::vector<void*> destinations;
};

std::byte* element(void* data, std::size_t at, DataType type) {
  return static_cast<std::byte*>(data) + at * size_of(type);
}
const std::byte* element(const void* data, std::size_t at, DataType type) {
  return static_cast<const std::byte*>(data) + at * size_of(type);
}

/// `count` elements of a plain source to `to`, and how they are scaled there. `products`: room for
/// as many elements.
Source widened(DataType type, Source source, float* to, void* products, std::size_t count,
               bool canonical) {
  if (source.prescale == Prescale::multiply && canonical) {  // the product is rounded to the type
    combine(type, ReduceKind::sum, {&products, 1}, {&source, 1}, count, {.canonical = true});
    source = {products};
  }
  convert(source.data, type, to, DataType::float32, count);
  source.data = to;
  if (source.prescale == Prescale::multiply) {
    float factor = 0;
    convert(&source.scalar, type, &factor, DataType::float32, 1);
    source.scalar = std::bit_cast<std::uint32_t>(factor);
  }
  return source;
}

}  // namespace

void combine_wide(DataType type, ReduceKind kind, std::span<void* const> destinations,
                  std::size_t wide_destinations, std::span<const Source> sources,
                  std::span<const unsigned char> wide_sources, std::size_t count,
                  const CombineOptions& options) {
  constexpr DataType kWide = DataType::float32;
  if (accumulation_type(type) != kWide || type == kWide) {
    throw Error(ErrorCode::internal,
                "combine_wide: elements of " + std::string(name(type)) + " have no wider form");
  }
  if (sources.empty() || destinations.empty()) return;
  thread_local Scratch scratch;
  const auto plain = destinations.subspan(wide_destinations);
  // Each plain source has a piece; so have the sum and products.
  const auto staged = static_cast<std::size_t>(std::ranges::count(wide_sources, 0)) + 2;
  const std::size_t piece = std::max(kScratch / staged, kLeastPiece);
  scratch.floats.resize(std::max(scratch.floats.size(), piece * staged));
  scratch.sources.resize(sources.size());
  scratch.destinations.resize(wide_destinations + 1);
  float* const sum = scratch.floats.data() + piece * (staged - 2);
  float* const products = sum + piece;
  const Combiner combiner(kWide, kind);
  CombineOptions now = options;
  now.stream = 0;
  for (std::size_t at = 0; at < count; at += piece) {
    const std::size_t n = std::min(piece, count - at);
    float* next = scratch.floats.data();
    for (std::size_t k = 0; k < sources.size(); ++k) {
      Source& s = scratch.sources[k];
      s = sources[k];
      s.data = element(s.data, at, wide_sources[k] != 0 ? kWide : type);
      if (wide_sources[k] != 0) continue;
      s = widened(type, s, next, products, n, options.canonical);
      next += piece;
    }
    for (std::size_t d = 0; d < wide_destinations; ++d) {
      scratch.destinations[d] = element(destinations[d], at, kWide);
    }
    scratch.destinations[wide_destinations] = sum;
    const std::size_t written = wide_destinations + (plain.empty() ? 0 : 1);
    combiner(std::span(scratch.destinations).first(written), scratch.sources, n, now);
    if (plain.empty()) continue;
    std::byte* const first = element(plain[0], at, type);
    convert(sum, kWide, first, type, n);
    for (void* const other : plain.subspan(1)) {
      std::memcpy(element(other, at, type), first, n * size_of(type));
    }
  }
}

}  // namespace tutti
