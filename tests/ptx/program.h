// A kernel decoded for execution: operands are slots of a warp's registers, labels are numbers of
// instructions, and what a kernel calls stands behind it. An instruction that is not known, and a
// register that may be read before it is written, is an error when the program is made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ptx/module.h"
#include "tests/ptx/operations.h"

namespace tutti::ptx {

enum class Kind : std::uint8_t {
  compute,
  branch,  // where operand[0] holds, or does not (negated)
  jump,
  call,
  ret,
  barrier,  // bar.sync, bar.red
  meet,     // bar.warp.sync
  vote,
  shuffle,
  active,   // activemask
  special,  // mov of a special register
  load,
  store,
  exchange,  // atom, red
  fence,
};

enum class Space : std::uint8_t { generic, global, shared, param };
enum class Order : std::uint8_t { weak, relaxed, acquire, release, both, sequential };
enum class Scope : std::uint8_t { none, block, gpu, system };
enum class Special : std::uint8_t { thread, block, blocks, threads, clock };
enum class Exchange : std::uint8_t {
  add,
  swap_if,
  swap,
  min,
  max,
  smin,  // of signed integers
  smax,
  bit_and,
  bit_or,
  bit_xor,
};
enum class Vote : std::uint8_t { any, all, uniform, ballot };
enum class End : std::uint8_t { function, thread, fault };
enum class Reduce : std::uint8_t { none, all, any };
enum class Shuffle : std::uint8_t { up, down, butterfly, index };

struct Op {
  Compute compute = nullptr;
  Kind kind = Kind::compute;
  Space space = Space::generic;
  Order order = Order::weak;
  Scope scope = Scope::none;
  std::uint8_t which = 0;  // of the enums above, as the kind has it
  std::uint8_t bytes = 0;  // of an element
  std::uint8_t count = 1;  // elements
  bool negated = false;
  bool returns = true;  // exchange: the value before; shuffle: whether the lane was in range
  std::int32_t operand[6] = {};  // slots; memory: the address, then the elements
  std::int64_t offset = 0;       // of an address
  std::uint32_t target = 0;
  std::uint32_t line = 0;
  std::uint32_t source = 0;
};

struct Program {
  Module module;
  std::vector<Op> ops;
  std::vector<std::uint64_t> constants;  // 32 times each
  std::uint32_t slots = 0;               // of registers
  std::uint32_t threads = 0;             // of a block
  std::uint32_t shared_bytes = 0;
  std::uint32_t parameter_bytes = 0;
  std::vector<std::string> texts;  // of instructions, for messages
  bool has_fences = false;

  /// "PTX line 12 (memory.h:34): st.release.sys.u64"
  std::string place(std::uint32_t op) const;
};

/// `kernel`: a part of the kernel's name, where there are several.
std::shared_ptr<const Program> make_program(std::string_view text, std::string_view kernel = "");

}  // namespace tutti::ptx
