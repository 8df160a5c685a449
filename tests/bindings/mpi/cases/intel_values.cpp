// What a program sees that was built with Intel MPI 2021.18's mpi_abi.h, whose values are written
// here as numbers. Runs with TUTTI_MPI_INTEL=1; with any argument, without: the standard's.
#include <cstdint>
#include <cstdio>

#include "bindings/mpi/mpi.h"

namespace {

int failures = 0;
void expect(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::printf("wrong: %s\n", what);
}

bool is_attribute(int key, int value) {
  int* place = nullptr;
  int flag = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, key, &place, &flag);
  return flag != 0 && *place == value;
}
bool is_missing(int key) {
  int* place = nullptr;
  int flag = 1;
  MPI_Comm_get_attr(MPI_COMM_WORLD, key, &place, &flag);
  return flag == 0;
}

}  // namespace

int main(int argc, char**) {
  const bool intel = argc == 1;
  MPI_Init(nullptr, nullptr);
  const auto gives_back = reinterpret_cast<MPI_Errhandler>(std::uintptr_t{intel ? 0x142U : 0x143U});
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, gives_back);
  int size = 0;
  expect(MPI_Comm_size(MPI_COMM_NULL, &size) != MPI_SUCCESS, "an error that is given back");
  MPI_Errhandler now = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now);
  expect(now == gives_back, "the handler that was set");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int last = 0;
  MPI_Add_error_class(&last);
  expect(is_attribute(intel ? 505 : 507, size), "the universe's size");
  expect(is_missing(intel ? 506 : 505), "the program's number, which no launcher tells");
  expect(is_attribute(intel ? 507 : 506, last), "the last code that is used");
  if (failures == 0) std::printf("all right\n");
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
