// Where the threads of a warp part and meet: branches, returns, barriers, votes.
#include <algorithm>
#include <bit>

#include "tests/ptx/machine.h"

namespace tutti::ptx {
namespace {

constexpr std::uint64_t kNanosecondsPerStep = 16;

std::uint32_t lowest(std::uint32_t lanes) {
  return static_cast<std::uint32_t>(std::countr_zero(lanes));
}

}  // namespace

void Machine::branch(Warp& warp, std::uint32_t split, const Op& op) {
  Split& s = warp.splits[split];
  const std::uint64_t* const p = warp.registers[op.operand[0]];
  std::uint32_t taken = 0;
  for (std::uint32_t l = s.lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lowest(l);
    if ((p[lane] != 0) != op.negated) taken |= 1u << lane;
  }
  if (taken == s.lanes) {
    s.at = op.target;
    return;
  }
  if (taken != 0) {
    Split away = s;
    away.lanes = taken;
    away.at = op.target;
    s.lanes &= ~taken;
    ++s.at;
    warp.splits.push_back(away);
    return;
  }
  ++s.at;
}

void Machine::ret(Warp& warp, std::uint32_t split) {
  Split& s = warp.splits[split];
  const auto how = static_cast<End>(warp.block->run->program->ops[s.at].which);
  if (how == End::fault) fail(warp, s.at, "a trap");
  if (how == End::function && s.depth > 0) {
    s.at = s.back[--s.depth];
    s.back[s.depth] = 0;
    return;
  }
  Block& block = *warp.block;
  warp.exited |= s.lanes;
  block.exited += static_cast<std::uint32_t>(std::popcount(s.lanes));
  const std::uint32_t at = s.at;
  warp.splits[split] = warp.splits.back();
  warp.splits.pop_back();
  if (block.exited == block.threads.size()) {
    --block.run->unfinished;
  } else if (block.arrived + block.exited == block.threads.size()) {
    fail(warp, at, "threads end while others of the block wait at a barrier");
  }
}

void Machine::barrier(Warp& warp, std::uint32_t split) {
  Block& block = *warp.block;
  const std::uint32_t at = warp.splits[split].at;
  warp.splits[split].state = Split::State::at_barrier;
  block.arrived += static_cast<std::uint32_t>(std::popcount(warp.splits[split].lanes));
  if (block.arrived + block.exited < block.threads.size()) return;
  if (block.exited > 0) fail(warp, at, "waits for threads that have ended");
  const Op& op = block.run->program->ops[at];
  bool all = true;
  bool any = false;
  for (const Warp& w : block.warps) {
    for (const Split& s : w.splits) {
      if (s.at != at) {
        fail(
            warp, at,
            "threads of a block wait at different barriers\n  the other: " + program_->place(s.at));
      }
      if (static_cast<Reduce>(op.which) == Reduce::none) continue;
      for (std::uint32_t l = s.lanes; l != 0; l &= l - 1) {
        const bool said = w.registers[op.operand[1]][lowest(l)] != 0;
        all = all && said;
        any = any || said;
      }
    }
  }
  Memory::meet(block.view, block.threads);
  block.arrived = 0;
  for (Warp& w : block.warps) {
    Split together = w.splits[0];
    for (const Split& s : w.splits) together.lanes |= s.lanes;
    together.state = Split::State::ready;
    ++together.at;
    w.splits.assign(1, together);
    list(w);
    if (static_cast<Reduce>(op.which) == Reduce::none) continue;
    const bool said = static_cast<Reduce>(op.which) == Reduce::all ? all : any;
    for (std::uint32_t l = together.lanes; l != 0; l &= l - 1) {
      w.registers.to(op.operand[0])[lowest(l)] = said ? 1 : 0;
    }
  }
}

void Machine::meet(Warp& warp, std::uint32_t split, const Op& op) {
  Split& mine = warp.splits[split];
  const auto mask = static_cast<std::uint32_t>(warp.registers[op.operand[2]][lowest(mine.lanes)]);
  if ((mask & warp.exited) != 0) fail(warp, mine.at, "waits for threads that have ended");
  if ((mine.lanes & ~mask) != 0) fail(warp, mine.at, "a thread is not among those that it names");
  mine.state = Split::State::at_meeting;
  std::uint32_t there = 0;
  for (const Split& s : warp.splits) {
    if (s.state == Split::State::at_meeting && s.is_beside(mine)) there |= s.lanes;
  }
  if (there != mask) return;
  Split together = mine;
  together.lanes = there;
  together.state = Split::State::ready;
  std::erase_if(warp.splits, [&](const Split& s) {
    return s.state == Split::State::at_meeting && s.is_beside(together);
  });
  ++together.at;
  warp.splits.push_back(together);
  if (op.kind == Kind::shuffle) return shuffle(warp, there, op);
  if (op.kind != Kind::vote) return;
  std::uint32_t said = 0;
  for (std::uint32_t l = there; l != 0; l &= l - 1) {
    if (warp.registers[op.operand[1]][lowest(l)] != 0) said |= 1u << lowest(l);
  }
  const auto how = static_cast<Vote>(op.which);
  const std::uint64_t result = how == Vote::any       ? said != 0
                               : how == Vote::all     ? said == there
                               : how == Vote::uniform ? said == there || said == 0
                                                      : said;
  for (std::uint32_t l = there; l != 0; l &= l - 1)
    warp.registers.to(op.operand[0])[lowest(l)] = result;
}

/// As in the pseudocode of PTX ISA, "shfl.sync". What a lane reads of one that is not there is
/// undefined there, and a fault here.
void Machine::shuffle(Warp& warp, std::uint32_t lanes, const Op& op) const {
  std::uint64_t before[kLanes];
  std::copy_n(warp.registers[op.operand[1]], kLanes, before);
  std::uint64_t picks[kLanes];
  std::uint64_t clamps[kLanes];
  std::copy_n(warp.registers[op.operand[3]], kLanes, picks);
  std::copy_n(warp.registers[op.operand[4]], kLanes, clamps);
  for (std::uint32_t l = lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lowest(l);
    const auto b = static_cast<std::uint32_t>(picks[lane]) & 31;
    const auto clamp = static_cast<std::uint32_t>(clamps[lane]) & 31;
    const auto segment = static_cast<std::uint32_t>(clamps[lane]) >> 8 & 31;
    const std::uint32_t most = (lane & segment) | (clamp & ~segment);
    std::uint32_t from = lane;
    bool inside = false;
    switch (static_cast<Shuffle>(op.which)) {
      case Shuffle::up:
        inside = static_cast<int>(lane - b) >= static_cast<int>(most);
        from = lane - b;
        break;
      case Shuffle::down:
        from = lane + b;
        inside = from <= most;
        break;
      case Shuffle::butterfly:
        from = lane ^ b;
        inside = from <= most;
        break;
      case Shuffle::index:
        from = (lane & segment) | (b & ~segment);
        inside = from <= most;
        break;
    }
    if (!inside) from = lane;
    if ((lanes >> from & 1) == 0) {
      fail(warp, static_cast<std::uint32_t>(&op - warp.block->run->program->ops.data()),
           "a thread reads a register of one that is not there");
    }
    warp.registers.to(op.operand[0])[lane] = before[from] & 0xFFFFFFFF;
    if (op.returns) warp.registers.to(op.operand[5])[lane] = inside ? 1 : 0;
  }
}

void Machine::special(Warp& warp, const Split& split, const Op& op) const {
  std::uint64_t* const to = warp.registers.to(op.operand[0]);
  for (std::uint32_t l = split.lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lowest(l);
    if (op.kind == Kind::active) {
      to[lane] = split.lanes;
      continue;
    }
    switch (static_cast<Special>(op.which)) {
      case Special::thread:
        to[lane] = warp.first + lane;
        break;
      case Special::block:
        to[lane] = warp.block->number;
        break;
      case Special::blocks:
        to[lane] = warp.block->run->blocks;
        break;
      case Special::threads:
        to[lane] = warp.block->threads.size();
        break;
      case Special::clock:
        to[lane] = steps * kNanosecondsPerStep;
        break;
    }
  }
}

}  // namespace tutti::ptx
