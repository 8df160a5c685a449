// The epochs of windows: fences, locks, and MPI_Win_post, start, complete and wait.
#include <algorithm>
#include <utility>

#include "bindings/mpi/procedures.h"
#include "bindings/mpi/window_far.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

using Locked = Win::Locked;

void fence_memory() { std::atomic_thread_fence(std::memory_order_seq_cst); }

Win::Part& part_of(Win& win, int rank) {
  check_peer(*win.comm, rank, "target");
  return win.parts[static_cast<std::size_t>(rank)];
}

}  // namespace

bool try_lock(Board& board, bool exclusive) {
  std::int32_t now = board.lock.load(std::memory_order_relaxed);
  if (exclusive) return now == 0 && board.lock.compare_exchange_strong(now, -1);
  while (now >= 0 && board.waiting.load(std::memory_order_relaxed) == 0) {
    if (board.lock.compare_exchange_weak(now, now + 1)) return true;
  }
  return false;
}

void count_waiter(Board& board, bool exclusive, int by) {
  board.waiters.fetch_add(by);
  if (exclusive) board.waiting.fetch_add(by);
}

void release_lock(Win& win, int rank, bool exclusive) {
  Board& board = *win.parts[static_cast<std::size_t>(rank)].board;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (exclusive) {
    board.lock.store(0, std::memory_order_release);
  } else {
    board.lock.fetch_sub(1, std::memory_order_release);
  }
  if (board.waiters.load() == 0) return;
  Mail& mail = world().mail();
  for (const int process : win.comm->group->members()) {
    if (process != mail.rank()) mail.wake(process);
  }
  mail.ring();  // those of other hosts who wait for this rank's lock
}

namespace {

/// Counted at the board as long as it waits there.
class Waiter {
 public:
  Waiter(Board& board, bool writes) : board_(board), writes_(writes) {
    count_waiter(board_, writes_, 1);
  }
  ~Waiter() { count_waiter(board_, writes_, -1); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  Board& board_;
  const bool writes_;
};

void lock(Win& win, int rank, Locked kind, const char* procedure) {
  const Win::Part& part = part_of(win, rank);
  Locked& held = win.held[static_cast<std::size_t>(rank)];
  if (held != Locked::no || win.holds_all) {
    fail(MPI_ERR_RMA_SYNC, "this rank has locked the window of rank {} already", rank);
  }
  if (kind != Locked::unchecked) {
    const bool exclusive = kind == Locked::exclusive;
    if (part.is_far()) {
      far_sign(win, rank, exclusive ? FarSign::lock_exclusive : FarSign::lock_shared);
    } else if (!try_lock(*part.board, exclusive)) {
      const Waiter waiter(*part.board, exclusive);
      world().mail().wait(procedure, [&] { return try_lock(*part.board, exclusive); });
    }
  }
  held = kind;
}

void unlock(Win& win, int rank) {
  const Win::Part& part = part_of(win, rank);
  Locked& held = win.held[static_cast<std::size_t>(rank)];
  if (held == Locked::no)
    fail(MPI_ERR_RMA_SYNC, "this rank has not locked the window of rank {}", rank);
  const Locked kind = std::exchange(held, Locked::no);
  fence_memory();
  if (kind == Locked::unchecked) return;
  const bool exclusive = kind == Locked::exclusive;
  if (!part.is_far()) return release_lock(win, rank, exclusive);
  far_sign(win, rank, exclusive ? FarSign::unlock_exclusive : FarSign::unlock_shared);
}

/// Tells a member that this one lets it in, or has finished there.
void tell(Win& win, int rank, FarSign sign) {
  const Win::Part& part = win.parts[static_cast<std::size_t>(rank)];
  if (part.is_far()) return far_sign(win, rank, sign);
  Meeting& meeting = part.meeting(win.rank());
  (sign == FarSign::posted ? meeting.posted : meeting.completed).fetch_add(1);
  if (rank != win.rank()) world().mail().wake(win.comm->group->at(rank));
}

std::vector<int> ranks_of(const Win& win, MPI_Group group) {
  std::vector<int> ranks;
  for (const int p : group_of(group).members()) {
    const int rank = win.comm->group->rank_of(p);
    if (rank == MPI_UNDEFINED) fail(MPI_ERR_GROUP, "the group has a process that the window lacks");
    ranks.push_back(rank);
  }
  return ranks;
}

/// Whether all members that this rank lets in have finished.
bool have_finished(Win& win) {
  return std::ranges::all_of(win.lets_in, [&](int r) {
    return win.parts[static_cast<std::size_t>(win.rank())].meeting(r).completed.load(
               std::memory_order_acquire) >= win.let_in[static_cast<std::size_t>(r)];
  });
}

void end_exposure(Win& win) {
  win.exposed = false;
  win.lets_in.clear();
  fence_memory();
}

}  // namespace

int MPI_Win_fence(int assert, MPI_Win win) {
  return guarded("MPI_Win_fence", win, [&] {
    Win& w = win_of(win);
    if (w.started || w.exposed || w.holds_all) {
      fail(MPI_ERR_RMA_SYNC, "the window is in an epoch of another kind");
    }
    fence_memory();
    run(w.comm->tutti, {.collective = Collective::barrier});
    fence_memory();
    w.fenced = (assert& MPI_MODE_NOSUCCEED) == 0;
  });
}

int MPI_Win_post(MPI_Group group, int assert, MPI_Win win) {
  return guarded("MPI_Win_post", win, [&] {
    (void)assert;
    Win& w = win_of(win);
    if (w.exposed) fail(MPI_ERR_RMA_SYNC, "MPI_Win_post was called before: MPI_Win_wait ends that");
    w.lets_in = ranks_of(w, group);
    w.exposed = true;
    fence_memory();
    for (const int r : w.lets_in) {
      ++w.let_in[static_cast<std::size_t>(r)];
      tell(w, r, FarSign::posted);
    }
  });
}
int MPI_Win_start(MPI_Group group, int assert, MPI_Win win) {
  return guarded("MPI_Win_start", win, [&] {
    (void)assert;
    Win& w = win_of(win);
    if (w.started) {
      fail(MPI_ERR_RMA_SYNC, "MPI_Win_start was called before: MPI_Win_complete ends that");
    }
    w.goes_to = ranks_of(w, group);
    const Win::Part& own = w.parts[static_cast<std::size_t>(w.rank())];
    for (const int r : w.goes_to) ++w.gone_to[static_cast<std::size_t>(r)];
    world().mail().wait("MPI_Win_start", [&] {
      return std::ranges::all_of(w.goes_to, [&](int r) {
        return own.meeting(r).posted.load(std::memory_order_acquire) >=
               w.gone_to[static_cast<std::size_t>(r)];
      });
    });
    w.started = true;
  });
}
int MPI_Win_complete(MPI_Win win) {
  return guarded("MPI_Win_complete", win, [&] {
    Win& w = win_of(win);
    if (!w.started) fail(MPI_ERR_RMA_SYNC, "MPI_Win_start comes first");
    fence_memory();
    for (const int r : w.goes_to) tell(w, r, FarSign::completed);
    w.goes_to.clear();
    w.started = false;
  });
}
int MPI_Win_wait(MPI_Win win) {
  return guarded("MPI_Win_wait", win, [&] {
    Win& w = win_of(win);
    if (!w.exposed) fail(MPI_ERR_RMA_SYNC, "MPI_Win_post comes first");
    world().mail().wait("MPI_Win_wait", [&] { return have_finished(w); });
    end_exposure(w);
  });
}
int MPI_Win_test(MPI_Win win, int* flag) {
  return guarded("MPI_Win_test", win, [&] {
    Win& w = win_of(win);
    if (!w.exposed) fail(MPI_ERR_RMA_SYNC, "MPI_Win_post comes first");
    *flag = have_finished(w) ? 1 : 0;
    if (*flag != 0) end_exposure(w);
  });
}

int MPI_Win_lock(int lock_type, int rank, int assert, MPI_Win win) {
  return guarded("MPI_Win_lock", win, [&] {
    if (rank == MPI_PROC_NULL) {
      win_of(win);
      return;
    }
    if (lock_type != MPI_LOCK_SHARED && lock_type != MPI_LOCK_EXCLUSIVE) {
      fail(MPI_ERR_LOCKTYPE, "{} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE", lock_type);
    }
    const Locked kind = (assert& MPI_MODE_NOCHECK) != 0 ? Locked::unchecked
                        : lock_type == MPI_LOCK_SHARED  ? Locked::shared
                                                        : Locked::exclusive;
    lock(win_of(win), rank, kind, "MPI_Win_lock");
  });
}
int MPI_Win_unlock(int rank, MPI_Win win) {
  return guarded("MPI_Win_unlock", win, [&] {
    Win& w = win_of(win);
    if (rank != MPI_PROC_NULL) unlock(w, rank);
  });
}
int MPI_Win_lock_all(int assert, MPI_Win win) {
  return guarded("MPI_Win_lock_all", win, [&] {
    Win& w = win_of(win);
    const Locked kind = (assert& MPI_MODE_NOCHECK) != 0 ? Locked::unchecked : Locked::shared;
    for (int r = 0; r < w.size(); ++r) lock(w, r, kind, "MPI_Win_lock_all");
    w.holds_all = true;
  });
}
int MPI_Win_unlock_all(MPI_Win win) {
  return guarded("MPI_Win_unlock_all", win, [&] {
    Win& w = win_of(win);
    if (!w.holds_all) fail(MPI_ERR_RMA_SYNC, "MPI_Win_lock_all comes first");
    w.holds_all = false;
    for (int r = 0; r < w.size(); ++r) unlock(w, r);
  });
}

namespace {

/// A call is over when it returns, so there is nothing to wait for.
int flush(const char* procedure, int rank, MPI_Win win) {
  return guarded(procedure, win, [&] {
    Win& w = win_of(win);
    const bool locked =
        w.holds_all ||
        (rank >= 0 && rank < w.size()
             ? w.held[static_cast<std::size_t>(rank)] != Locked::no
             : std::ranges::any_of(w.held, [](Locked h) { return h != Locked::no; }));
    if (rank != MPI_PROC_NULL && rank >= 0) check_peer(*w.comm, rank, "target");
    if (!locked && rank != MPI_PROC_NULL) {
      fail(MPI_ERR_RMA_SYNC, "the window is not locked by this rank");
    }
    fence_memory();
  });
}
constexpr int kAll = -1000;

}  // namespace

int MPI_Win_flush(int rank, MPI_Win win) { return flush("MPI_Win_flush", rank, win); }
int MPI_Win_flush_local(int rank, MPI_Win win) { return flush("MPI_Win_flush_local", rank, win); }
int MPI_Win_flush_all(MPI_Win win) { return flush("MPI_Win_flush_all", kAll, win); }
int MPI_Win_flush_local_all(MPI_Win win) { return flush("MPI_Win_flush_local_all", kAll, win); }
int MPI_Win_sync(MPI_Win win) {
  return guarded("MPI_Win_sync", win, [&] {
    win_of(win);
    fence_memory();
  });
}

}  // namespace tutti::mpi
