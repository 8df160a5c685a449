#include "tools/forked_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/error.h"
#include "core/settings.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(20);

using Body = std::function<void(Communicator&, std::byte* result)>;

/// What the ranks and the process that starts them share; the result follows.
struct alignas(64) Board {
  std::atomic<bool> id_is_there;
  UniqueId id;
  char error[512];
};

class SharedBoard {
 public:
  explicit SharedBoard(std::size_t result)
      : bytes_(sizeof(Board) + result),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw_system_error("cannot map memory");
  }
  ~SharedBoard() { munmap(memory_, bytes_); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board& board() const { return *static_cast<Board*>(memory_); }
  std::byte* result() const { return static_cast<std::byte*>(memory_) + sizeof(Board); }

 private:
  std::size_t bytes_;
  void* memory_;
};

/// `result`: this process's own on all ranks but 0.
void be_rank(int rank, const ForkedRanks& ranks, Board& board, std::byte* result,
             const Body& body) {
  for (const Setting& s : settings()) unsetenv(std::string(s.name).c_str());
  setenv("TUTTI_LOG", "error", 1);  // that constants are missing is why they are measured
  if (rank == 0) {
    board.id = make_unique_id();
    // release: a rank that sees the flag sees the id.
    board.id_is_there.store(true, std::memory_order_release);
  }
  const auto end = Clock::now() + kPatience;
  while (!board.id_is_there.load(std::memory_order_acquire)) {
    if (Clock::now() > end) throw Error(ErrorCode::timed_out, "rank 0 did not begin");
    usleep(100);
  }
  Options options;
  options.rendezvous_timeout = kPatience;
  options.timeout = kPatience;
  options.algorithm = ranks.algorithm;
  Communicator comm = Communicator::create(board.id, rank, ranks.count, options);
  comm.barrier();
  body(comm, result);
  comm.barrier();
}

/// Never returns: the rank's process ends here, without what this one has still to do.
[[noreturn]] void run_child(int rank, const ForkedRanks& ranks, Board& board, std::byte* result,
                            const Body& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    if (!ranks.cores.empty()) {
      const cpu_set_t& cpus = ranks.cores[static_cast<std::size_t>(rank) % ranks.cores.size()];
      sched_setaffinity(0, sizeof cpus, &cpus);
    }
    be_rank(rank, ranks, board, result, body);
  } catch (const std::exception& e) {
    *fmt::format_to_n(board.error, sizeof board.error - 1, "{}", e.what()).out = '\0';
    status = 1;
  }
  _exit(status);
}

}  // namespace

void run_forked(const ForkedRanks& ranks, std::span<std::byte> result, const Body& body) {
  const SharedBoard shared(result.size());
  Board& board = shared.board();
  std::ranges::copy(result, shared.result());
  std::fflush(nullptr);  // or the children print it again
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks.count; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      run_child(rank, ranks, board, rank == 0 ? shared.result() : result.data(), body);
    }
    if (child > 0) children.push_back(child);
  }
  bool failed = static_cast<int>(children.size()) < ranks.count;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed = failed || status != 0;
  }
  if (failed) {
    throw Error(ErrorCode::internal,
                fmt::format("a rank failed: {}",
                            board.error[0] != '\0' ? board.error : "it could not run to its end"));
  }
  std::copy_n(shared.result(), result.size(), result.data());
}

}  // namespace tutti
