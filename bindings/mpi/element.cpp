#include "bindings/mpi/element.h"

#include <array>
#include <cstddef>

namespace tutti::mpi {
namespace {

using C = ElementClass;
using D = DataType;

constexpr ElementProperties native_row(std::string_view name, C kind, std::size_t size,
                                       DataType type, std::size_t natives = 1) {
  return {name, kind, size, size / natives, size, type, natives};
}
constexpr ElementProperties row(std::string_view name, C kind, std::size_t size,
                                std::size_t alignment, std::size_t external) {
  return {name, kind, size, alignment, external, std::nullopt, 0};
}

static_assert(sizeof(long) == 8);

// In the order of Element. external32 has wchar_t as a 2-byte character, 4 bytes for long, and 16
// for long double.
constexpr std::array<ElementProperties, kElements> kTable{{
    row("byte", C::bytes, 1, 1, 1),
    row("packed", C::bytes, 1, 1, 1),
    row("wide_character", C::opaque, sizeof(wchar_t), alignof(wchar_t), 2),
    row("text", C::opaque, 1, 1, 1),
    native_row("int8", C::integer, 1, D::int8),
    row("int16", C::integer, 2, 2, 2),
    native_row("int32", C::integer, 4, D::int32),
    native_row("int64", C::integer, 8, D::int64),
    row("int128", C::integer, 16, 16, 16),
    {"long", C::integer, sizeof(long), alignof(long), 4, D::int64, 1},
    native_row("uint8", C::integer, 1, D::uint8),
    row("uint16", C::integer, 2, 2, 2),
    native_row("uint32", C::integer, 4, D::uint32),
    native_row("uint64", C::integer, 8, D::uint64),
    {"unsigned long", C::integer, sizeof(long), alignof(long), 4, D::uint64, 1},
    native_row("float16", C::floating, 2, D::float16),
    native_row("bfloat16", C::floating, 2, D::bfloat16),
    native_row("float32", C::floating, 4, D::float32),
    native_row("float64", C::floating, 8, D::float64),
    row("extended", C::floating, sizeof(long double), alignof(long double), 16),
    row("float128", C::floating, 16, 16, 16),
    native_row("complex_float16", C::complex, 4, D::float16, 2),
    native_row("complex_float32", C::complex, 8, D::float32, 2),
    native_row("complex_float64", C::complex, 16, D::float64, 2),
    row("complex_extended", C::complex, 2 * sizeof(long double), alignof(long double), 32),
    row("complex_float128", C::complex, 32, 16, 32),
    row("boolean", C::logical, sizeof(bool), alignof(bool), 1),
    row("logical1", C::logical, 1, 1, 1),
    row("logical2", C::logical, 2, 2, 2),
    row("logical4", C::logical, 4, 4, 4),
    row("logical8", C::logical, 8, 8, 8),
    row("logical16", C::logical, 16, 16, 16),
}};

}  // namespace

const ElementProperties& properties(Element element) {
  return kTable[static_cast<std::size_t>(element)];
}

}  // namespace tutti::mpi
