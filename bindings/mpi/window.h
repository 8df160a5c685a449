// Windows of MPI: memory that the other members reach while its owner does something else. On one
// host a member copies straight into and out of it: memory that Tutti allocates is mapped by all,
// other memory is copied by the kernel (cross-memory attach). Members of other hosts are asked, and
// answer (window_far.h). So a call is over when it returns, and no member has to take part.
//
// What members tell each other lies in memory that all of a host map (Board): locks, and counters
// of MPI_Win_post and MPI_Win_complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/mpi/attributes.h"
#include "bindings/mpi/communicator.h"
#include "bindings/mpi/info.h"
#include "tutti.h"

namespace tutti::mpi {

/// Of one member, in the memory of its board; behind it a Meeting for each member.
struct alignas(64) Board {
  std::atomic<std::int32_t> lock{0};       // readers; -1: one writer
  std::atomic<std::int32_t> waiting{0};    // writers that wait: readers let them go first
  std::atomic<std::int32_t> waiters{0};    // all that wait for the lock
  std::atomic<std::int32_t> combining{0};  // held by whom changes the memory by an operator
};
struct alignas(64) Meeting {
  std::atomic<std::uint64_t> posted{0};     // by the target: how often it has let this member in
  std::atomic<std::uint64_t> completed{0};  // by the origin: how often it has finished
};

struct Win {
  /// A member's memory, as this process reaches it.
  struct Part {
    std::byte* mapped = nullptr;  // null: by the kernel
    std::uint64_t address = 0;    // in the member's process
    MPI_Aint bytes = 0;
    MPI_Aint unit = 1;
    int pid = 0;
    Board* board = nullptr;  // null: of a member on another host
    bool is_far() const { return board == nullptr; }
    Meeting& meeting(int rank) const { return reinterpret_cast<Meeting*>(board + 1)[rank]; }
  };
  struct Attached {  // memory of a dynamic window
    std::uint64_t address = 0, bytes = 0;
  };
  enum class Locked : std::uint8_t { no, shared, exclusive, unchecked };

  CommRef comm;  // its own
  int flavor = MPI_WIN_FLAVOR_CREATE;
  int model = MPI_WIN_UNIFIED;
  int unit = 1;
  MPI_Aint bytes = 0;
  void* base = nullptr;
  Window memory, board;  // of Tutti's
  std::vector<Part> parts;
  bool is_far = false;             // members are on several hosts
  std::vector<Attached> attached;  // guarded by the mail's lock
  std::vector<Locked> held;        // by this member, of each
  bool holds_all = false;
  std::vector<int> lets_in, goes_to;           // MPI_Win_post, MPI_Win_start: ranks
  std::vector<std::uint64_t> let_in, gone_to;  // how often, by rank
  bool exposed = false, started = false, fenced = false;

  MPI_Win handle = MPI_WIN_NULL;
  std::string name;
  std::shared_ptr<ErrorHandler> handler;
  Attributes attributes;
  InfoRef info;

  int rank() const { return comm->rank; }
  int size() const { return comm->size(); }
};
using WinRef = std::shared_ptr<Win>;

Handles<Win, MPI_Win>& wins();
/// Throws Failure(MPI_ERR_WIN) for the null handle and a freed one.
Win& win_of(MPI_Win win);

bool try_lock(Board& board, bool exclusive);
/// One more who waits for a lock, or one less.
void count_waiter(Board& board, bool exclusive, int by);
/// Of a lock that is held at a member of this host. Wakes those who wait for it.
void release_lock(Win& win, int rank, bool exclusive);

/// Collective. Allocates `bytes` (`allocates`), or takes the program's memory at `base`.
WinRef make_win(Comm& parent, int flavor, void* base, MPI_Aint bytes, int unit, InfoRef info);

}  // namespace tutti::mpi
