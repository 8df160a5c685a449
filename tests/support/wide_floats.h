// The way back from the narrow floats to float, which is exact. Tests compare the vectorised
// conversions of the library with it.
#pragma once

#include <cstdint>

#include "core/float_types.h"

namespace tutti {

constexpr float from_float16(std::uint16_t bits) { return detail::widen(detail::kFloat16, bits); }
constexpr float from_bfloat16(std::uint16_t bits) { return detail::widen(detail::kBFloat16, bits); }
constexpr float from_float8_e4m3(std::uint8_t bits) {
  return detail::widen(detail::kFloat8E4M3, bits);
}
constexpr float from_float8_e5m2(std::uint8_t bits) {
  return detail::widen(detail::kFloat8E5M2, bits);
}

}  // namespace tutti
