#include "tests/ptx/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace tutti::ptx {
namespace {

// Between what blocks share, so that an address beyond the end is nobody's.
constexpr std::size_t kGap = 4096;

}  // namespace

bool Warp::can_run() const {
  for (const Split& s : splits) {
    if (s.state == Split::State::ready) return true;
  }
  return false;
}

Machine::Machine(std::uint64_t seed) : memory(seed), random_(~seed) {
  memory.place = [this](std::uint32_t op) { return program_->place(op); };
  memory.who = [this](std::uint32_t thread) {
    const std::uint32_t index = thread / kMostBlockThreads;
    const Block* const b = index < running_.size() ? running_[index] : nullptr;
    return b == nullptr
               ? fmt::format("thread {} of a block that has ended", thread % kMostBlockThreads)
               : fmt::format("thread {} of block {}", thread % kMostBlockThreads, b->number);
  };
}

Machine::~Machine() {
  for (const auto& b : spare_) {
    memory.remove(b->shared);
    std::free(b->shared);
  }
}

// --- Launches ------------------------------------------------------------------------------------

std::unique_ptr<Block> Machine::begin(Run& run, std::uint32_t number, std::uint32_t gpu) {
  const Program& p = *run.program;
  std::unique_ptr<Block> block;
  for (auto& spare : spare_) {
    if (spare->shared_bytes != p.shared_bytes) continue;
    block = std::move(spare);
    spare = std::move(spare_.back());
    spare_.pop_back();
    break;
  }
  if (!block) {
    block = std::make_unique<Block>();
    block->shared_bytes = p.shared_bytes;
    const std::size_t whole = (p.shared_bytes + kGap + 255) / 256 * 256;
    block->shared = static_cast<std::byte*>(std::aligned_alloc(256, whole));
    if (block->shared == nullptr) throw std::bad_alloc();
    if (p.shared_bytes > 0) memory.add(block->shared, p.shared_bytes, true);
  } else {
    memory.blank(block->shared);
  }
  std::uint32_t index = 0;
  while (index < taken_.size() && taken_[index]) ++index;
  if (index == taken_.size()) {
    taken_.push_back(false);
    intervals_.push_back(0);
    running_.push_back(nullptr);
    memory.gpus.push_back(0);
  }
  if (index >= 256) throw Fault("more than 256 blocks at a time");
  if (std::uint64_t{intervals_[index]} << 8 > kMostTime / 2) throw Fault("too many barriers");
  taken_[index] = true;
  running_[index] = block.get();
  memory.gpus[index] = gpu;
  block->run = &run;
  block->number = number;
  block->arrived = block->exited = 0;
  block->view.index = index;
  block->view.gpu = gpu;
  block->view.interval = intervals_[index];
  block->view.known = ended_;
  const std::uint32_t threads = p.threads;
  block->threads.clear();
  block->threads.resize(threads);
  for (std::uint32_t t = 0; t < threads; ++t) {
    block->threads[t].block = &block->view;
    block->threads[t].number = index * kMostBlockThreads + t;
  }
  block->warps.resize((threads + kLanes - 1) / kLanes);
  for (std::uint32_t w = 0; w < block->warps.size(); ++w) {
    Warp& warp = block->warps[w];
    warp.block = block.get();
    warp.first = w * kLanes;
    warp.values.assign(std::size_t{kLanes} * p.slots, 0xDEADBEEFDEADBEEFULL);
    warp.registers = {warp.values.data(), p.constants.data()};
    warp.splits.clear();
    Split all;
    const std::uint32_t n = std::min(kLanes, threads - warp.first);
    all.lanes = n == kLanes ? kWholeWarp : (1u << n) - 1;
    warp.splits.push_back(all);
    warp.exited = ~all.lanes;
    warp.is_listed = false;
    list(warp);
  }
  return block;
}

void Machine::end(Block& block) {
  Memory::meet(block.view, block.threads);
  ended_.join(block.view.known);
  intervals_[block.view.index] = block.view.interval;
  taken_[block.view.index] = false;
  running_[block.view.index] = nullptr;
}

void Machine::list(Warp& warp) {
  if (warp.is_listed) return;
  warp.is_listed = true;
  warp.block->run->ready.push_back(&warp);
}

void Machine::run(const Program& program, std::span<const std::byte> parameters,
                  const std::vector<std::uint32_t>& gpu) {
  std::unique_lock lock(mutex);
  if (program.threads == 0 || program.threads > kMostBlockThreads) throw Fault("an odd block");
  if (parameters.size() < program.parameter_bytes) throw Fault("too few parameters");
  Run run;
  run.program = &program;
  run.parameters = parameters.first(program.parameter_bytes);
  run.blocks = static_cast<std::uint32_t>(gpu.size());
  auto& counts = executed[&program];
  counts.resize(program.ops.size());
  run.executed = &counts;
  memory.has_fences = memory.has_fences || program.has_fences;
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::uint32_t b = 0; b < gpu.size(); ++b) blocks.push_back(begin(run, b, gpu[b]));
  run.unfinished = run.blocks;
  const auto leave = [&] {
    for (auto& b : blocks) {
      end(*b);
      spare_.push_back(std::move(b));
    }
  };
  const std::uint64_t until = steps + most_steps;
  try {
    std::uint32_t turns = 0;
    while (run.unfinished > 0) {
      if (run.ready.empty()) {
        program_ = &program;
        fail_stuck(blocks);
      }
      const std::uint32_t k = random_.below(static_cast<std::uint32_t>(run.ready.size()));
      Warp& warp = *run.ready[k];
      program_ = &program;
      step(warp, 1 + random_.below(longest_turn));
      if (!warp.can_run()) {
        // Others may have been listed meanwhile, behind it.
        warp.is_listed = false;
        run.ready[k] = run.ready.back();
        run.ready.pop_back();
      }
      if (steps > until) throw Fault("a launch without an end");
      if (++turns % 64 == 0) {
        // Launches of other threads, and the host.
        lock.unlock();
        lock.lock();
      }
    }
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

// --- Warps ---------------------------------------------------------------------------------------

/// Mostly those that are furthest behind, which brings threads together again; not always, as
/// nothing promises that.
std::uint32_t Machine::choose(Warp& warp) {
  std::uint32_t best = ~std::uint32_t{0};
  std::uint32_t ready = 0;
  const bool any = random_() % 8 == 0;
  for (std::uint32_t i = 0; i < warp.splits.size(); ++i) {
    if (warp.splits[i].state != Split::State::ready) continue;
    ++ready;
    if (best == ~std::uint32_t{0} ||
        (any ? random_.below(ready) == 0 : warp.splits[i].at < warp.splits[best].at)) {
      best = i;
    }
  }
  return best;
}

/// With others that are at the same place.
bool Machine::merge(Warp& warp, std::uint32_t& split) {
  bool merged = false;
  for (std::uint32_t i = 0; i < warp.splits.size();) {
    if (i != split && warp.splits[i].state == Split::State::ready &&
        warp.splits[i].is_beside(warp.splits[split])) {
      warp.splits[split].lanes |= warp.splits[i].lanes;
      if (split == warp.splits.size() - 1) split = i;
      warp.splits[i] = warp.splits.back();
      warp.splits.pop_back();
      merged = true;
    } else {
      ++i;
    }
  }
  return merged;
}

void Machine::step(Warp& warp, std::uint32_t budget) {
  Run& run = *warp.block->run;
  const Op* const ops = run.program->ops.data();
  std::uint64_t* const times = run.executed->data();
  while (budget > 0) {
    std::uint32_t current = choose(warp);
    if (current == ~std::uint32_t{0}) return;
    for (std::uint32_t turn = 0; turn < 64 && budget > 0; ++turn, --budget) {
      if (warp.splits.size() > 1) {
        merge(warp, current);
        bool behind = false;
        for (const Split& s : warp.splits) {
          behind = behind || (s.state == Split::State::ready && s.at < warp.splits[current].at);
        }
        if (behind && random_() % 8 != 0) break;
      }
      Split& s = warp.splits[current];
      const std::uint32_t at = s.at;
      const Op& op = ops[at];
      ++times[at];
      ++steps;
      thread_steps += static_cast<std::uint32_t>(std::popcount(s.lanes));
      if (op.kind == Kind::compute) {
        op.compute(warp.registers, op.operand, s.lanes);
        ++s.at;
        continue;
      }
      switch (op.kind) {
        case Kind::branch:
          branch(warp, current, op);
          continue;
        case Kind::jump:
          s.at = op.target;
          continue;
        case Kind::call:
          if (s.depth == 2) fail(warp, at, "calls are too deep");
          s.back[s.depth++] = at + 1;
          s.at = op.target;
          continue;
        case Kind::ret:
          ret(warp, current);
          break;
        case Kind::barrier:
          barrier(warp, current);
          break;
        case Kind::meet:
        case Kind::vote:
          meet(warp, current, op);
          break;
        case Kind::special:
        case Kind::active:
          special(warp, s, op);
          ++s.at;
          continue;
        case Kind::load:
        case Kind::store:
        case Kind::exchange:
        case Kind::fence:
          access(warp, s, op);
          ++s.at;
          continue;
        case Kind::compute:
          break;
      }
      --budget;
      break;  // the splits have changed
    }
  }
}

// --- Faults --------------------------------------------------------------------------------------

void Machine::fail(const Warp& warp, std::uint32_t at, const std::string& what) const {
  throw Fault(fmt::format("{}\n  by threads {} to {} of block {}\n  at {}", what, warp.first,
                          warp.first + kLanes - 1, warp.block->number,
                          warp.block->run->program->place(at)));
}

void Machine::fail_stuck(const std::vector<std::unique_ptr<Block>>& blocks) const {
  for (const auto& b : blocks) {
    for (const Warp& w : b->warps) {
      for (const Split& s : w.splits) {
        fail(w, s.at,
             s.state == Split::State::at_barrier
                 ? fmt::format("{} of {} threads wait at a barrier, and nobody goes on", b->arrived,
                               b->threads.size())
                 : fmt::format("threads {:#x} of a warp wait for others, which wait elsewhere",
                               s.lanes));
      }
    }
  }
  throw Fault("nobody goes on");
}

}  // namespace tutti::ptx
