// Loaded before a program (LD_PRELOAD): its clock of the day jumps to and fro by CLOCK_JUMPS
// seconds, every 50 ms of the steady clock. What asks for other clocks gets the system's.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump(void) {
  struct timespec steady;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &steady);
  const char* seconds = getenv("CLOCK_JUMPS");
  if (seconds == NULL || steady.tv_nsec / 50000000 % 2 == 0) return 0;
  return atol(seconds);
}

int clock_gettime(clockid_t id, struct timespec* time) {
  const int result = (int)syscall(SYS_clock_gettime, id, time);
  if (id == CLOCK_REALTIME) time->tv_sec += jump();
  return result;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}
