/* A library that needs functions of NCCL which Tutti has, has as a refusal, and has not. */
int ncclAllReduce(void);
int pncclBroadcast(void);
int ncclDevCommCreate(void);
int ncclOfTomorrow(void);
__attribute__((weak)) int ncclPerhapsOfTomorrow(void);

const char* const asked_for[] = {
    "ncclSend",    "ncclGetPeerDeviceLeInfo", "ncclDataOfTomorrow", "ncclAllReduce", "nccl",
    "see ncclRecv"};

int client(void) {
  int sum = ncclAllReduce() + pncclBroadcast() + ncclDevCommCreate() + ncclOfTomorrow();
  return ncclPerhapsOfTomorrow ? sum + ncclPerhapsOfTomorrow() : sum;
}
