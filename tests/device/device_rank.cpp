// A rank, as a process, whose buffers are memory of a GPU (or of threads in its place), for
// device_processes_test; or several, as threads (the second argument). It does what the first
// argument says, and exits with 0 if all was right, with 1 if something was wrong, and with 3 after
// an error: then it prints "ERROR code culprit text".
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/unique_id.h"
#include "tests/device/device_training.h"
#include "tests/device/device_window_exercises.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Bytes that rank 0's kernels can send while rank 1's process is stopped. Through the host, some
/// of them stay with the sender's process.
std::size_t goodbye_bytes(int ranks) { return std::size_t{3} << (ranks == 2 ? 19 : 18); }

// --- What the argument says ----------------------------------------------------------------------

/// Whether the algorithm that was asked for addresses other ranks' memory.
bool by_windows() {
  const char* const algorithm = std::getenv("TUTTI_ALGORITHM");
  return algorithm != nullptr && std::string(algorithm).find("window") != std::string::npos;
}

void ready() {
  fmt::print("READY\n");
  std::fflush(stdout);
}

/// Communicators come and go, and not always on all ranks at once.
void leave(Communicator& comm, Accelerator& gpu, Tally& tally) {
  for (int i = 0; i < 4; ++i) {
    Communicator child = comm.split(0, comm.rank());
    DeviceRank(child, gpu, tally).run_sum(1000, fmt::format("communicator {}", i));
    // In the last round rank 0 leaves long before the others. They then let go of its memory.
    if (i == 3 && comm.rank() != 0) std::this_thread::sleep_for(1500ms);
    const auto began = Clock::now();
    child.destroy();
    if (Clock::now() - began > 1s) tally.count(1, "a rank waited for others when it left");
  }
  comm.barrier();
  DeviceRank(comm, gpu, tally).run_sum(1000, "after all that");
}

int run(const std::string& what, int threads, Communicator& comm, Accelerator& gpu) {
  Tally tally;
  if (what == "leave") {
    leave(comm, gpu, tally);
  } else if (what == "training") {
    train_on_gpu(comm, gpu, tally);
  } else if (what == "gather" || what == "reduce") {
    if (comm.impl().group->one_process() && accelerators() == 1) return 0;  // there are no windows
    WindowRank rank(comm, gpu, tally, what == "reduce", threads == 1);
    rank.places();
    rank.reuse();
    rank.slots();
    rank.stages();
    rank.graph();
    rank.lies();
  } else if (what == "lie") {  // of a window that cannot be
    WindowRank rank(comm, gpu, tally, true, true);
    rank.lies();
    ready();
    comm.barrier();
    if (comm.rank() == 0) rank.lie(5000);
    for (;;) comm.barrier();
  } else {
    DeviceRank rank(comm, gpu, tally);
    if (what == "matrix") {
      rank.matrix();
      rank.graphs();
      const DeviceWindows* const windows = comm.impl().team->windows();
      if (windows != nullptr) {
        const bool went = windows->counts().calls > 0;
        if (went && !windows->are_wanted()) tally.count(1, "calls went through windows");
        if (!went && by_windows() && windows->are_wanted()) {
          tally.count(1, "no call went through windows");
        }
      }
    } else if (what == "messages") {
      rank.pair();
      comm.barrier();
      rank.ring();
      rank.all_to_all();
      rank.run_sum(1000, "after messages");
      rank.pair();
    } else if (what == "boundaries") {
      rank.boundaries();
    } else if (what == "spin") {  // until a rank is killed
      rank.run_sum(1000, "the first");
      ready();
      for (;;) rank.run_sum(100'000, "a sum");
    } else if (what == "late") {  // rank 1 never comes
      rank.run_sum(1000, "the first");
      ready();
      if (comm.rank() == 1) comm.barrier();
      rank.run_sum(1000, "without rank 1");
      comm.run(rank.sum(1000), gpu.stream());
    } else if (what == "differ" || what == "differ_anew") {  // rank 1 from the others
      Call other = rank.sum(1000);
      other.collective = Collective::reduce_scatter;
      other.count = 1000 / static_cast<std::size_t>(comm.size());
      rank.run_sum(1000, "the first");
      if (what == "differ") {  // so that both calls are known
        comm.run(other, gpu.stream());
        gpu.synchronize();
      }
      ready();
      for (;;) {
        comm.run(comm.rank() == 1 ? other : rank.sum(1000), gpu.stream());
        gpu.synchronize();
      }
    } else if (what == "slow") {  // rank 1 is late twice, and comes
      if (comm.rank() == 1) std::this_thread::sleep_for(700ms);
      rank.run_sum(1000, "the first");
      if (comm.rank() == 1) std::this_thread::sleep_for(700ms);
      rank.run_sum(1000, "the second");
    } else if (what == "alone") {  // rank 1 has sent, and never comes to a collective
      rank.pair();
      ready();
      if (comm.rank() == 1) comm.barrier();
      rank.run_sum(1000, "without rank 1");
    } else if (what == "one_way") {
      // Rank 0 decides to map. Rank 1 cannot map, and finds that out only when it tries.
      if (comm.rank() == 1) rank.send(2, 0, 1000);
      if (comm.rank() == 2) rank.receive(1, 0, 1000);
      comm.barrier();
      if (comm.rank() == 0) rank.send(1, 0, 1000);
      comm.barrier();
      if (comm.rank() == 1) rank.receive(0, 0, 1000);
      comm.barrier();
    } else if (what == "goodbye") {  // of ranks 0 and 1; the parent stops rank 1 in between
      rank.pair();
      comm.barrier();
      if (comm.rank() == 1) {
        ready();
        rank.receive(0, 0, goodbye_bytes(comm.size()));
      } else if (comm.rank() == 0) {
        std::this_thread::sleep_for(600ms);
        rank.send(1, 0, goodbye_bytes(comm.size()));
        gpu.synchronize();
        ready();
      }
      // Rank 0 ends now, as others may have, and rank 1 when it has what rank 0 sent.
      if (!tally.first.empty()) fmt::print("rank {}: {}\n", comm.rank(), tally.first);
      return tally.elements == 0 ? 0 : 1;
    } else if (what == "abort") {
      rank.run_sum(1000, "the first");
      ready();
      if (comm.rank() == 1) {
        std::this_thread::sleep_for(200ms);
        comm.abort("enough");
      }
      for (;;) {
        comm.run(rank.sum(1000), gpu.stream());
        gpu.synchronize();
      }
    }
  }
  std::uint64_t all = 0;
  const std::uint64_t mine = tally.elements;
  comm.all_reduce(&mine, &all, 1, DataType::uint64);
  if (!tally.first.empty()) fmt::print("rank {}: {}\n", comm.rank(), tally.first);
  return all == 0 ? 0 : 1;
}

/// What becomes of a rank on one of the GPUs: its exit status. `communicator` makes its
/// communicator.
int live(const std::string& what, int threads, int ordinal,
         const std::function<Communicator()>& communicator) {
  if (what == "slow") {
    setenv("TUTTI_REPORT_AFTER", "0.3", 1);
    dup2(STDOUT_FILENO, STDERR_FILENO);
  }
  try {
    const auto gpu = open_accelerator(ordinal);
    if (what == "memory") {
      fmt::print("{}\n", gpu->free_bytes());
      return 0;
    }
    std::string error;
    int status = 3;
    {
      Communicator comm = communicator();
      try {
        status = run(what, threads, comm, *gpu);
      } catch (const Error& e) {
        error = fmt::format("ERROR {} {} {}\n", name(e.code()), e.rank(), e.what());
      }
    }
    // After the communicator has gone: leaving must not hang either.
    fmt::print("{}", error);
    std::fflush(stdout);
    return status;
  } catch (const std::exception& e) {
    fmt::print("ERROR {}\n", e.what());
    std::fflush(stdout);
    return 2;
  }
}

/// This process is ranks [first, first + threads) of the job.
int live_in_threads(const std::string& what, int threads) {
  const UniqueId id = unique_id_from_string(std::getenv("TUTTI_UNIQUE_ID"));
  const int first = threads * std::atoi(std::getenv("TUTTI_RANK"));
  const int size = threads * std::atoi(std::getenv("TUTTI_SIZE"));
  std::atomic<int> worst = 0;
  {
    std::vector<std::jthread> ranks;
    for (int r = first; r < first + threads; ++r) {
      ranks.emplace_back([&, r] {
        Options options;
        options.gpu = (r - first) % accelerators();
        // As if they were on different hosts: all that then happens, in one process.
        if (const char* const per_host = std::getenv("TUTTI_TEST_RANKS_PER_HOST")) {
          options.host_id = std::to_string(r / std::atoi(per_host));
        }
        const int status = live(what, threads, options.gpu,
                                [&] { return Communicator::create(id, r, size, options); });
        if (status != 0) worst = status;
      });
    }
  }
  return worst;
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "matrix";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  if (threads > 1) return tutti::test::live_in_threads(what, threads);
  return tutti::test::live(what, 1, 0, [] { return tutti::Communicator::from_environment(); });
}
