// The parts of a status, by procedures; and what the interface says of Fortran, which Tutti does
// not have.
#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"

namespace tutti::mpi {

int MPI_Status_get_source(const MPI_Status* status, int* source) {
  *source = status->MPI_SOURCE;
  return MPI_SUCCESS;
}
int MPI_Status_get_tag(const MPI_Status* status, int* tag) {
  *tag = status->MPI_TAG;
  return MPI_SUCCESS;
}
int MPI_Status_get_error(const MPI_Status* status, int* err) {
  *err = status->MPI_ERROR;
  return MPI_SUCCESS;
}
int MPI_Status_set_source(MPI_Status* status, int source) {
  status->MPI_SOURCE = source;
  return MPI_SUCCESS;
}
int MPI_Status_set_tag(MPI_Status* status, int tag) {
  status->MPI_TAG = tag;
  return MPI_SUCCESS;
}
int MPI_Status_set_error(MPI_Status* status, int err) {
  status->MPI_ERROR = err;
  return MPI_SUCCESS;
}

int MPI_Abi_get_fortran_info(MPI_Info* info) {
  *info = MPI_INFO_NULL;
  return MPI_SUCCESS;
}
int MPI_Abi_set_fortran_info(MPI_Info info) {
  (void)info;
  return guarded("MPI_Abi_set_fortran_info", {},
                 [] { fail(MPI_ERR_ABI, "Tutti has no interface for Fortran"); });
}
int MPI_Abi_get_fortran_booleans(int logical_size, void* logical_true, void* logical_false,
                                 int* is_set) {
  (void)logical_size, (void)logical_true, (void)logical_false;
  *is_set = 0;
  return MPI_SUCCESS;
}
int MPI_Abi_set_fortran_booleans(int logical_size, void* logical_true, void* logical_false) {
  (void)logical_size, (void)logical_true, (void)logical_false;
  return guarded("MPI_Abi_set_fortran_booleans", {},
                 [] { fail(MPI_ERR_ABI, "Tutti has no interface for Fortran"); });
}

}  // namespace tutti::mpi
