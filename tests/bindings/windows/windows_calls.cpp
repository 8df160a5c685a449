// Ranks with vectors that lie in windows by libtutti_windows.so alone (`tutti run --windows`):
// calls are right, reach the other ranks' memory, and stay right where a rank forks between calls
// and within them.
#include <fmt/format.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using tutti::Communicator;
using namespace std::chrono_literals;

constexpr std::size_t kCount = 200'001;

int heap_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tutti-heap") != std::string::npos) ++count;
  }
  return count;
}

void require(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::exit(1);
}

float input(int rank, int call, std::size_t i) {
  return static_cast<float>(
      (i * 5 + static_cast<std::size_t>(call) * 3 + static_cast<std::size_t>(rank) * 7) % 1000);
}

struct Vectors {
  std::vector<float> in = std::vector<float>(kCount), out = std::vector<float>(kCount);
  void fill(const Communicator& comm, int call) {
    for (std::size_t i = 0; i < kCount; ++i) in[i] = input(comm.rank(), call, i);
  }
  bool is_right(const Communicator& comm, int call) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      float sum = 0;
      for (int r = 0; r < comm.size(); ++r) sum += input(r, call, i);
      if (out[i] != sum) return false;
    }
    return true;
  }
};

void call(Communicator& comm, Vectors& v, int number) {
  v.fill(comm, number);
  comm.all_reduce(v.in, v.out);
  require(v.is_right(comm, number), "the sum");
}

/// A child that writes to all of it; the status of its end.
bool child_scribbles(Vectors& v) {
  const pid_t pid = fork();
  if (pid < 0) return false;
  if (pid == 0) {
    std::fill(v.in.begin(), v.in.end(), -1.0F);
    std::fill(v.out.begin(), v.out.end(), -1.0F);
    _exit(0);
  }
  int status = -1;
  return waitpid(pid, &status, 0) == pid && status == 0;
}

/// A rank forks while the others are late for a call of its.
bool forks_within_a_call(Communicator& comm, Vectors& v, int number,
                         std::chrono::milliseconds late) {
  v.fill(comm, number);
  if (comm.rank() != 0) std::this_thread::sleep_for(late);
  auto future = comm.start({.collective = tutti::Collective::all_reduce,
                            .in = v.in.data(),
                            .out = v.out.data(),
                            .count = kCount,
                            .type = tutti::DataType::float32});
  if (late > 1s) std::this_thread::sleep_for(500ms);  // it has begun
  const bool forked = comm.rank() != 0 || child_scribbles(v);
  future.wait();
  require(v.is_right(comm, number), "the sum of a call with a fork in it");
  return forked;
}

}  // namespace

int main(int argc, char**) {
  const bool refused = argc > 1;
  auto comm = Communicator::from_environment();
  Vectors v;
  const int before = heap_mappings();
  require(before > 0, "there is no heap: was libtutti_windows.so preloaded?");
  int number = 0;
  if (refused) {
    for (int i = 0; i < 20; ++i) call(comm, v, ++number);  // until the ranks rely on windows
    require(!forks_within_a_call(comm, v, ++number, 12s) || comm.rank() != 0,
            "a fork while a call takes 12 s should have failed");
    call(comm, v, ++number);
    fmt::print("refused, and went on\n");
    return 0;
  }
  for (int i = 0; i < 80; ++i) call(comm, v, ++number);
  require(heap_mappings() >= before + comm.size() - 1, "the other ranks' memory is not mapped");
  for (int i = 0; i < 20; ++i) {
    if (i % comm.size() == comm.rank()) require(child_scribbles(v), "a fork between calls");
    call(comm, v, ++number);
    if (i % 5 == 4) v = Vectors();  // in windows again
  }
  for (int i = 0; i < 5; ++i) {
    require(forks_within_a_call(comm, v, ++number, 50ms), "a fork");
    v = Vectors();
  }
  fmt::print("all right\n");
}
