#include "tests/ptx/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace tutti::ptx {

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
      if (!warp.late.empty()) settle(warp, s, op);
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
        case Kind::shuffle:
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

}  // namespace tutti::ptx
