// The machine's limit: what a collective costs if the ranks are processes that share all of their
// buffers, and do nothing but the work. Three ways; the fastest is the limit:
//
// - through lines: every rank copies its input into a slot of its own, and makes its result from
//   the others' slots. A slot's counter lies in the same cache line as the first bytes. Up to 16
//   KiB.
// - between two barriers, every byte of input is read once, every byte of output written once;
// - the same with stores that go past the cache.
//
// The measuring loop treats it like a library (laboratory/peers/loop.h). It forks its ranks itself.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "laboratory/limits/moves.h"
#include "laboratory/peers/barrier.h"
#include "laboratory/peers/loop.h"
#include "laboratory/peers/turns.h"

namespace tutti::peers {
namespace {

constexpr std::size_t kMostInSlot = 16 << 10;
constexpr std::uint64_t kSlots = 8;

/// A message. Up to 56 bytes arrive with the cache line that says that they are there.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> call{0};  // the number of the call that has these bytes
  std::byte short_message[56];
  std::byte long_message[kMostInSlot];

  std::byte* message(std::size_t bytes) {
    return bytes <= sizeof short_message ? short_message : long_message;
  }
};

/// One rank's memory but for its buffers.
struct RankMemory {
  Slot slots[kSlots];
  Counter done;  // this rank has read the slots of so many calls
};

struct Machine {
  Barrier barrier;
  Barrier pair;  // of the ranks 0 and 1
  RankMemory ranks[kMaxRanks];
};

void* share(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_system_error("cannot map the ranks' buffers");
  return memory;
}

/// The buffers of all ranks, side by side.
struct Buffers {
  std::size_t in_bytes, out_bytes;
  std::byte* start;

  std::byte* in(int rank) const {
    return start + static_cast<std::size_t>(rank) * (in_bytes + out_bytes);
  }
  std::byte* out(int rank) const { return in(rank) + in_bytes; }
};

bool takes_part(const Job& job, int rank) {
  return job.collective != Collective::send_recv || rank < 2;
}
bool sends(const Job& job, int rank) {
  if (job.collective == Collective::broadcast) return rank == 0;
  return takes_part(job, rank) && (job.collective != Collective::reduce || rank != 0);
}
bool receives(const Job& job, int rank) {
  if (job.collective == Collective::reduce) return rank == 0;
  return takes_part(job, rank) && (job.collective != Collective::broadcast || rank != 0);
}

std::size_t input_bytes(const Job& job) {
  const auto blocks = in_blocks(job.collective, job.ranks, 0, 0);
  return blocks * job.bytes();
}

/// One collective through slots.
class ThroughLines {
 public:
  ThroughLines(const Job& job, Machine& machine) : job_(job), machine_(machine) {
    // Slots are numbered on from the last size's calls.
    const auto slot = [this](int rank) {
      return rank == job_.rank ? job_.in : current(rank).message(input_bytes(job_));
    };
    for (std::uint64_t s = 0; s < kSlots; ++s) {
      slot_ = s;
      moves_[s] = own_result(job, slot, [&](int) { return job_.out; });
    }
    call_ = machine.ranks[job.rank].done.value.load(std::memory_order_relaxed);
    for (int r = 0; r < job.ranks; ++r) {
      if (r == job.rank) continue;
      if (sends(job, r) && receives(job, job.rank)) from_.push_back(r);
      if (sends(job, job.rank) && receives(job, r)) to_.push_back(r);
    }
  }

  void operator()() {
    slot_ = ++call_ % kSlots;
    if (job_.collective != Collective::send_recv) {
      send();
      receive();
    } else if (takes_part(job_, job_.rank)) {
      if (job_.rank == 0) send();
      receive();
      if (job_.rank == 1) send();
    }
    machine_.ranks[job_.rank].done.value.store(call_, std::memory_order_release);
  }

 private:
  Slot& current(int rank) { return machine_.ranks[rank].slots[slot_]; }

  void send() {
    if (to_.empty()) return;
    if (call_ > seen_done_ + kSlots) wait_for_slot();
    Slot& slot = current(job_.rank);
    std::memcpy(slot.message(input_bytes(job_)), job_.in, input_bytes(job_));
    slot.call.store(call_, std::memory_order_release);  // after its bytes
  }

  /// Until everybody has read what this call's slot had before, kSlots calls ago.
  void wait_for_slot() {
    seen_done_ = call_;
    for (const int r : to_) {
      const std::atomic<std::uint64_t>& done = machine_.ranks[r].done.value;
      wait_for(done, call_ - kSlots);
      seen_done_ = std::min(seen_done_, done.load(std::memory_order_relaxed));
    }
  }

  void receive() {
    for (const int r : from_) wait_for(current(r).call, call_);
    for (const Move& move : moves_[slot_]) run(move, false);
  }

  const Job job_;
  Machine& machine_;
  std::vector<Move> moves_[kSlots];
  std::vector<int> from_, to_;
  std::uint64_t call_ = 0, slot_ = 0, seen_done_ = 0;
};

/// One collective on the buffers themselves, between two barriers.
class BetweenBarriers {
 public:
  BetweenBarriers(const Job& job, Machine& machine, const Buffers& buffers, bool streaming)
      : job_(job), machine_(machine), streaming_(streaming) {
    const auto in = [&](int r) {
      return job.collective == Collective::broadcast ? buffers.out(r) : buffers.in(r);
    };
    const auto out = [&](int r) { return buffers.out(r); };
    if (job.collective != Collective::send_recv) {
      phases_.push_back(fair_share(job, in, out));
    } else if (takes_part(job, job.rank)) {  // there and back, both ranks at work each time
      Job one_way = job;
      one_way.collective = Collective::broadcast;
      one_way.ranks = 2;
      for (const int sender : {0, 1}) {
        phases_.push_back(fair_share(
            one_way, [&](int) { return in(sender); }, [&](int) { return out(1 - sender); }));
      }
    }
  }

  void operator()() {
    for (const auto& moves : phases_) {
      wait();
      for (const Move& move : moves) run(move, streaming_);
    }
    wait();
  }

 private:
  void wait() {
    if (job_.collective != Collective::send_recv)
      return machine_.barrier.wait(job_.rank, job_.ranks);
    if (takes_part(job_, job_.rank)) machine_.pair.wait(job_.rank, 2);
  }

  const Job job_;
  Machine& machine_;
  const bool streaming_;
  std::vector<std::vector<Move>> phases_;
};

std::vector<Call> ways(const Job& job, Machine& machine, const Buffers& buffers) {
  std::vector<Call> calls;
  if (input_bytes(job) <= kMostInSlot) {
    // std::function copies what it holds; the copies would count calls apart
    calls.push_back([way = std::make_shared<ThroughLines>(job, machine)] { (*way)(); });
  }
  calls.push_back(BetweenBarriers(job, machine, buffers, false));
#if defined(__x86_64__)
  calls.push_back(BetweenBarriers(job, machine, buffers, true));
#endif
  return calls;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

void measure_rank(const Arguments& arguments, int rank, Machine& machine, const Buffers& buffers) {
  take_place(arguments, rank, arguments.ranks);
  std::memset(buffers.in(rank), 0, buffers.in_bytes + buffers.out_bytes);  // page faults go here
  run_loop(arguments, rank, buffers.in(rank), buffers.out(rank),
           [&](const Job& job) { return ways(job, machine, buffers); });
}

void measure(const Arguments& arguments) {
  if (is_reduction(arguments.collective) && arguments.type != DataType::float32) {
    return report_unsupported(arguments.folder, "its loops add up float32 alone");
  }
  const auto ranks = static_cast<std::size_t>(arguments.ranks);
  const perf::Shape shape = largest_shape(arguments);
  Buffers buffers{whole_pages(shape.in * size_of(arguments.type)),
                  whole_pages(shape.out * size_of(arguments.type)), nullptr};
  buffers.start = static_cast<std::byte*>(share(ranks * (buffers.in_bytes + buffers.out_bytes)));
  Machine& machine = *static_cast<Machine*>(share(sizeof(Machine)));

  const pid_t parent = getpid();
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw_system_error("cannot start a rank");
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int status = guarded([&] { measure_rank(arguments, rank, machine, buffers); });
    std::exit(status);
  }
  for (int status = 0; wait(&status) > 0;) {  // the other ranks end with this process
    if (status != 0) throw Error(ErrorCode::internal, "a rank failed");
  }
}

}  // namespace
}  // namespace tutti::peers

int main(int argc, char** argv) {
  return tutti::peers::guarded(
      [&] { tutti::peers::measure(tutti::peers::parse_arguments(argc, argv)); });
}
