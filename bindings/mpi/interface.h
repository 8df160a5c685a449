// The binary interface of this library of MPI: the types of handles, their values, and all
// constants. The sources of this folder are compiled once for each: as libmpi_abi.so.1 with those
// of the standard (abi.h), as libmpi.so.12 with MPICH's (mpich_abi.h). So nothing is converted when
// a program calls, or is called.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef TUTTI_MPI_MPICH
#include "bindings/mpi/mpich_abi.h"
#else
#include "bindings/mpi/abi.h"
#endif

namespace tutti::mpi {

/// A handle of any kind as an integer, and back.
template <class Handle>
std::uintptr_t bits_of(Handle handle) noexcept {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uintptr_t>(handle);
  } else {
    return static_cast<std::uint32_t>(handle);
  }
}
template <class Handle>
Handle handle_of(std::uintptr_t bits) noexcept {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(bits);
  } else {
    return static_cast<Handle>(static_cast<std::int32_t>(bits));
  }
}

/// Where the handles of predefined objects of a kind begin, and how many places they need.
template <class Handle>
struct Predefined;

inline constexpr int kNumberBits = 26;  // of a handle that is an integer: at its end

#ifdef TUTTI_MPI_MPICH

// What is not predefined has the bits 11 in front, its kind, and its number.
inline constexpr std::uintptr_t kOwnHandle = 0xc0000000;

template <std::uintptr_t Kind, std::size_t Places>
struct PredefinedOfKind {
  static constexpr std::size_t places = Places;
  static constexpr std::uintptr_t own = kOwnHandle | Kind << kNumberBits;  // the first of others
  /// 01 in front, and the number in the last eight bits; data types have their size in between, and
  /// pairs of a value and an index 10 in front. Numbers beyond `places`: no predefined handle.
  static constexpr std::size_t place(std::uintptr_t bits) {
    return bits >> kNumberBits == (0x10 | Kind)   ? bits & 0xff
           : bits >> kNumberBits == (0x20 | Kind) ? 0x100 + (bits & 0x3ffffff)
                                                  : Places;
  }
};
template <>
struct Predefined<MPI_Comm> : PredefinedOfKind<0x1, 2> {};
template <>
struct Predefined<MPI_Group> : PredefinedOfKind<0x2, 1> {};
template <>
struct Predefined<MPI_Datatype> : PredefinedOfKind<0x3, 0x108> {};
template <>
struct Predefined<MPI_Errhandler> : PredefinedOfKind<0x5, 4> {};
template <>
struct Predefined<MPI_Op> : PredefinedOfKind<0x6, 16> {};
template <>
struct Predefined<MPI_Info> : PredefinedOfKind<0x7, 2> {};
template <>
struct Predefined<MPI_Win> : PredefinedOfKind<0x8, 0> {};
template <>
struct Predefined<MPI_Request> : PredefinedOfKind<0xb, 0> {};
template <>
struct Predefined<MPI_Message> : PredefinedOfKind<0xb, 0> {};
template <>
struct Predefined<MPI_Session> : PredefinedOfKind<0xe, 0> {};

#else

// Handles below this are predefined; others are addresses.
inline constexpr std::uintptr_t kOwnHandle = 4096;

template <std::uintptr_t First, std::size_t Places>
struct PredefinedFrom {
  static constexpr std::size_t places = Places;
  static constexpr std::uintptr_t own = 0;
  /// Numbers beyond `places`: no predefined handle.
  static constexpr std::size_t place(std::uintptr_t bits) { return bits - First; }
};
template <>
struct Predefined<MPI_Comm> : PredefinedFrom<0x100, 3> {};
template <>
struct Predefined<MPI_Group> : PredefinedFrom<0x108, 2> {};
template <>
struct Predefined<MPI_Datatype> : PredefinedFrom<0x200, 0x100> {};
template <>
struct Predefined<MPI_Errhandler> : PredefinedFrom<0x140, 4> {};
template <>
struct Predefined<MPI_Op> : PredefinedFrom<0x20, 0x20> {};
template <>
struct Predefined<MPI_Info> : PredefinedFrom<0x130, 2> {};
template <>
struct Predefined<MPI_Win> : PredefinedFrom<0x110, 1> {};
template <>
struct Predefined<MPI_Request> : PredefinedFrom<0x180, 1> {};
template <>
struct Predefined<MPI_Message> : PredefinedFrom<0x128, 2> {};
template <>
struct Predefined<MPI_Session> : PredefinedFrom<0x120, 1> {};

#endif

}  // namespace tutti::mpi
