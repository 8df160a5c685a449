// The instructions of a warp that access memory: addresses of all spaces, vectors, and what of a
// warp's accesses is one piece.
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
    if (op.kind == Kind::load) {
      std::uint64_t values[4];
      memory.load(t, at, op.count, random_() % 2 == 0, values);
      for (std::uint32_t k = 0; k < op.count; ++k) {
        warp.registers.to(op.operand[1 + k])[lane] = values[k];
      }
    } else {
      // Either half first.
      const std::uint32_t first = random_() % 2;
      for (std::uint32_t k = 0; k < op.count; ++k) {
        const std::uint32_t which = op.count == 2 ? k ^ first : k;
        memory.store(t, at[which], warp.registers[op.operand[1 + which]][lane]);
      }
    }
  }
}

/// Eight threads that access a 128-byte line together: one piece, which is what LL128 asks of the
/// hardware beyond PTX's model. The lanes that are left.
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

void Machine::exchange(Warp& warp, std::uint32_t lanes, const Op& op) {
  for (std::uint32_t l = lanes; l != 0; l &= l - 1) {
    const std::uint32_t lane = lane_of(l);
    const std::uint64_t a = warp.registers[op.operand[2]][lane];
    const std::uint64_t b = warp.registers[op.operand[3]][lane];
    warp.registers.to(op.operand[1])[lane] = memory.exchange(
        warp.block->threads[warp.first + lane], address(warp, lane, op), [&](std::uint64_t before) {
          switch (static_cast<Exchange>(op.which)) {
            case Exchange::add:
              return before + a;
            case Exchange::swap_if:
              return before == a ? b : before;
            case Exchange::swap:
              break;
          }
          return a;
        });
  }
}

}  // namespace tutti::ptx
