// Ranks whose children end, in whatever way, while the communicators that they have inherited are
// in use: that must disturb neither parents nor other ranks, and the children must end. Exits with
// 1 when something is not right.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "tutti.h"

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 3'001;

enum class End { destroy, exit, quick_exit, exec };

std::uint32_t value(unsigned round, int rank, std::size_t i) {
  return 1'000'003U * round + 40'009U * static_cast<std::uint32_t>(rank) +
         static_cast<std::uint32_t>(i);
}

/// A checked all_reduce, blocking or started.
bool add_up(tutti::Communicator& comm, std::uint32_t* x, unsigned round, bool start) {
  for (std::size_t i = 0; i < kCount; ++i) x[i] = value(round, comm.rank(), i);
  const tutti::Call call{.collective = tutti::Collective::all_reduce,
                         .in = x,
                         .out = x,
                         .count = kCount,
                         .type = tutti::DataType::uint32};
  if (start) {
    comm.start(call).wait();
  } else {
    comm.run(call);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    std::uint32_t sum = 0;
    for (int r = 0; r < comm.size(); ++r) sum += value(round, r, i);
    if (x[i] != sum) return false;
  }
  return true;
}

/// The child's status; -1 when it has not ended in time.
int status_of(pid_t child) {
  int status = 0;
  for (const auto end = std::chrono::steady_clock::now() + 5s;
       waitpid(child, &status, WNOHANG) == 0; std::this_thread::sleep_for(1ms)) {
    if (std::chrono::steady_clock::now() < end) continue;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
  }
  return status;
}

}  // namespace

int main() {
  try {
    auto all = tutti::Communicator::from_environment();
    const int rank = all.rank();
    std::optional<tutti::Communicator> comm = std::move(all);
    std::optional<tutti::Communicator> part = comm->split(0, -rank);
    std::vector<std::uint32_t, tutti::Allocator<std::uint32_t>> window(kCount);
    std::vector<std::uint32_t> plain(kCount);
    unsigned round = 0;
    for (const bool start : {false, true}) {  // started calls have a thread, which children lack
      for (const End end : {End::exec, End::quick_exit, End::exit, End::destroy}) {
        for (int forker = 0; forker < comm->size(); ++forker, ++round) {
          const auto calls = [&] {
            return add_up(*comm, window.data(), round, start) &&
                   add_up(*part, plain.data(), round, start);
          };
          if (!calls()) return 1;
          pid_t child = -1;
          if (rank == forker) {
            child = fork();
            if (child == 0) {
              if (end == End::exec) execlp("true", "true", nullptr);
              if (end == End::destroy) {
                part.reset();
                comm.reset();
              }
              if (end == End::exit) std::exit(0);
              _exit(end == End::exec ? 1 : 0);
            }
          }
          // While it runs, and when it has ended.
          if (!calls()) return 1;
          if (child > 0 && status_of(child) != 0) {
            fmt::print(stderr, "rank {}, round {}: the child has not ended as it should\n", rank,
                       round);
            return 1;
          }
          if (!calls()) return 1;
        }
      }
    }
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
