// What MPICH's binary interface has of its own, seen by one rank: values and layouts that its mpi.h
// fixes, written here once more as numbers.
#include <cstdio>
#include <cstring>

#include "bindings/mpi/mpi.h"

extern "C" int MPIR_Dup_fn(MPI_Comm, int, void*, void* value, void* place, int* copied);

namespace {

int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::printf("wrong: %s\n", what);
}

int class_of(int code) {
  int error_class = -1;
  MPI_Error_class(code, &error_class);
  return error_class;
}

void check_status() {
  char out[12] = "eleven char", in[12] = "";
  MPI_Request request;
  MPI_Isend(out, 11, MPI_CHAR, 0, 5, MPI_COMM_SELF, &request);
  int status[5];  // count, twice its high part and 1 if cancelled, source, tag, error
  MPI_Recv(in, 12, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF,
           reinterpret_cast<MPI_Status*>(status));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(std::memcmp(in, out, 11) == 0, "the message");
  expect(status[0] == 11 && status[1] == 0 && status[2] == 0 && status[3] == 5, "a status");
  MPI_Status large{};
  MPI_Count bytes = 0;
  MPI_Status_set_elements_c(&large, MPI_BYTE, 0x3'8000'0001);
  MPI_Status_set_cancelled(&large, 1);
  expect(large.count_hi_and_cancelled == 7, "a status of 14 GB that was cancelled");
  MPI_Get_count_c(&large, MPI_BYTE, &bytes);
  expect(bytes == 0x3'8000'0001, "a count of 14 GB");
}

void check_handles() {
  const auto type = static_cast<MPI_Datatype>(0x4c00080b);  // a double
  int size = 0;
  MPI_Type_size(type, &size);
  expect(size == 8, "the size of 0x4c00080b");
  MPI_Type_size(static_cast<MPI_Datatype>(0x8c000001), &size);  // MPI_DOUBLE_INT
  expect(size == 12, "the size of 0x8c000001");
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  expect(class_of(MPI_Type_size(static_cast<MPI_Datatype>(0x4c00010b), &size)) == MPI_ERR_TYPE,
         "a double of one byte");
  MPI_Datatype pair;
  MPI_Type_get_value_index(MPI_FLOAT, MPI_FLOAT, &pair);
  expect(pair == MPI_DATATYPE_NULL, "two floats of C, which are no pair");
  MPI_Type_get_value_index(MPI_REAL, MPI_REAL, &pair);
  expect(pair == MPI_2REAL, "two of Fortran's, which are one");
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_SELF, &copy);
  const auto group = static_cast<MPI_Group>(copy);
  expect(class_of(MPI_Group_size(group, &size)) == MPI_ERR_GROUP, "a communicator as a group");
  expect(MPI_Comm_c2f(copy) == static_cast<int>(copy), "a handle's number");
  const MPI_Comm before = copy;
  MPI_Comm_free(&copy);
  expect(class_of(MPI_Comm_size(before, &size)) == MPI_ERR_COMM, "a freed communicator");
}

int refuse(MPI_Comm, int, void*, void* extra) { return *static_cast<int*>(extra); }

void check_errors() {
  int error_class = 0, code = 0, length = 0;
  MPI_Add_error_class(&error_class);
  MPI_Add_error_code(error_class, &code);
  MPI_Add_error_string(code, "out of tea");
  expect(error_class > 0x3fffffff && class_of(code) == error_class, "a class of the program's");
  char text[MPI_MAX_ERROR_STRING];
  MPI_Error_string(code, text, &length);
  expect(std::strcmp(text, "out of tea") == 0, "its text");
  int other = 0;
  MPI_Add_error_code(error_class, &other);
  MPI_Add_error_string(other, "out of cake");
  expect(class_of(MPI_Remove_error_code(other)) == MPI_ERR_ARG, "a code that has a text");
  MPI_Remove_error_string(other);
  expect(MPI_Remove_error_code(other) == MPI_SUCCESS, "a code that has none");
  int key = 0;
  MPI_Comm_create_keyval(&MPIR_Dup_fn, &refuse, &key, &code);
  MPI_Comm self, copy;
  MPI_Comm_dup(MPI_COMM_SELF, &self);
  MPI_Comm_set_attr(self, key, &length);
  MPI_Comm_dup(self, &copy);
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(copy, key, &value, &found);
  expect(found == 1 && value == &length, "an attribute that MPIR_Dup_fn copied");
  expect(MPI_Comm_delete_attr(copy, key) == code, "the code of a function that refuses");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check_status();
  check_handles();
  check_errors();
  MPI_Finalize();
  if (failures == 0) std::printf("all right\n");
  return failures == 0 ? 0 : 1;
}
