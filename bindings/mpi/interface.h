// The binary interface of this library of MPI: the types of handles, their values, and all
// constants. The sources of this folder are compiled once for each: as libmpi_abi.so.1 with those
// of the standard (abi.h), as libmpi.so.12 with MPICH's (mpich_abi.h), as libmpi.so.40 with Open
// MPI's (openmpi_abi.h). So nothing is converted when a program calls, or is called.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(TUTTI_MPI_MPICH)
#include "bindings/mpi/mpich_abi.h"
#elif defined(TUTTI_MPI_OPENMPI)
#include "bindings/mpi/openmpi_abi.h"
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

#if defined(TUTTI_MPI_MPICH)

// What is not predefined has the bits 11 in front, its kind, and its number.
inline constexpr std::uintptr_t kOwnHandle = 0xc0000000;
inline bool is_predefined(std::uintptr_t bits) { return bits < kOwnHandle; }

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

#elif defined(TUTTI_MPI_OPENMPI)

// A handle is an address, where either an object of the interface lies, which begins with its kind,
// or a slot (handle.h), which begins with an address. Null is no handle.
inline constexpr std::uintptr_t kLeastAddress = 4096;
inline bool is_predefined(std::uintptr_t bits) {
  return bits < kLeastAddress ||
         reinterpret_cast<const OpenMpiObject*>(bits)->kind < kLeastAddress;  // NOLINT
}

template <std::uintptr_t Kind, std::size_t Places>
struct PredefinedOfKind {
  static constexpr std::size_t places = Places;
  static constexpr std::uintptr_t own = 0;
  static constexpr std::uintptr_t kind = Kind;
  /// Numbers beyond `places`: no predefined handle of this kind.
  static std::size_t place(std::uintptr_t bits) {
    if (bits < kLeastAddress) return Places;
    const auto* object = reinterpret_cast<const OpenMpiObject*>(bits);  // NOLINT
    return object->kind == Kind ? object->place : Places;
  }
};
template <>
struct Predefined<MPI_Comm> : PredefinedOfKind<1, 3> {};
template <>
struct Predefined<MPI_Group> : PredefinedOfKind<2, 2> {};
template <>
struct Predefined<MPI_Datatype> : PredefinedOfKind<3, 80> {};
template <>
struct Predefined<MPI_Errhandler> : PredefinedOfKind<4, 4> {};
template <>
struct Predefined<MPI_Op> : PredefinedOfKind<5, 15> {};
template <>
struct Predefined<MPI_Info> : PredefinedOfKind<6, 2> {};
template <>
struct Predefined<MPI_Win> : PredefinedOfKind<7, 1> {};
template <>
struct Predefined<MPI_Request> : PredefinedOfKind<8, 1> {};
template <>
struct Predefined<MPI_Message> : PredefinedOfKind<9, 2> {};
template <>
struct Predefined<MPI_Session> : PredefinedOfKind<10, 1> {};
template <>
struct Predefined<MPI_File> : PredefinedOfKind<11, 1> {};

/// The predefined handle with a number; null: there is none.
template <class Handle>
Handle predefined_numbered(std::size_t number) {
#define TUTTI_MPI_OBJECT(type, place, name)                        \
  if constexpr (std::is_same_v<Handle, type>) {                    \
    if (number == (place)) return reinterpret_cast<Handle>(&name); \
  }
#include "bindings/mpi/openmpi_objects.def"
#undef TUTTI_MPI_OBJECT
  return Handle{};
}

#else

// Handles below this are predefined; others are addresses.
inline constexpr std::uintptr_t kOwnHandle = 4096;
inline bool is_predefined(std::uintptr_t bits) { return bits < kOwnHandle; }

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

#ifdef TUTTI_MPI_OPENMPI
/// The number of a predefined handle.
template <class Handle>
std::uintptr_t predefined_number(Handle handle) {
  return Predefined<Handle>::place(bits_of(handle));
}
#else
template <class Handle>
std::uintptr_t predefined_number(Handle handle) {
  return bits_of(handle);
}
template <class Handle>
Handle predefined_numbered(std::size_t number) {
  return handle_of<Handle>(number);
}
#endif

}  // namespace tutti::mpi
