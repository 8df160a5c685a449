// A program of `tutti compare` that can be made to fail: what the variable COMPARE_FAULT says.
// Otherwise it is Tutti, all_reduce alone. Its rank 0 keeps a log of its turns in COMPARE_LOG,
// under the name COMPARE_NAME.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include "bench/perf/buffer.h"
#include "comm/communicator.h"
#include "laboratory/peers/loop.h"
#include "laboratory/peers/turns.h"

namespace tutti::peers {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void log(const Job& job, const std::string& what) {
  if (job.rank != 0) return;
  const int file = open(variable("COMPARE_LOG").c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
  const std::string line = fmt::format("{} {}\n", variable("COMPARE_NAME"), what);
  if (write(file, line.data(), line.size()) < 0) std::perror("log");
  close(file);
}

double seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// What this process used of the cores, and how long it was, between its turns.
struct Waiting {
  double used = 0, lasted = 0;
  double used_until = 0, at = 0;

  void begin() {
    used_until = seconds(CLOCK_PROCESS_CPUTIME_ID);
    at = seconds(CLOCK_MONOTONIC);
  }
  void end() {
    if (at == 0) return;
    used += seconds(CLOCK_PROCESS_CPUTIME_ID) - used_until;
    lasted += seconds(CLOCK_MONOTONIC) - at;
  }
};

void misbehave(const Job& job, const std::string& fault, int turn) {
  if (turn < 3) return;
  if (fault == "dies" && job.rank == 1) {
    std::fputs("no socket\n", stderr);
    _exit(3);
  }
  if (fault != "hangs") return;
  std::signal(SIGTERM, SIG_IGN);
  if (job.rank == 1) pause();
}

/// As a library that puts a chunk where its neighbour belongs.
void swap_chunks(const Job& job) {
  constexpr std::size_t kChunk = 64;
  if (job.bytes() < 2 * kChunk) return;
  std::swap_ranges(job.out, job.out + kChunk, job.out + kChunk);
}

void measure(const Arguments& arguments) {
  Communicator comm = Communicator::from_environment();
  take_place(arguments, comm.rank(), comm.size());
  const std::string fault = variable("COMPARE_FAULT");
  if (fault == "unsupported") {
    if (comm.rank() == 0) report_unsupported(arguments.folder, "it cannot");
    return;
  }
  const perf::Shape shape = largest_shape(arguments);
  const perf::Buffer in(shape.in * size_of(arguments.type), true);
  const perf::Buffer out(shape.out * size_of(arguments.type), true);
  Job job;
  job.rank = comm.rank();
  log(job, "started in " + arguments.folder);
  int turns = 0;
  Waiting waiting;
  run_loop(arguments, comm.rank(), in.data(), out.data(), [&](const Job& todo) {
    waiting.end();
    job = todo;
    log(job, fmt::format("begins {}", job.bytes()));
    misbehave(job, fault, ++turns);
    // Ends with the turn.
    const std::shared_ptr<void> turn(nullptr, [&](void*) {
      log(job, fmt::format("ends {}", job.bytes()));
      waiting.begin();
    });
    return std::vector<Call>{[&, turn] {
      comm.all_reduce(job.in, job.out, job.count, job.type);
      if (fault == "swaps") swap_chunks(job);
    }};
  });
  log(job, fmt::format("waited {} s of cores in {} s", waiting.used, waiting.lasted));
}

}  // namespace
}  // namespace tutti::peers

int main(int argc, char** argv) {
  return tutti::peers::guarded(
      [&] { tutti::peers::measure(tutti::peers::parse_arguments(argc, argv)); });
}
