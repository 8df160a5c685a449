// combine(): checks its arguments and chooses between a copy, a reduction, and a reduction with an
// integer division at the end.
#include "core/combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/combine_kernels.h"
#include "core/error.h"
#include "core/float_environment.h"

namespace tutti {
namespace {

using detail::Reduction;

Reduction reduction_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::prod:
      return Reduction::prod;
    case ReduceKind::min:
      return Reduction::min;
    case ReduceKind::max:
      return Reduction::max;
    case ReduceKind::sum:
    case ReduceKind::avg:
    case ReduceKind::pre_multiplied_sum:
      break;
  }
  return Reduction::sum;
}

// Long inputs for several destinations, or with a division, go through in pieces that stay in the
// first-level cache between being read and being written the last time.
constexpr std::size_t kPiece = 16384;

void copy(std::span<void* const> destinations, const void* source, std::size_t bytes) {
  if (destinations.size() == 1) {
    if (destinations[0] != source) std::memcpy(destinations[0], source, bytes);
    return;
  }
  const auto* from = static_cast<const std::byte*>(source);
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t length = std::min(kPiece, bytes - at);
    for (void* destination : destinations) {
      if (destination != source) {
        std::memcpy(static_cast<std::byte*>(destination) + at, from + at, length);
      }
    }
  }
}

template <class Integer, class Wide>
void divide(std::byte* data, std::size_t count, std::uint32_t divisor) {
  const auto by = static_cast<Wide>(divisor);
  for (std::size_t i = 0; i < count; ++i) {
    Integer value;  // through memcpy: any alignment
    std::memcpy(&value, data + i * sizeof(Integer), sizeof(Integer));
    value = static_cast<Integer>(static_cast<Wide>(value) / by);
    std::memcpy(data + i * sizeof(Integer), &value, sizeof(Integer));
  }
}

void divide(DataType type, std::byte* data, std::size_t count, std::uint32_t divisor) {
  switch (type) {
    case DataType::int8:
      return divide<std::int8_t, std::int64_t>(data, count, divisor);
    case DataType::uint8:
      return divide<std::uint8_t, std::uint32_t>(data, count, divisor);
    case DataType::int32:
      return divide<std::int32_t, std::int64_t>(data, count, divisor);
    case DataType::uint32:
      return divide<std::uint32_t, std::uint32_t>(data, count, divisor);
    case DataType::int64:
      return divide<std::int64_t, std::int64_t>(data, count, divisor);
    case DataType::uint64:
      return divide<std::uint64_t, std::uint64_t>(data, count, divisor);
    default:
      return;  // check() lets no float through
  }
}

bool divides(const Source& source) { return source.prescale == Prescale::divide; }

[[noreturn]] void refuse(DataType type, ReduceKind kind, const char* why) {
  throw Error(ErrorCode::internal, fmt::format("combine({}, {}): {}; this is a bug in Tutti",
                                               name(type), name(kind), why));
}

}  // namespace

Combiner::Combiner(DataType type, ReduceKind kind) : type_(type), kind_(kind) {
  if (!is_valid(type)) refuse(type, kind, "the data type is none");
  if (!is_valid(kind)) refuse(type, kind, "the operator is none");
  reduce_ = detail::find_reduce(type, reduction_of(kind));
}

void Combiner::operator()(std::span<void* const> destinations, std::span<const Source> sources,
                          std::size_t count, const CombineOptions& options) const {
  if (options.divisor == 0) refuse(type_, kind_, "the divisor is 0");
  if (sources.empty() || destinations.empty() || count == 0) return;
  const DefaultFloatEnvironment environment;
  const detail::ReduceArguments arguments{
      .destinations = destinations,
      .sources = sources,
      .begin = 0,
      .end = count,
      .divisor = options.divisor,
      .stream = options.stream,
      .divide_result = options.divide_result && is_float(type_),
      .canonical = options.canonical,
  };
  if (options.divide_result && !is_float(type_)) {
    divide_result(arguments);
  } else if (sources.size() > 1 || sources[0].prescale != Prescale::none || options.divide_result) {
    if (!is_float(type_) && std::ranges::any_of(sources, divides)) {
      refuse(type_, kind_, "Prescale::divide is for floats; integers divide the result");
    }
    reduce_(arguments);
  } else if (options.stream > 0) {
    detail::stream_copy(destinations, options.stream, sources[0].data, count * size_of(type_));
  } else {
    copy(destinations, sources[0].data, count * size_of(type_));
  }
  if (options.stream > 0) detail::fence_streams();
}

// Of integers. The first destination takes the reduction and is divided in place; the others copy
// it. (Such calls ignore `stream`: the result is read again.)
void Combiner::divide_result(const detail::ReduceArguments& whole) const {
  const std::size_t size = size_of(type_);
  detail::ReduceArguments piece = whole;
  piece.destinations = whole.destinations.first(1);
  piece.stream = 0;
  for (std::size_t at = 0; at < whole.end; at += kPiece / size) {
    piece.begin = at;
    piece.end = std::min(whole.end, at + kPiece / size);
    reduce_(piece);
    const std::size_t length = piece.end - at;
    std::byte* first = static_cast<std::byte*>(whole.destinations[0]) + at * size;
    divide(type_, first, length, whole.divisor);
    for (void* other : whole.destinations.subspan(1)) {
      std::memcpy(static_cast<std::byte*>(other) + at * size, first, length * size);
    }
  }
}

void combine(DataType type, ReduceKind kind, std::span<void* const> destinations,
             std::span<const Source> sources, std::size_t count, const CombineOptions& options) {
  Combiner(type, kind)(destinations, sources, count, options);
}

}  // namespace tutti
