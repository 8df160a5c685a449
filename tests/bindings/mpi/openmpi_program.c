/* A program for Open MPI: compiled with the mpi.h of Open MPI itself, and linked with its
   libmpi.so.40. It runs on Tutti's by the same name, with as many ranks as one likes. What it uses
   differs between binary interfaces: handles that are addresses of variables, the layout of a
   status, constants, and functions by name. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void expect(int good, const char* what, int line) {
  if (good) return;
  printf("line %d: rank %d: not so: %s\n", line, rank, what);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 3);
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static int datum(int of, int i) { return of * 100003 + i * 7; }

static void messages(void) {
  int out[100], in[100], i, count = -1, flag = -1;
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status status;
  for (i = 0; i < 100; ++i) out[i] = datum(rank, i);
  memset(&status, -1, sizeof status);
  MPI_Isend(out, 100, MPI_INT, right, 17, MPI_COMM_WORLD, &requests[0]);
  MPI_Probe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  EXPECT(status.MPI_SOURCE == left && status.MPI_TAG == 17);
  MPI_Get_count(&status, MPI_INT, &count);
  EXPECT(count == 100 && status._ucount == 400 && status._cancelled == 0);
  MPI_Irecv(in, 100, MPI_INT, MPI_ANY_SOURCE, 17, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  EXPECT(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
  for (i = 0; i < 100; ++i) EXPECT(in[i] == datum(left, i));
  MPI_Irecv(in, 1, MPI_INT, left, 18, MPI_COMM_WORLD, &requests[0]);
  MPI_Cancel(&requests[0]);
  MPI_Wait(&requests[0], &status);
  MPI_Test_cancelled(&status, &flag);
  EXPECT(flag == 1 && status._cancelled != 0);
  MPI_Recv(in, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
  EXPECT(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

static void larger(void* in, void* in_out, int* count, MPI_Datatype* type) {
  int i;
  EXPECT(*type == MPI_INT);
  for (i = 0; i < *count; ++i) {
    if (((int*)in)[i] > ((int*)in_out)[i]) ((int*)in_out)[i] = ((int*)in)[i];
  }
}

static void collectives(void) {
  struct {
    double value;
    int index;
  } mine, most;
  int sum = rank, i;
  int* all = malloc((size_t)size * sizeof *all);
  MPI_Op op;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT(sum == size * (size - 1) / 2);
  mine.value = rank % 2 == 0 ? rank : -rank;
  mine.index = rank;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  EXPECT(most.index == (size - 1) / 2 * 2 && most.value == most.index);
  MPI_Op_create(larger, 1, &op);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  EXPECT(sum == size - 1);
  MPI_Op_free(&op);
  EXPECT(op == MPI_OP_NULL);
  MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  for (i = 0; i < size; ++i) EXPECT(all[i] == i);
  free(all);
}

static int deleted = 0;
static int forget(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value;
  return ++*(int*)extra, MPI_SUCCESS;
}

static void objects(void) {
  int found = 0, key = MPI_KEYVAL_INVALID, plain = MPI_KEYVAL_INVALID, result = -1, number = 0;
  int* upper = NULL;
  void* value = NULL;
  MPI_Comm copy, none;
  MPI_Group group;
  MPI_Datatype pair;
  MPI_Aint lower, extent;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper, &found);
  EXPECT(found == 1 && *upper >= 32767);
  MPI_Comm_create_keyval(MPI_COMM_DUP_FN, forget, &key, &deleted);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &plain, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, &rank);
  MPI_Comm_set_attr(MPI_COMM_SELF, plain, &size);
  MPI_Comm_dup(MPI_COMM_SELF, &copy);
  MPI_Comm_get_attr(copy, key, &value, &found);
  EXPECT(found == 1 && value == &rank);
  MPI_Comm_get_attr(copy, plain, &value, &found);
  EXPECT(found == 0);
  MPI_Comm_compare(copy, MPI_COMM_SELF, &result);
  EXPECT(result == MPI_CONGRUENT);
  MPI_Comm_free(&copy);
  EXPECT(copy == MPI_COMM_NULL && deleted == 1);
  MPI_Comm_delete_attr(MPI_COMM_SELF, key);
  MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &none);
  EXPECT(none == MPI_COMM_NULL);
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Group_compare(group, MPI_GROUP_EMPTY, &result);
  EXPECT(result == MPI_UNEQUAL);
  MPI_Group_free(&group);
  EXPECT(group == MPI_GROUP_NULL);
  MPI_Type_vector(2, 1, 3, MPI_DOUBLE, &pair);
  MPI_Type_commit(&pair);
  MPI_Type_get_extent(pair, &lower, &extent);
  EXPECT(lower == 0 && extent == 32);
  MPI_Type_size(MPI_LONG_DOUBLE_INT, &number);
  EXPECT(number == 20);
  MPI_Type_free(&pair);
  EXPECT(pair == MPI_DATATYPE_NULL);
  EXPECT(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
  EXPECT(MPI_Type_f2c(MPI_Type_c2f(MPI_DOUBLE)) == MPI_DOUBLE);
  EXPECT(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_NULL)) == MPI_COMM_NULL);
}

static void errors(void) {
  int error_class = -1, length = 0;
  char text[MPI_MAX_ERROR_STRING];
  int code;
  MPI_Errhandler handler;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  code = MPI_Send(&rank, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
  MPI_Error_class(code, &error_class);
  EXPECT(error_class == MPI_ERR_RANK);
  MPI_Error_string(code, text, &length);
  EXPECT(length > 0 && length == (int)strlen(text));
  MPI_Error_class(MPI_Send(&rank, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD), &error_class);
  EXPECT(error_class == MPI_ERR_TYPE);
  MPI_Error_class(MPI_Allreduce(&rank, &length, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD),
                  &error_class);
  EXPECT(error_class == MPI_ERR_OP);
  MPI_Error_class(MPI_Comm_rank(MPI_COMM_NULL, &length), &error_class);
  EXPECT(error_class == MPI_ERR_COMM);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  EXPECT(handler == MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void window(void) {
  int* memory = NULL;
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  MPI_Win win;
  MPI_Win_allocate(8, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
  MPI_Put(&rank, 1, MPI_INT, right, 1, 1, MPI_INT, win);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
  EXPECT(memory[1] == left);
  MPI_Win_lock(MPI_LOCK_SHARED, right, MPI_MODE_NOCHECK, win);
  MPI_Win_unlock(right, win);
  MPI_Win_free(&win);
  EXPECT(win == MPI_WIN_NULL);
}

int main(int argc, char** argv) {
  int level = -1, length = 0;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT(level >= MPI_THREAD_FUNNELED);
  MPI_Get_library_version(version, &length);
  EXPECT(argc < 2 || strstr(version, argv[1]) != NULL); /* whose library this is */
  messages();
  collectives();
  objects();
  errors();
  window();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
