// Windows among hosts: what a member does to the memory of a member on another host it asks for, by
// records of the mail (mail.h), and is over when the answer has come. The other one answers while
// any of its threads is in a call that waits; else its postman does, so that the program itself
// need not take part.
#pragma once

#include <cstdint>
#include <span>

#include "bindings/mpi/op.h"
#include "bindings/mpi/window.h"

namespace tutti::mpi {

/// `count` elements of a type in the memory of a member of another host.
struct FarPlace {
  Win& win;
  int rank;
  MPI_Aint offset;  // in bytes, of the first element
  const Type& type;
  MPI_Count count;
};

// `packed`: the data one behind the other.

void far_read(const FarPlace& place, std::byte* packed);
void far_write(const FarPlace& place, const std::byte* packed);
/// data = data op packed, element by element at once; `before` gets what was there, if not null.
void far_combine(const FarPlace& place, MPI_Op op, const std::byte* packed, std::byte* before);
/// Replaces the one element if it equals `compare`.
void far_swap(const FarPlace& place, const std::byte* packed, const std::byte* compare,
              std::byte* before);

/// What members tell each other on their boards. A lock is answered when it is held.
enum class FarSign : std::uint8_t {
  lock_shared,
  lock_exclusive,
  unlock_shared,
  unlock_exclusive,
  posted,
  completed
};
void far_sign(Win& win, int rank, FarSign sign);

/// This member answers from now on, until it does not.
void answer_far(Win& win);
void end_answers(Win& win);

}  // namespace tutti::mpi
