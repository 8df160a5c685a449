// How calls write the status that a program passes, which may be none.
#pragma once

#include "bindings/mpi/status.h"

namespace tutti::mpi {

/// Writes all but MPI_ERROR.
inline void write_status(MPI_Status* status, int source, int tag, MPI_Count bytes, bool cancelled) {
  if (status == MPI_STATUS_IGNORE) return;
  status->MPI_SOURCE = source;
  status->MPI_TAG = tag;
  set_status_bytes(*status, bytes);
  set_status_cancelled(*status, cancelled);
}
inline void write_empty_status(MPI_Status* status) {
  if (status != MPI_STATUS_IGNORE) *status = empty_status();
}

}  // namespace tutti::mpi
