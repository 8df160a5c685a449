// A rank of an MPI program in the campaign, for every MPI alike: all_reduces with checked data
// until something happens. It says what campaign_workload.cpp says, a line of JSON for each:
//
//     mpi_workload SECONDS        (after that many seconds it ends well)
//
// Where the MPI has ULFM (compiled with -DHAS_ULFM), the survivors go on without the dead.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef HAS_ULFM
#include <mpi-ext.h>
#endif

enum { count = 50000 };
static int rank = -1;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
// One write a line: launchers mix what comes in pieces.
static void say(const char* event, const char* more) {
  char line[2048];
  const int n = snprintf(line, sizeof line, "{\"rank\": %d, \"at\": %.6f, \"event\": \"%s\"%s}\n",
                         rank, now(), event, more);
  if (write(1, line, (size_t)n) < 0) exit(1);
}

static void say_error(int code) {
  char text[MPI_MAX_ERROR_STRING] = "", more[MPI_MAX_ERROR_STRING + 100];
  int length = 0, class = 0;
  MPI_Error_class(code, &class);
  MPI_Error_string(code, text, &length);
  for (char* c = text; *c != 0; ++c) {
    if (*c == '"' || *c == '\\' || *c < ' ') *c = ' ';
  }
  snprintf(more, sizeof more, ", \"which\": \"first\", \"class\": %d, \"text\": \"%s\"", class,
           text);
  say("error", more);
}

static void leave(int number) {
  (void)number;
  _exit(0);
}

// 0: all was well; otherwise the call's error.
static int steps(MPI_Comm comm, double seconds, int few) {
  static int in[count], out[count];
  int size = 0, own = 0;
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(comm, &own);
  const double begun = now();
  for (int step = 0, stop = 0; stop == 0; ++step) {
    for (int i = 0; i < count; ++i) in[i] = step + own * 7919 + i * 13;
    int code = MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
    if (code != MPI_SUCCESS) return code;
    for (int i = 0; i < count; ++i) {
      if (out[i] != size * (step + i * 13) + 7919 * (size * (size - 1) / 2)) {
        say("wrong", "");
        exit(4);
      }
    }
    if (step == 4 && !few) say("ready", "");
    if (few && step == 24) return MPI_SUCCESS;
    stop = now() - begun > seconds;
    if (step % 8 == 7) {
      code = MPI_Bcast(&stop, 1, MPI_INT, 0, comm);
      if (code != MPI_SUCCESS) return code;
    } else {
      stop = 0;
    }
  }
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  signal(SIGUSR1, leave);
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char more[64];
  snprintf(more, sizeof more, ", \"pid\": %d", (int)getpid());
  say("met", more);
  const int code = steps(MPI_COMM_WORLD, atof(argv[1]), 0);
  if (code == MPI_SUCCESS) {
    say("leaving", "");
    MPI_Finalize();
    say("done", "");
    return 0;
  }
  say_error(code);
#ifdef HAS_ULFM
  MPI_Comm survivors;
  MPI_Group dead;
  int ranks[64], places[64], n = 0;
  MPIX_Comm_failure_ack(MPI_COMM_WORLD);
  MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &dead);
  MPI_Group_size(dead, &n);
  for (int i = 0; i < n && i < 64; ++i) places[i] = i;
  MPI_Group world;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(dead, n, places, world, ranks);
  for (int i = 0; i < n; ++i) {
    snprintf(more, sizeof more, ", \"of\": %d", ranks[i]);
    say("named", more);
  }
  MPIX_Comm_revoke(MPI_COMM_WORLD);
  if (MPIX_Comm_shrink(MPI_COMM_WORLD, &survivors) == MPI_SUCCESS) {
    MPI_Comm_set_errhandler(survivors, MPI_ERRORS_RETURN);
    if (steps(survivors, 0, 1) == MPI_SUCCESS) {
      say("survived", "");
      MPI_Finalize();
      return 0;
    }
  }
#endif
  _exit(3);
}
