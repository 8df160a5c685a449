// What the library keeps in the part of MPI_Status that belongs to it: the bytes that were
// received, and whether the request was cancelled.
#pragma once

#include <cstring>

#include "bindings/mpi/interface.h"

namespace tutti::mpi {

#if defined(TUTTI_MPI_MPICH)

/// Bytes of data (packed) in the message.
inline MPI_Count status_bytes(const MPI_Status& status) {
  const auto low = static_cast<std::uint32_t>(status.count_lo);
  const auto high = static_cast<std::uint32_t>(status.count_hi_and_cancelled) >> 1;
  return static_cast<MPI_Count>(std::uint64_t{high} << 32 | low);
}
inline bool status_cancelled(const MPI_Status& status) {
  return (status.count_hi_and_cancelled & 1) != 0;
}
inline void set_status_bytes(MPI_Status& status, MPI_Count bytes) {
  const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(bytes) >> 32);
  const auto cancelled = static_cast<std::uint32_t>(status_cancelled(status));
  status.count_lo = static_cast<int>(static_cast<std::uint32_t>(bytes));
  status.count_hi_and_cancelled = static_cast<int>(high << 1 | cancelled);
}
inline void set_status_cancelled(MPI_Status& status, bool cancelled) {
  const auto high = static_cast<std::uint32_t>(status.count_hi_and_cancelled) & ~1U;
  status.count_hi_and_cancelled = static_cast<int>(high | (cancelled ? 1 : 0));
}

#elif defined(TUTTI_MPI_OPENMPI)

/// Bytes of data (packed) in the message.
inline MPI_Count status_bytes(const MPI_Status& status) {
  return static_cast<MPI_Count>(status.bytes);
}
inline void set_status_bytes(MPI_Status& status, MPI_Count bytes) {
  status.bytes = static_cast<size_t>(bytes);
}
inline bool status_cancelled(const MPI_Status& status) { return status.cancelled != 0; }
inline void set_status_cancelled(MPI_Status& status, bool cancelled) {
  status.cancelled = cancelled ? 1 : 0;
}

#else

/// Bytes of data (packed) in the message.
inline MPI_Count status_bytes(const MPI_Status& status) {
  MPI_Count bytes = 0;
  std::memcpy(&bytes, status.MPI_internal, sizeof bytes);
  return bytes;
}
inline void set_status_bytes(MPI_Status& status, MPI_Count bytes) {
  std::memcpy(status.MPI_internal, &bytes, sizeof bytes);
}

inline bool status_cancelled(const MPI_Status& status) { return status.MPI_internal[2] != 0; }
inline void set_status_cancelled(MPI_Status& status, bool cancelled) {
  status.MPI_internal[2] = cancelled ? 1 : 0;
}

#endif

/// Of a request that is null or inactive, and of a message that had none.
inline MPI_Status empty_status() {
  MPI_Status status{};
  status.MPI_SOURCE = MPI_ANY_SOURCE;
  status.MPI_TAG = MPI_ANY_TAG;
  status.MPI_ERROR = MPI_SUCCESS;
  return status;
}

}  // namespace tutti::mpi
