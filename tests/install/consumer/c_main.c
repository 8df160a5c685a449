/* A user's program in C, built against an installed Tutti. */
#include <stdio.h>
#include <tutti/tutti_c.h>

int main(void) {
  tutti_comm* comm = NULL;
  float x = 2;
  if (tutti_comm_alone(NULL, &comm) != TUTTI_OK ||
      tutti_all_reduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM) != TUTTI_OK || x != 2 ||
      tutti_comm_free(comm) != TUTTI_OK) {
    fprintf(stderr, "%s\n", tutti_error_message());
    return 1;
  }
  printf("libtutti_c.so.1 of Tutti %s works\n", tutti_version());
  return 0;
}
