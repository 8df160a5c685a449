// What the library keeps in the part of MPI_Status that belongs to it: the bytes that were
// received, and whether the request was cancelled.
#pragma once

#include <cstring>

#include "bindings/mpi/abi.h"

namespace tutti::mpi {

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

/// Of a request that is null or inactive, and of a message that had none.
inline MPI_Status empty_status() {
  MPI_Status status{};
  status.MPI_SOURCE = MPI_ANY_SOURCE;
  status.MPI_TAG = MPI_ANY_TAG;
  status.MPI_ERROR = MPI_SUCCESS;
  return status;
}

}  // namespace tutti::mpi
