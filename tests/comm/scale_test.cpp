// How communicators grow with their ranks: what creating one and a first call take, and the memory
// that a rank has then. Ranks are processes of one host, processes of hosts of their own, or
// threads on such hosts. A rank's memory may grow with the links that it uses, which are few, and
// by what it knows of each other rank; not with the square of the ranks.
//
// Arguments: the numbers of ranks (default: 16 64).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int> sizes;

/// Of this process: bytes that are its alone, and its share of those that it shares with others.
struct Memory {
  double own = 0, shared = 0;
};
Memory memory_now() {
  malloc_trim(0);  // what an earlier measurement has left
  std::ifstream file("/proc/self/smaps_rollup");
  Memory memory;
  std::string name;
  double kib = 0;
  for (std::string line; std::getline(file, line);) {
    if (std::sscanf(line.c_str(), "%*[^:]: %lf kB", &kib) != 1) continue;
    if (line.starts_with("Anonymous:")) memory.own = kib;
    if (line.starts_with("Pss_Shmem:")) memory.shared = kib;
  }
  return {memory.own * 1024, memory.shared * 1024};
}

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

/// Memory of a rank, on average.
struct Figures {
  double created = 0, called = 0;  // seconds, of rank 0
  Memory each;
};

void call(Communicator& comm) {
  const std::int64_t ranks = comm.size();
  const std::array<std::int64_t, 2> in{comm.rank(), 1};
  std::array<std::int64_t, 2> out{};
  comm.all_reduce(in.data(), out.data(), in.size(), DataType::int64);
  ASSERT_EQ(out[0], ranks * (ranks - 1) / 2);
  ASSERT_EQ(out[1], ranks);
}

/// So that it is known how many links a rank uses: of a tree and of barrier(), about 2 log2(ranks).
Options with_few_links() {
  Options options;
  options.algorithm = "tree";
  return options;
}

/// As processes, `ranks_of_a_host` on each host.
Figures of_processes(int ranks, int ranks_of_a_host) {
  struct Said {
    double created, called;
    Memory memory;
  };
  const UniqueId id = make_unique_id();
  std::array<int, 2> ends{}, gate{};
  EXPECT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(pipe(gate.data()), 0);
  const auto begun = Clock::now();
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    close(gate[1]);
    const Memory before = memory_now();
    Said said{};
    {
      Options options = with_few_links();
      options.host_id = fmt::format("{}", r / ranks_of_a_host);
      Communicator comm = Communicator::create(id, r, ranks, options);
      said.created = seconds_since(begun);
      call(comm);
      said.called = seconds_since(begun);
      comm.barrier();
      const Memory after = memory_now();
      said.memory = {after.own - before.own, after.shared - before.shared};
      // All look before one leaves.
      if (write(ends[1], &said, sizeof said) != sizeof said) _exit(2);
      char nothing = 0;
      if (read(gate[0], &nothing, 1) != 0) _exit(2);
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  close(gate[0]);
  close(ends[1]);
  Figures figures;
  Said said{};
  for (int r = 0; r < ranks && read(ends[0], &said, sizeof said) == sizeof said; ++r) {
    figures.created = std::max(figures.created, said.created);
    figures.called = std::max(figures.called, said.called);
    figures.each.own += said.memory.own / ranks;
    figures.each.shared += said.memory.shared / ranks;
  }
  close(gate[1]);
  close(ends[0]);
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  return figures;
}

/// As threads of one process.
Figures of_threads(int ranks, int ranks_of_a_host) {
  const Environment apart{{{"TUTTI_TEST_RANKS_PER_HOST", std::to_string(ranks_of_a_host)}}};
  const auto begun = Clock::now();
  Figures figures;
  const Memory before = memory_now();
  run_thread_ranks(ranks, with_few_links(), [&](Communicator& comm) {
    if (comm.rank() == 0) figures.created = seconds_since(begun);
    call(comm);
    comm.barrier();
    if (comm.rank() != 0) return;
    figures.called = seconds_since(begun);
    const Memory after = memory_now();
    figures.each = {(after.own - before.own) / ranks, (after.shared - before.shared) / ranks};
  });
  return figures;
}

class Scale : public testing::Test {
 protected:
  /// `measure(ranks)`; each rank has `descriptors(ranks)` open.
  template <class Measure>
  void of_all(const char* how, Measure&& measure, int (*descriptors)(int ranks)) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (const int ranks : sizes) {
      if (files.rlim_max < static_cast<rlim_t>(descriptors(ranks) + 100)) {
        fmt::print("{:>5} {}: not enough file descriptors (ulimit -Hn)\n", ranks, how);
        continue;
      }
      const Figures f = measure(ranks);
      fmt::print(
          "{:>5} {:<32} created after {:5.2f} s, called after {:5.2f} s; a rank has {:5.0f} KiB, "
          "and {:5.0f} KiB shared\n",
          ranks, how, f.created, f.called, f.each.own / 1024, f.each.shared / 1024);
      std::fflush(stdout);
      // The memory of its links, and for each rank the memory of what it knows of that rank.
      EXPECT_LT(f.each.own + f.each.shared, (1 << 20) + ranks * (6 << 10));
    }
  }
  Environment environment_{{{"TUTTI_PEER_TIMEOUT", "60"}}};
};

TEST_F(Scale, ProcessesOfOneHost) {
  of_all(
      "processes of one host", [](int n) { return of_processes(n, n); },
      [](int n) { return 3 * n; });
}
TEST_F(Scale, ProcessesOnHostsOfTheirOwn) {
  of_all(
      "processes on hosts of their own", [](int n) { return of_processes(n, 1); },
      [](int) { return 100; });
}
TEST_F(Scale, ThreadsOfOneHost) {
  of_all(
      "threads of one host", [](int n) { return of_threads(n, n); }, [](int n) { return 4 * n; });
}
TEST_F(Scale, ThreadsOnHostsOfTheirOwn) {
  of_all(
      "threads on hosts of their own", [](int n) { return of_threads(n, 1); },
      [](int n) { return 70 * n; });
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) tutti::test::sizes.push_back(std::atoi(argv[i]));
  if (tutti::test::sizes.empty()) tutti::test::sizes = {16, 64};
  return RUN_ALL_TESTS();
}
