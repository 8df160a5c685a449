// The instructions of a warp that access memory: addresses of all spaces, vectors, what of a warp's
// accesses is one piece, and loads that are late.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/ptx/machine.h"

namespace tutti::ptx {
namespace {

constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 60;  // program.cpp adds it

std::uint32_t lane_of(std::uint32_t lanes) {
  return static_cast<std::uint32_t>(std::countr_zero(lanes));
}

}  // namespace

std::uint64_t Machine::address(const Warp& warp, std::uint32_t lane, const Op& op) const {
  std::uint64_t at = warp.registers[op.operand[0]][lane] + static_cast<std::uint64_t>(op.offset);
  const bool shared = op.space == Space::shared ||
                      (op.space == Space::generic && at >= kSharedWindow && at < 2 * kSharedWindow);
  if (!shared) return at;
  if (at >= kSharedWindow) at -= kSharedWindow;
  const Block& block = *warp.block;
  if (at + std::uint64_t{op.bytes} * op.count > block.shared_bytes) {
    fail(warp, static_cast<std::uint32_t>(&op - block.run->program->ops.data()),
         "an address is outside of shared memory");
  }
  return reinterpret_cast<std::uint64_t>(block.shared) + at;
}

void Machine::access(Warp& warp, const Split& split, const Op& op) {
  const auto at = static_cast<std::uint32_t>(&op - warp.block->run->program->ops.data());
  memory.manner = {op.order, op.scope, at};
  if (op.kind == Kind::fence) {
    for (std::uint32_t l = split.lanes; l != 0; l &= l - 1) {
      memory.fence(warp.block->threads[warp.first + lane_of(l)]);
    }
    return;
  }
  if (op.space == Space::param) {
    const auto parameters = warp.block->run->parameters;
    for (std::uint32_t l = split.lanes; l != 0; l &= l - 1) {
      const std::uint32_t lane = lane_of(l);
      std::uint64_t from =
          warp.registers[op.operand[0]][lane] + static_cast<std::uint64_t>(op.offset);
      for (std::uint32_t k = 0; k < op.count; ++k, from += op.bytes) {
        if (op.kind != Kind::load || from + op.bytes > parameters.size() || from % op.bytes != 0) {
          fail(warp, at, "an address is outside of the parameters, or misaligned");
        }
        std::uint64_t value = 0;
        std::memcpy(&value, parameters.data() + from, op.bytes);
        warp.registers.to(op.operand[1 + k])[lane] = value;
      }
    }
    return;
  }
  if (op.kind == Kind::exchange) return exchange(warp, split.lanes, op);
  if (op.order == Order::weak) return access_weakly(warp, split.lanes, op);
  const std::uint32_t rest =
      memory.whole_lines && op.count == 2 ? access_lines(warp, split.lanes, op) : split.lanes;
  if (rest != 0 && op.kind == Kind::load) return postpone(warp, rest, op);
  access_strongly(warp, rest, op);
}

void Machine::access_weakly(Warp& warp, std::uint32_t lanes, const Op& op) {
  const std::uint32_t bytes = std::uint32_t{op.bytes} * op.count;
  for (std::uint32_t l = lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lane_of(l);
    const std::uint64_t at = address(warp, lane, op);
    ThreadView& t = warp.block->threads[warp.first + lane];
    std::byte data[32];
    if (op.kind == Kind::load) {
      memory.read(t, at, bytes, data);
      for (std::uint32_t k = 0; k < op.count; ++k) {
        std::uint64_t value = 0;
        std::memcpy(&value, data + std::size_t{k} * op.bytes, op.bytes);
        warp.registers.to(op.operand[1 + k])[lane] = value;
      }
    } else {
      for (std::uint32_t k = 0; k < op.count; ++k) {
        const std::uint64_t value = warp.registers[op.operand[1 + k]][lane];
        std::memcpy(data + std::size_t{k} * op.bytes, &value, op.bytes);
      }
      memory.write(t, at, bytes, data);
    }
  }
}

void Machine::access_strongly(Warp& warp, std::uint32_t lanes, const Op& op) {
  for (std::uint32_t l = lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lane_of(l);
    std::uint64_t at[4] = {address(warp, lane, op)};
    for (std::uint32_t k = 1; k < op.count; ++k) at[k] = at[0] + 8 * k;
    ThreadView& t = warp.block->threads[warp.first + lane];
    // Either half first.
    const std::uint32_t first = random_() % 2;
    for (std::uint32_t k = 0; k < op.count; ++k) {
      const std::uint32_t which = op.count == 2 ? k ^ first : k;
      memory.store(t, at[which], warp.registers[op.operand[1 + which]][lane]);
    }
  }
}

// --- Late loads ----------------------------------------------------------------------------------

// PTX's model lets a relaxed load read a write that follows from a later store of its own thread
// (load buffering): nothing but dependencies, and what synchronises, orders the two (PTX ISA,
// "Causality order", "No thin air"). So the value of such a load may be decided late: when an
// instruction uses its register, or overwrites it, which are all dependencies; when the thread
// accesses the same word (coherence); and before it acquires, releases, fences, adds, meets at a
// barrier, or ends. Relaxed and plain accesses of other words pass it.

void Machine::postpone(Warp& warp, std::uint32_t lanes, const Op& op) {
  LateLoad late;
  late.op = &op;
  late.lanes = lanes;
  for (std::uint32_t l = lanes; l != 0; l &= l - 1) {
    late.address[lane_of(l)] = address(warp, lane_of(l), op);
  }
  if (op.order == Order::relaxed && memory.weak && random_() % 4 == 0) {
    warp.late.push_back(late);
  } else {
    load(warp, late);
  }
}

void Machine::load(Warp& warp, const LateLoad& late) {
  const Op& op = *late.op;
  memory.manner = {op.order, op.scope,
                   static_cast<std::uint32_t>(&op - warp.block->run->program->ops.data())};
  for (std::uint32_t l = late.lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lane_of(l);
    std::uint64_t at[4] = {};
    std::uint64_t values[4];
    for (std::uint32_t k = 0; k < op.count; ++k) at[k] = late.address[lane] + 8 * k;
    memory.load(warp.block->threads[warp.first + lane], at, op.count, random_() % 2 == 0, values);
    for (std::uint32_t k = 0; k < op.count; ++k) {
      warp.registers.to(op.operand[1 + k])[lane] = values[k];
    }
  }
}

/// Decides what `op`, by these threads, must not overtake; in the order of the program.
void Machine::settle(Warp& warp, const Split& split, const Op& op) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < warp.late.size(); ++i) {
    if (waits_for(warp, split, op, warp.late[i])) {
      load(warp, warp.late[i]);
    } else {
      if (kept != i) warp.late[kept] = warp.late[i];
      ++kept;
    }
  }
  warp.late.resize(kept);
}

bool Machine::waits_for(const Warp& warp, const Split& split, const Op& op,
                        const LateLoad& late) const {
  const std::uint32_t common = split.lanes & late.lanes;
  if (common == 0) return false;
  for (const std::int32_t slot : op.operand) {
    for (std::uint32_t k = 0; k < late.op->count; ++k) {
      if (slot == late.op->operand[1 + k]) return true;
    }
  }
  const bool accesses = op.kind == Kind::load || op.kind == Kind::store;
  if (!accesses) {
    return op.kind == Kind::barrier || op.kind == Kind::ret || op.kind == Kind::fence ||
           op.kind == Kind::exchange;
  }
  if (op.order != Order::weak && op.order != Order::relaxed) return true;
  if (op.space == Space::param) return false;
  for (std::uint32_t l = common; l != 0; l &= l - 1) {
    const std::uint64_t at = address(warp, lane_of(l), op);
    const std::uint64_t there = late.address[lane_of(l)];
    if (at < there + 8 * late.op->count && there < at + std::uint64_t{op.bytes} * op.count) {
      return true;
    }
  }
  return false;
}

/// Eight threads that access a 128-byte line together: one piece, as LL128 asks of the hardware
/// beyond PTX's model. Returns the lanes that are left.
std::uint32_t Machine::access_lines(Warp& warp, std::uint32_t lanes, const Op& op) {
  for (std::uint32_t first = 0; first < kLanes; first += 8) {
    const std::uint32_t group = 0xFFu << first;
    if ((lanes & group) != group) continue;
    std::uint64_t at[16];
    std::uint64_t values[16];
    ThreadView* threads[8];
    bool line = true;
    for (std::uint32_t i = 0; i < 8; ++i) {
      at[2 * i] = address(warp, first + i, op);
      at[2 * i + 1] = at[2 * i] + 8;
      threads[i] = &warp.block->threads[warp.first + first + i];
      values[2 * i] = warp.registers[op.operand[1]][first + i];
      values[2 * i + 1] = warp.registers[op.operand[2]][first + i];
      line = line && at[2 * i] == at[0] + 16 * i;
    }
    if (!line || at[0] % 128 != 0) continue;
    if (op.kind == Kind::load) {
      memory.load_line(threads, at, values);
      for (std::uint32_t i = 0; i < 8; ++i) {
        warp.registers.to(op.operand[1])[first + i] = values[2 * i];
        warp.registers.to(op.operand[2])[first + i] = values[2 * i + 1];
      }
    } else {
      memory.store_line(threads, at, values);
    }
    lanes &= ~group;
  }
  return lanes;
}

namespace {

std::uint64_t exchanged(Exchange how, std::uint64_t before, std::uint64_t a, std::uint64_t b) {
  const auto sign = [](std::uint64_t x) { return static_cast<std::int64_t>(x); };
  switch (how) {
    case Exchange::add:
      return before + a;
    case Exchange::swap_if:
      return before == a ? b : before;
    case Exchange::swap:
      return a;
    case Exchange::min:
      return std::min(before, a);
    case Exchange::max:
      return std::max(before, a);
    case Exchange::smin:
      return sign(before) < sign(a) ? before : a;
    case Exchange::smax:
      return sign(before) < sign(a) ? a : before;
    case Exchange::bit_and:
      return before & a;
    case Exchange::bit_or:
      return before | a;
    case Exchange::bit_xor:
      return before ^ a;
  }
  return before;
}

}  // namespace

void Machine::exchange(Warp& warp, std::uint32_t lanes, const Op& op) {
  for (std::uint32_t l = lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lane_of(l);
    const std::uint64_t a = warp.registers[op.operand[2]][lane];
    const std::uint64_t b = warp.registers[op.operand[3]][lane];
    const std::uint64_t before = memory.exchange(
        warp.block->threads[warp.first + lane], address(warp, lane, op),
        [&](std::uint64_t now) { return exchanged(static_cast<Exchange>(op.which), now, a, b); });
    if (op.returns) warp.registers.to(op.operand[1])[lane] = before;
  }
}

}  // namespace tutti::ptx
