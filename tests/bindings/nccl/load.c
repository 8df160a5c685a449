/* Loads libnccl.so.2 by its soname, as XGBoost, JAX or CuPy do, and adds with two ranks of this
 * thread. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  ncclResult_t (*init)(ncclComm_t*, int, const int*);
  ncclResult_t (*reduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                         cudaStream_t);
  ncclResult_t (*start)(void);
  ncclResult_t (*end)(void);
  ncclResult_t (*destroy)(ncclComm_t);
  *(void**)&init = dlsym(library, "ncclCommInitAll");
  *(void**)&reduce = dlsym(library, "ncclAllReduce");
  *(void**)&start = dlsym(library, "ncclGroupStart");
  *(void**)&end = dlsym(library, "ncclGroupEnd");
  *(void**)&destroy = dlsym(library, "ncclCommDestroy");
  if (!init || !reduce || !start || !end || !destroy) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  /* Whose it is: NVIDIA's library of the same name may be installed. */
  Dl_info info;
  if (argc > 1 && dladdr(*(void**)&init, &info) && strcmp(info.dli_fname, argv[1]) != 0) {
    fprintf(stderr, "%s was loaded, not %s\n", info.dli_fname, argv[1]);
    return 1;
  }
  ncclComm_t comms[2];
  float x[2] = {1, 2};
  int bad = init(comms, 2, NULL) != ncclSuccess || start() != ncclSuccess;
  for (int i = 0; i < 2; ++i) {
    bad |= reduce(&x[i], &x[i], 1, ncclFloat32, ncclSum, comms[i], NULL) != ncclSuccess;
  }
  bad |= end() != ncclSuccess || x[0] != 3 || x[1] != 3;
  for (int i = 0; i < 2; ++i) bad |= destroy(comms[i]) != ncclSuccess;
  if (bad) fprintf(stderr, "the sum is wrong: %g and %g\n", (double)x[0], (double)x[1]);
  return bad;
}
