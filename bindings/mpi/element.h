// The elements that data types are made of: what the predefined types of C, C++ and Fortran come
// down to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/types.h"

namespace tutti::mpi {

enum class Element : std::uint8_t {
  // Moved and compared, never added.
  byte,
  packed,
  wide_character,  // wchar_t
  text,            // Fortran's character
  // Integers; C's char is an int8.
  int8,
  int16,
  int32,
  int64,
  int128,
  c_long,  // 8 bytes here, and 4 in external32
  uint8,
  uint16,
  uint32,
  uint64,
  c_unsigned_long,
  // Floating-point numbers. extended is long double: 80 bits in 16 bytes on x86-64.
  float16,
  bfloat16,
  float32,
  float64,
  extended,
  float128,
  // Complex numbers, of two of these.
  complex_float16,
  complex_float32,
  complex_float64,
  complex_extended,
  complex_float128,
  // Truth values: C's and C++'s, and Fortran's by width in bytes.
  boolean,
  logical1,
  logical2,
  logical4,
  logical8,
  logical16,
};
inline constexpr int kElements = static_cast<int>(Element::logical16) + 1;

enum class ElementClass : std::uint8_t { opaque, bytes, integer, floating, complex, logical };

struct ElementProperties {
  std::string_view name;  // "float64"
  ElementClass kind;
  std::size_t size;           // bytes in memory
  std::size_t alignment;      // in a structure of C
  std::size_t external_size;  // bytes in the representation external32
  // As what Tutti's collectives take it, if they do: so many elements of a type (a complex number
  // is two floats).
  std::optional<DataType> native;
  std::size_t natives;
};

const ElementProperties& properties(Element element);

}  // namespace tutti::mpi
