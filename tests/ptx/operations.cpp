#include "tests/ptx/operations.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>

#include "tests/ptx/conversions.h"

namespace tutti::ptx {
namespace {

using U = std::uint64_t;
using Table = std::map<std::string, Operation>;

template <class F>
void each_lane(std::uint32_t lanes, const F& f) {
  if (lanes == kWholeWarp) {
    for (std::uint32_t i = 0; i < kLanes; ++i) f(i);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) f(static_cast<std::uint32_t>(std::countr_zero(lanes)));
  }
}

template <class F>
Operation one(F) {
  return {[](const Registers& r, const std::int32_t* o, std::uint32_t lanes) {
            U* const d = r.to(o[0]);
            const U* const a = r[o[1]];
            each_lane(lanes, [&](std::uint32_t i) { d[i] = F{}(a[i]); });
          },
          1};
}
template <class F>
Operation two(F) {
  return {[](const Registers& r, const std::int32_t* o, std::uint32_t lanes) {
            U* const d = r.to(o[0]);
            const U* const a = r[o[1]];
            const U* const b = r[o[2]];
            each_lane(lanes, [&](std::uint32_t i) { d[i] = F{}(a[i], b[i]); });
          },
          2};
}
template <class F>
Operation three(F) {
  return {[](const Registers& r, const std::int32_t* o, std::uint32_t lanes) {
            U* const d = r.to(o[0]);
            const U* const a = r[o[1]];
            const U* const b = r[o[2]];
            const U* const c = r[o[3]];
            each_lane(lanes, [&](std::uint32_t i) { d[i] = F{}(a[i], b[i], c[i]); });
          },
          3};
}
template <class F>
Operation four(F) {
  return {[](const Registers& r, const std::int32_t* o, std::uint32_t lanes) {
            U* const d = r.to(o[0]);
            const U* const a = r[o[1]];
            const U* const b = r[o[2]];
            const U* const c = r[o[3]];
            const U* const e = r[o[4]];
            each_lane(lanes, [&](std::uint32_t i) { d[i] = F{}(a[i], b[i], c[i], e[i]); });
          },
          4};
}

/// The number in a register, and back: sign-extended, or a float's bits.
template <class T>
T as(U word) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(word);
  } else {
    return static_cast<T>(word);
  }
}
template <class T>
U bits(T value) {
  if constexpr (std::is_same_v<T, float>) {
    // A NaN that an operation makes has this code (PTX ISA, "Floating point instructions").
    return std::isnan(value) ? 0x7FFFFFFFu : std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<U>(value);
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

// --- Integers ------------------------------------------------------------------------------------

/// Those of each width, whose suffix names no sign.
template <class T>
void add_bits(Table& t, const std::string& type) {
  t["and." + type] = two([](U a, U b) { return bits(static_cast<T>(a & b)); });
  t["or." + type] = two([](U a, U b) { return bits(static_cast<T>(a | b)); });
  t["xor." + type] = two([](U a, U b) { return bits(static_cast<T>(a ^ b)); });
  t["not." + type] = one([](U a) { return bits(static_cast<T>(~a)); });
  t["shl." + type] = two([](U a, U b) {
    const auto n = static_cast<std::uint32_t>(b);
    return n >= 8 * sizeof(T) ? U{0} : bits(static_cast<T>(as<T>(a) << n));
  });
}

template <class T>
void add_moves(Table& t, const std::string& type) {
  t["mov." + type] = one([](U a) { return U{std::make_unsigned_t<T>(a)}; });
  t["selp." + type] =
      three([](U a, U b, U p) { return U{std::make_unsigned_t<T>(p != 0 ? a : b)}; });
}

template <class T>
void add_integers(Table& t, const std::string& type) {
  t["add." + type] = two([](U a, U b) { return bits(static_cast<T>(a + b)); });
  t["sub." + type] = two([](U a, U b) { return bits(static_cast<T>(a - b)); });
  t["neg." + type] = one([](U a) { return bits(static_cast<T>(~a + 1)); });
  if constexpr (std::is_signed_v<T>) {
    t["abs." + type] = one([](U a) { return bits(static_cast<T>(as<T>(a) < 0 ? ~a + 1 : a)); });
  }
  t["min." + type] = two([](U a, U b) { return bits(as<T>(a) < as<T>(b) ? as<T>(a) : as<T>(b)); });
  t["max." + type] = two([](U a, U b) { return bits(as<T>(a) < as<T>(b) ? as<T>(b) : as<T>(a)); });
  t["mul.lo." + type] = two([](U a, U b) { return bits(static_cast<T>(a * b)); });
  t["mad.lo." + type] = three([](U a, U b, U c) { return bits(static_cast<T>(a * b + c)); });
  // What PTX leaves open at zero is all ones on the hardware.
  t["div." + type] = two([](U a, U b) {
    if (as<T>(b) == 0) return bits(static_cast<T>(~U{0}));
    if (std::is_signed_v<T> && as<T>(b) == static_cast<T>(-1)) return bits(static_cast<T>(~a + 1));
    return bits(static_cast<T>(as<T>(a) / as<T>(b)));
  });
  t["rem." + type] = two([](U a, U b) {
    if (as<T>(b) == 0) return bits(as<T>(a));
    if (std::is_signed_v<T> && as<T>(b) == static_cast<T>(-1)) return U{0};
    return bits(static_cast<T>(as<T>(a) % as<T>(b)));
  });
  t["shr." + type] = two([](U a, U b) {
    const auto n = static_cast<std::uint32_t>(b);
    const bool negative = std::is_signed_v<T> && (a >> (8 * sizeof(T) - 1) & 1) != 0;
    if (n >= 8 * sizeof(T)) return bits(static_cast<T>(negative ? -1 : 0));
    return bits(static_cast<T>(as<T>(a) >> n));
  });
}

template <class T, class Wide>
void add_wide(Table& t, const std::string& type) {
  t["mul.wide." + type] =
      two([](U a, U b) { return bits(static_cast<Wide>(Wide{as<T>(a)} * Wide{as<T>(b)})); });
  t["mad.wide." + type] = three([](U a, U b, U c) {
    return bits(static_cast<Wide>(Wide{as<T>(a)} * Wide{as<T>(b)} + static_cast<Wide>(c)));
  });
}

/// Ordered comparisons, false where one is NaN; those with a `u` are true there.
template <class T>
void add_comparisons(Table& t, const std::string& type) {
  t["setp.eq." + type] = two([](U a, U b) { return U{as<T>(a) == as<T>(b)}; });
  t["setp.lt." + type] = two([](U a, U b) { return U{as<T>(a) < as<T>(b)}; });
  t["setp.le." + type] = two([](U a, U b) { return U{as<T>(a) <= as<T>(b)}; });
  t["setp.gt." + type] = two([](U a, U b) { return U{as<T>(a) > as<T>(b)}; });
  t["setp.ge." + type] = two([](U a, U b) { return U{as<T>(a) >= as<T>(b)}; });
  if constexpr (std::is_floating_point_v<T>) {
    t["setp.ne." + type] =
        two([](U a, U b) { return U{as<T>(a) < as<T>(b) || as<T>(a) > as<T>(b)}; });
    t["setp.equ." + type] =
        two([](U a, U b) { return U{!(as<T>(a) < as<T>(b) || as<T>(a) > as<T>(b))}; });
    t["setp.neu." + type] = two([](U a, U b) { return U{!(as<T>(a) == as<T>(b))}; });
    t["setp.ltu." + type] = two([](U a, U b) { return U{!(as<T>(a) >= as<T>(b))}; });
    t["setp.leu." + type] = two([](U a, U b) { return U{!(as<T>(a) > as<T>(b))}; });
    t["setp.gtu." + type] = two([](U a, U b) { return U{!(as<T>(a) <= as<T>(b))}; });
    t["setp.geu." + type] = two([](U a, U b) { return U{!(as<T>(a) < as<T>(b))}; });
    t["setp.num." + type] =
        two([](U a, U b) { return U{!std::isnan(as<T>(a)) && !std::isnan(as<T>(b))}; });
    t["setp.nan." + type] =
        two([](U a, U b) { return U{std::isnan(as<T>(a)) || std::isnan(as<T>(b))}; });
  } else {
    t["setp.ne." + type] = two([](U a, U b) { return U{as<T>(a) != as<T>(b)}; });
  }
}

// --- Floats --------------------------------------------------------------------------------------

/// IEEE 754 of the host: one rounding, to nearest even, subnormal numbers and all.
template <class T>
void add_floats(Table& t, const std::string& type) {
  for (const char* const round : {"", "rn."}) {
    t[std::string("add.") + round + type] = two([](U a, U b) { return bits(as<T>(a) + as<T>(b)); });
    t[std::string("sub.") + round + type] = two([](U a, U b) { return bits(as<T>(a) - as<T>(b)); });
    t[std::string("mul.") + round + type] = two([](U a, U b) { return bits(as<T>(a) * as<T>(b)); });
  }
  t["div.rn." + type] = two([](U a, U b) { return bits(as<T>(a) / as<T>(b)); });
  t["fma.rn." + type] =
      three([](U a, U b, U c) { return bits(std::fma(as<T>(a), as<T>(b), as<T>(c))); });
  t["neg." + type] = one([](U a) { return a ^ U { 1 } << (8 * sizeof(T) - 1); });
  t["abs." + type] = one([](U a) { return a & ~(U{1} << (8 * sizeof(T) - 1)); });
}

/// A NaN makes the result NaN, and -0 is less than +0 (PTX ISA, "min", "max").
void add_minimum(Table& t) {
  t["min.NaN.f32"] = two([](U a, U b) {
    const float x = as<float>(a);
    const float y = as<float>(b);
    if (std::isnan(x) || std::isnan(y)) return U{0x7FFFFFFF};
    if (x == y) return U{static_cast<std::uint32_t>(a | b)};
    return U{static_cast<std::uint32_t>(x < y ? a : b)};
  });
  t["max.NaN.f32"] = two([](U a, U b) {
    const float x = as<float>(a);
    const float y = as<float>(b);
    if (std::isnan(x) || std::isnan(y)) return U{0x7FFFFFFF};
    if (x == y) return U{static_cast<std::uint32_t>(a & b)};
    return U{static_cast<std::uint32_t>(x > y ? a : b)};
  });
}

// --- Conversions ---------------------------------------------------------------------------------

template <class To, class From>
void add_integer_conversion(Table& t, const std::string& to, const std::string& from) {
  t["cvt." + to + "." + from] = one([](U a) { return bits(static_cast<To>(as<From>(a))); });
}
template <class From>
void add_conversions_from(Table& t, const std::string& from) {
  add_integer_conversion<std::int16_t, From>(t, "s16", from);
  add_integer_conversion<std::uint16_t, From>(t, "u16", from);
  add_integer_conversion<std::int32_t, From>(t, "s32", from);
  add_integer_conversion<std::uint32_t, From>(t, "u32", from);
  add_integer_conversion<std::int64_t, From>(t, "s64", from);
  add_integer_conversion<std::uint64_t, From>(t, "u64", from);
  // A register of 16 bits takes them, with their sign.
  t["cvt.s8." + from] =
      one([](U a) { return bits(std::int16_t{static_cast<std::int8_t>(as<From>(a))}); });
  t["cvt.u8." + from] = one([](U a) { return U{static_cast<std::uint8_t>(as<From>(a))}; });
  t["cvt.rn.f32." + from] = one([](U a) { return bits(static_cast<float>(as<From>(a))); });
  t["cvt.rn.f64." + from] = one([](U a) { return bits(static_cast<double>(as<From>(a))); });
}

void add_float_conversions(Table& t) {
  t["cvt.f64.f32"] = one([](U a) { return bits(double{as<float>(a)}); });
  t["cvt.rn.f32.f64"] = one([](U a) { return bits(static_cast<float>(as<double>(a))); });
  t["cvt.f32.f16"] = one([](U a) { return bits(widen(kF16, static_cast<std::uint16_t>(a))); });
  // The first source has the upper half.
  t["cvt.rn.f16x2.f32"] = two([](U a, U b) {
    return U{narrow(kF16, as<float>(a), false)} << 16 | narrow(kF16, as<float>(b), false);
  });
  t["cvt.rn.bf16x2.f32"] = two([](U a, U b) {
    return U{narrow(kBF16, as<float>(a), false)} << 16 | narrow(kBF16, as<float>(b), false);
  });
  t["cvt.rn.satfinite.e4m3x2.f32"] = two([](U a, U b) {
    return U{narrow(kE4M3, as<float>(a), true)} << 8 | narrow(kE4M3, as<float>(b), true);
  });
  t["cvt.rn.satfinite.e5m2x2.f32"] = two([](U a, U b) {
    return U{narrow(kE5M2, as<float>(a), true)} << 8 | narrow(kE5M2, as<float>(b), true);
  });
  t["cvt.rn.f16x2.e4m3x2"] = one([](U a) {
    const auto half = [](U code) {
      return U{narrow(kF16, widen(kE4M3, static_cast<std::uint8_t>(code)), false)};
    };
    return half(a >> 8) << 16 | half(a);
  });
  t["cvt.rn.f16x2.e5m2x2"] = one([](U a) {
    const auto half = [](U code) {
      return U{narrow(kF16, widen(kE5M2, static_cast<std::uint8_t>(code)), false)};
    };
    return half(a >> 8) << 16 | half(a);
  });
}

// --- The rest ------------------------------------------------------------------------------------

void add_fields(Table& t) {
  t["mul.hi.u32"] = two([](U a, U b) { return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF) >> 32; });
  t["mul.hi.s32"] = two([](U a, U b) {
    return bits(
        static_cast<std::int32_t>(std::int64_t{as<std::int32_t>(a)} * as<std::int32_t>(b) >> 32));
  });
  t["mul.hi.u64"] = two([](U a, U b) {
    __extension__ typedef unsigned __int128 Wide;
    return static_cast<U>(static_cast<Wide>(a) * b >> 64);
  });
  t["lop3.b32"] = four([](U a, U b, U c, U table) {
    U result = 0;
    for (int i = 0; i < 32; ++i) {
      const U row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
      result |= (table >> row & 1) << i;
    }
    return result;
  });
  t["clz.b32"] =
      one([](U a) { return static_cast<U>(std::countl_zero(static_cast<std::uint32_t>(a))); });
  t["clz.b64"] = one([](U a) { return static_cast<U>(std::countl_zero(a)); });
  t["popc.b64"] = one([](U a) { return static_cast<U>(std::popcount(a)); });
  t["bfe.u32"] = three([](U a, U position, U length) {
    const U p = position & 0xFF;
    const U n = length & 0xFF;
    return p >= 32 ? U{0} : (a & 0xFFFFFFFF) >> p & (n >= 32 ? 0xFFFFFFFF : (U{1} << n) - 1);
  });
  t["shf.r.wrap.b32"] = three([](U a, U b, U c) {
    const U both = (b & 0xFFFFFFFF) << 32 | (a & 0xFFFFFFFF);
    return both >> (c & 31) & 0xFFFFFFFF;
  });
  t["brev.b32"] = one([](U a) {
    std::uint32_t r = 0;
    for (int i = 0; i < 32; ++i) r |= (static_cast<std::uint32_t>(a) >> i & 1) << (31 - i);
    return U{r};
  });
  t["bfind.shiftamt.u32"] = one([](U a) {
    const auto x = static_cast<std::uint32_t>(a);
    return x == 0 ? U{0xFFFFFFFF} : static_cast<U>(std::countl_zero(x));
  });
  t["popc.b32"] =
      one([](U a) { return static_cast<U>(std::popcount(static_cast<std::uint32_t>(a))); });
  t["bfi.b64"] = four([](U a, U b, U position, U length) {
    const U p = position & 0xFF;
    const U n = length & 0xFF;
    if (p >= 64 || n == 0) return b;
    const U ones = n >= 64 ? ~U{0} : (U{1} << n) - 1;
    return (b & ~(ones << p)) | (a & ones) << p;
  });
  t["shf.l.wrap.b32"] = three([](U a, U b, U c) {
    const U both = (b & 0xFFFFFFFF) << 32 | (a & 0xFFFFFFFF);
    return (both << (c & 31)) >> 32;
  });
  t["prmt.b32"] = three([](U a, U b, U selector) {
    const U bytes = (b & 0xFFFFFFFF) << 32 | (a & 0xFFFFFFFF);
    U result = 0;
    for (int i = 0; i < 4; ++i) {
      const U pick = selector >> (4 * i) & 15;
      U byte = bytes >> (8 * (pick & 7)) & 0xFF;
      if (pick >= 8) byte = (byte & 0x80) != 0 ? 0xFF : 0;
      result |= byte << (8 * i);
    }
    return result;
  });
  t["and.pred"] = two([](U a, U b) { return a & b; });
  t["or.pred"] = two([](U a, U b) { return a | b; });
  t["xor.pred"] = two([](U a, U b) { return a ^ b; });
  t["not.pred"] = one([](U a) { return a ^ 1; });
  t["mov.pred"] = one([](U a) { return U{a != 0}; });
  t["nanosleep.u32"] = {[](const Registers&, const std::int32_t*, std::uint32_t) {}, 0};
}

Table all_operations() {
  Table t;
  add_bits<std::uint16_t>(t, "b16");
  add_bits<std::uint32_t>(t, "b32");
  add_bits<std::uint64_t>(t, "b64");
  for (const char* const kind : {"b", "u", "s", "f"}) {
    add_moves<std::uint16_t>(t, std::string(kind) + "16");
    add_moves<std::uint32_t>(t, std::string(kind) + "32");
    add_moves<std::uint64_t>(t, std::string(kind) + "64");
  }
  add_integers<std::int16_t>(t, "s16");
  add_integers<std::uint16_t>(t, "u16");
  add_integers<std::int32_t>(t, "s32");
  add_integers<std::uint32_t>(t, "u32");
  add_integers<std::int64_t>(t, "s64");
  add_integers<std::uint64_t>(t, "u64");
  add_wide<std::uint16_t, std::uint32_t>(t, "u16");
  add_wide<std::int16_t, std::int32_t>(t, "s16");
  add_wide<std::uint32_t, std::uint64_t>(t, "u32");
  add_wide<std::int32_t, std::int64_t>(t, "s32");
  add_comparisons<std::uint16_t>(t, "u16");
  add_comparisons<std::int16_t>(t, "s16");
  add_comparisons<std::uint32_t>(t, "u32");
  add_comparisons<std::int32_t>(t, "s32");
  add_comparisons<std::uint64_t>(t, "u64");
  add_comparisons<std::int64_t>(t, "s64");
  add_comparisons<std::uint16_t>(t, "b16");
  add_comparisons<std::uint32_t>(t, "b32");
  add_comparisons<std::uint64_t>(t, "b64");
  add_comparisons<float>(t, "f32");
  add_comparisons<double>(t, "f64");
  add_floats<float>(t, "f32");
  add_floats<double>(t, "f64");
  add_minimum(t);
  add_conversions_from<std::int8_t>(t, "s8");
  add_conversions_from<std::uint8_t>(t, "u8");
  add_conversions_from<std::int16_t>(t, "s16");
  add_conversions_from<std::uint16_t>(t, "u16");
  add_conversions_from<std::int32_t>(t, "s32");
  add_conversions_from<std::uint32_t>(t, "u32");
  add_conversions_from<std::int64_t>(t, "s64");
  add_conversions_from<std::uint64_t>(t, "u64");
  add_float_conversions(t);
  add_fields(t);
  return t;
}

}  // namespace

const Operation* find_operation(const std::string& op) {
  static const Table table = all_operations();
  const auto found = table.find(op);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace tutti::ptx
