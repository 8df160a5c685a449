// What members of a window on different hosts ask each other and answer, as bytes of a record
// (window_far.cpp, window_answers.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bindings/mpi/window_far.h"

namespace tutti::mpi {

// Of one question, so that it and its answer are records of the mail.
inline constexpr std::size_t kMostRuns = 128;
inline constexpr std::size_t kMostData = std::size_t{8} << 10;

enum class Wish : std::uint8_t { read, write, combine, swap, sign };

/// A question; `runs` of Run and the data follow it.
struct Question {
  std::uint64_t window = 0;  // the context of its communicator
  std::int32_t rank = 0;     // who asks
  Wish wish = Wish::read;
  FarSign sign = FarSign::posted;
  std::uint8_t wants_before = 0;
  std::uint8_t unused = 0;
  std::int32_t op = 0, pairs = 0;  // numbers of handles; pairs: of no type, where it is kNoPairs
  std::uint32_t runs = 0;
  std::uint32_t unused2 = 0;
};
static_assert(sizeof(Question) == 32);
inline constexpr std::int32_t kNoPairs = -1;

struct Run {
  std::int64_t offset = 0;
  std::uint32_t bytes = 0;
  Element element = Element::byte;
  std::uint8_t unused[3] = {};
};
static_assert(sizeof(Run) == 16);

/// An answer: MPI_SUCCESS or the class of an error, and data.
using Code = std::int32_t;

template <class T>
void append(std::vector<std::byte>& to, std::span<const T> what) {
  const auto bytes = std::as_bytes(what);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace tutti::mpi
