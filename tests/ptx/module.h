// PTX as nvcc writes it, read into functions and instructions. The reader knows the grammar;
// program.h knows what the instructions mean. A line that it cannot read is an error with the line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::ptx {

struct Operand {
  enum class Kind { reg, number, symbol, special, vector, memory };
  Kind kind = Kind::number;
  int reg = -1;                // reg; memory with a register: its address
  std::uint64_t number = 0;    // number: its bits; symbol, memory: bytes after the address
  std::string name;            // symbol, special; memory with a symbol
  std::vector<Operand> parts;  // vector
};

struct Instruction {
  std::string op;  // with its suffixes: "ld.shared.u64"
  int guard = -1;  // a predicate
  bool negated = false;
  std::vector<Operand> operands;
  std::uint32_t line = 0;    // of the PTX
  std::uint32_t source = 0;  // of Module::places
};

/// Memory that a function declares.
struct Variable {
  std::string name;
  std::uint32_t bytes = 0, align = 1;
};

struct Function {
  std::string name;
  bool is_kernel = false;
  std::vector<Variable> parameters, results, shared;
  std::uint32_t threads = 0;  // .maxntid
  std::vector<Instruction> instructions;
  std::map<std::string, std::uint32_t> labels;  // of instructions
  std::vector<std::string> registers;           // their names
  std::map<std::string, int> numbers;           // of registers, by name
};

struct Module {
  std::string target;                   // sm_90
  std::vector<Function> functions;      // those with a body
  std::vector<std::string> places{""};  // of the source: "file:line"

  const Function* find(std::string_view name) const;
  const Function& kernel(std::string_view part) const;  // the one whose name has this part
};

/// Throws std::runtime_error with the line.
Module read_module(std::string_view text);

}  // namespace tutti::ptx
