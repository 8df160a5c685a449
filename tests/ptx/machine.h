// Runs the blocks of a launch: 16 warps each, whose threads go together until they diverge and then
// each way by itself, in an order that a seed decides (independent thread scheduling). One thread
// of the process interprets all of them, so that a seed repeats a run exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"
#include "tests/ptx/random.h"

namespace tutti::ptx {

/// Threads of a warp that are at the same instruction.
struct Split {
  enum class State : std::uint8_t { ready, at_barrier, at_meeting };
  std::uint32_t at = 0;
  std::uint32_t lanes = 0;
  State state = State::ready;
  std::uint32_t depth = 0;
  std::uint32_t back[2] = {};  // where calls return to

  bool is_beside(const Split& other) const {
    return at == other.at && depth == other.depth && back[0] == other.back[0] &&
           back[1] == other.back[1];
  }
};

/// A relaxed load whose value is not decided yet (accesses.cpp).
struct LateLoad {
  const Op* op = nullptr;
  std::uint32_t lanes = 0;
  std::uint64_t address[kLanes] = {};
};

struct Block;

struct Warp {
  Block* block = nullptr;
  std::uint32_t first = 0;  // thread of the block
  std::vector<std::uint64_t> values;
  Registers registers{};
  std::vector<Split> splits;
  std::vector<LateLoad> late;
  std::uint32_t exited = 0;  // lanes
  bool is_listed = false;    // among those that can run

  bool can_run() const;
};

/// A launch of a program: its parameters, and the GPU of each of its blocks.
struct Launched {
  const Program* program = nullptr;
  std::vector<std::byte> parameters;
  std::vector<std::uint32_t> gpu;
};

/// One launch, while it runs.
struct Run {
  const Program* program = nullptr;
  std::vector<std::uint64_t>* executed = nullptr;  // times, of each instruction
  std::span<const std::byte> parameters;
  std::uint32_t blocks = 0;
  std::vector<Warp*>* ready = nullptr;  // of all launches that run together
  std::uint32_t unfinished = 0;         // blocks
};

struct Block {
  BlockView view;
  std::vector<ThreadView> threads;
  std::vector<Warp> warps;
  std::byte* shared = nullptr;
  std::size_t shared_bytes = 0;
  Run* run = nullptr;
  std::uint32_t number = 0;  // of the launch
  std::uint32_t arrived = 0, exited = 0;
};

class Machine {
 public:
  explicit Machine(std::uint64_t seed = 1);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Returns when all blocks have ended; throws Fault. `gpu`: of each block. From several threads.
  void run(const Program& program, std::span<const std::byte> parameters,
           const std::vector<std::uint32_t>& gpu);
  /// The launches of each stream one after the other, and streams beside each other: the seed
  /// decides when each begins.
  void run(const std::vector<std::vector<Launched>>& streams);

  void reseed(std::uint64_t seed) {
    random_ = Random(~seed);
    memory.reseed(seed);
  }

  Memory memory;
  std::mutex mutex;                          // of the memory's regions, and of everything else
  std::uint32_t longest_turn = 256;          // instructions of a warp before another one's
  std::uint64_t most_steps = 2'000'000'000;  // of warps, in one launch
  /// So far: instructions of warps, and of threads.
  std::uint64_t steps = 0, thread_steps = 0;
  /// How often warps came to each instruction of a program.
  std::map<const Program*, std::vector<std::uint64_t>> executed;

 private:
  struct Stream;
  std::unique_ptr<Block> begin(Run& run, std::uint32_t number, std::uint32_t gpu,
                               const Clock& known);
  void begin(Stream& stream, std::vector<Warp*>& ready);
  void end(Block& block, Clock& known);
  void end(Stream& stream);
  bool advance(std::vector<Stream>& streams, std::vector<Warp*>& ready);
  std::uint64_t pause();
  void step(Warp& warp, std::uint32_t budget);
  std::uint32_t choose(Warp& warp);
  bool merge(Warp& warp, std::uint32_t& split);
  void branch(Warp& warp, std::uint32_t split, const Op& op);
  void ret(Warp& warp, std::uint32_t split);
  void barrier(Warp& warp, std::uint32_t split);
  void meet(Warp& warp, std::uint32_t split, const Op& op);
  void shuffle(Warp& warp, std::uint32_t lanes, const Op& op) const;
  void special(Warp& warp, const Split& split, const Op& op) const;
  void access(Warp& warp, const Split& split, const Op& op);
  void access_weakly(Warp& warp, std::uint32_t lanes, const Op& op);
  void access_strongly(Warp& warp, std::uint32_t lanes, const Op& op);
  std::uint32_t access_lines(Warp& warp, std::uint32_t lanes, const Op& op);
  void exchange(Warp& warp, std::uint32_t lanes, const Op& op);
  void postpone(Warp& warp, std::uint32_t lanes, const Op& op);
  void settle(Warp& warp, const Split& split, const Op& op);
  bool waits_for(const Warp& warp, const Split& split, const Op& op, const LateLoad& late) const;
  void load(Warp& warp, const LateLoad& late);
  std::uint64_t address(const Warp& warp, std::uint32_t lane, const Op& op) const;
  void list(Warp& warp);
  [[noreturn]] void fail(const Warp& warp, std::uint32_t at, const std::string& what) const;
  [[noreturn]] void fail_stuck(const std::vector<Stream>& streams) const;

  Random random_;
  Clock ended_;                                // what launches that have ended did
  std::vector<std::uint32_t> intervals_;       // of blocks, by index
  std::vector<bool> taken_;                    // indices
  std::vector<Block*> running_;                // by index
  std::vector<std::unique_ptr<Block>> spare_;  // to be used again
  const Program* program_ = nullptr;           // at work
};

}  // namespace tutti::ptx
