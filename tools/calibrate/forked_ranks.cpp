#include "tools/calibrate/forked_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

/// What the ranks and the process that starts them share.
struct Board {
  std::atomic<bool> id_is_there;
  UniqueId id;
  Machine machine;
  char error[512];
};

class SharedBoard {
 public:
  SharedBoard()
      : memory_(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0)) {
    if (memory_ == MAP_FAILED) throw_system_error("cannot map memory");
  }
  ~SharedBoard() { munmap(memory_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board& board() const { return *static_cast<Board*>(memory_); }

 private:
  void* memory_;
};

void be_rank(int rank, const ForkedRanks& ranks, Board& board,
             const std::function<void(Communicator&, Machine&)>& body) {
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
  Machine mine = board.machine;
  comm.barrier();
  body(comm, mine);
  comm.barrier();
  if (rank == 0) board.machine = mine;
}

/// Never returns: the rank's process ends here, without what this one has still to do.
[[noreturn]] void run_child(int rank, const ForkedRanks& ranks, Board& board,
                            const std::function<void(Communicator&, Machine&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    if (!ranks.cores.empty()) {
      const cpu_set_t& cpus = ranks.cores[static_cast<std::size_t>(rank) % ranks.cores.size()];
      sched_setaffinity(0, sizeof cpus, &cpus);
    }
    be_rank(rank, ranks, board, body);
  } catch (const std::exception& e) {
    *fmt::format_to_n(board.error, sizeof board.error - 1, "{}", e.what()).out = '\0';
    status = 1;
  }
  _exit(status);
}

}  // namespace

void run_forked(const ForkedRanks& ranks, Machine& machine,
                const std::function<void(Communicator&, Machine&)>& body) {
  const SharedBoard shared;
  Board& board = shared.board();
  board.machine = machine;
  std::fflush(nullptr);  // or the children print it again
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks.count; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(rank, ranks, board, body);
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
                fmt::format("a rank of the calibration failed: {}",
                            board.error[0] != '\0' ? board.error : "it could not run to its end"));
  }
  machine = board.machine;
}

}  // namespace tutti
