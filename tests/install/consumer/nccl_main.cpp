// A user's program, built against the installed libnccl.so.2.
#include <nccl.h>

#include <cstdio>

int main() {
  ncclComm_t comm = nullptr;
  float x = 2;
  if (ncclCommInitAll(&comm, 1, nullptr) != ncclSuccess ||
      ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comm, nullptr) != ncclSuccess || x != 2 ||
      ncclCommDestroy(comm) != ncclSuccess) {
    std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
    return 1;
  }
  std::puts("libnccl.so.2 works");
}
