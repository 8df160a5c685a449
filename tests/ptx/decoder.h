// Makes a Program of a Module: registers and places here, the instructions in instructions.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/ptx/program.h"
#include "tests/ptx/registers.h"

namespace tutti::ptx {

/// One function after the other.
class Decoder {
 public:
  Decoder(Program& program, std::string_view kernel) : program_(program) {
    order_.push_back(&program.module.kernel(kernel));
    for (std::size_t i = 0; i < order_.size(); ++i) {
      for (const Instruction& in : order_[i]->instructions) {
        if (!in.op.starts_with("call")) continue;
        const Function* const callee = callee_of(in);
        if (callee->is_kernel) fail(in, "calls a kernel");
        if (std::find(order_.begin(), order_.end(), callee) == order_.end())
          order_.push_back(callee);
      }
    }
  }

  void decode() {
    std::map<const Function*, std::uint32_t> first;
    // A call is several operations: their number comes first, then their places.
    for (const Function* f : order_) {
      first[f] = static_cast<std::uint32_t>(next_);
      for (const Instruction& in : f->instructions) next_ += size_of(in);
    }
    const Function& kernel = *order_[0];
    program_.threads = kernel.threads;
    for (const Variable& v : kernel.parameters) {
      place(program_.parameter_bytes, v);
    }
    for (const Variable& v : kernel.shared) {
      if (is_used(v.name)) place(program_.shared_bytes, v);
    }
    for (const Function* f : order_) slots(*f);
    for (const Function* f : order_) {
      function_ = f;
      starts_.clear();
      std::uint32_t at = first[f];
      for (const Instruction& in : f->instructions) {
        starts_.push_back(at);
        at += size_of(in);
      }
      starts_.push_back(at);
      for (const Instruction& in : f->instructions) add(in, first);
      // Nothing runs off the end.
      const Instruction* const last = f->instructions.empty() ? nullptr : &f->instructions.back();
      if (last == nullptr || (last->op != "ret" && last->op != "exit" && last->op != "trap" &&
                              !(last->op.starts_with("bra") && last->guard < 0))) {
        throw std::runtime_error(fmt::format("{} ends with neither ret nor bra", f->name));
      }
    }
  }

 private:
  [[noreturn]] static void fail(const Instruction& in, const std::string& what) {
    throw std::runtime_error(fmt::format("PTX line {}: {}: {}", in.line, in.op, what));
  }

  const Function* callee_of(const Instruction& in) const {
    for (const Operand& o : in.operands) {
      if (o.kind != Operand::Kind::symbol) continue;
      if (const Function* const f = program_.module.find(o.name)) return f;
      fail(in, fmt::format("calls {}, which is not here", o.name));
    }
    fail(in, "calls by address");
  }

  std::uint32_t size_of(const Instruction& in) const {
    if (in.op == "nanosleep.u32") return 1;
    if (in.op.starts_with("call")) {
      const Function& f = *callee_of(in);
      return static_cast<std::uint32_t>(f.parameters.size() + 1 + f.results.size());
    }
    const bool unpacks = !in.operands.empty() && in.op.starts_with("mov") &&
                         in.operands[0].kind == Operand::Kind::vector;
    return unpacks ? static_cast<std::uint32_t>(in.operands[0].parts.size()) : 1;
  }

  static bool names(const Operand& o, const std::string& symbol) {
    return o.name == symbol || std::any_of(o.parts.begin(), o.parts.end(),
                                           [&](const Operand& p) { return names(p, symbol); });
  }
  bool is_used(const std::string& symbol) const {
    for (const Function* f : order_) {
      for (const Instruction& in : f->instructions) {
        for (const Operand& o : in.operands) {
          if (names(o, symbol)) return true;
        }
      }
    }
    return false;
  }

  void place(std::uint32_t& end, const Variable& v) {
    end = (end + v.align - 1) / v.align * v.align;
    symbols_[v.name] = end;
    end += v.bytes;
  }

  // --- Registers ---------------------------------------------------------------------------------

  static void collect(const Operand& o, std::vector<int>& to) {
    if (o.reg >= 0) to.push_back(o.reg);
    for (const Operand& p : o.parts) collect(p, to);
  }

  static bool writes_first(const std::string& op) {
    for (const char* none : {"st.", "bra", "bar.sync", "bar.warp", "fence", "membar", "ret", "call",
                             "red.", "nanosleep", "exit", "trap", "barrier."}) {
      if (op.starts_with(none)) return false;
    }
    return true;
  }

  void slots(const Function& f) {
    std::vector<Flow> flow(f.instructions.size());
    for (std::size_t i = 0; i < flow.size(); ++i) {
      const Instruction& in = f.instructions[i];
      const bool passes = in.op.starts_with("st.param");  // to a register, in truth
      for (std::size_t k = 0; k < in.operands.size(); ++k) {
        const bool call_result =
            in.op.starts_with("call") && k == 0 && !callee_of(in)->results.empty();
        const bool written = k == 0 && (writes_first(in.op) || passes || call_result);
        collect(in.operands[k], written ? flow[i].writes : flow[i].reads);
      }
      if (in.guard >= 0) flow[i].reads.push_back(in.guard);
      if (in.op.starts_with("bra")) {
        flow[i].next.push_back(label(f, in));
        if (in.guard < 0) continue;
      }
      if (in.op == "exit" || in.op == "trap") continue;
      if (in.op == "ret") {
        for (const Variable& v : f.results) {
          if (!f.is_kernel) flow[i].reads.push_back(f.numbers.at(v.name));
        }
        continue;
      }
      if (i + 1 < flow.size()) flow[i].next.push_back(static_cast<std::uint32_t>(i + 1));
    }
    std::vector<int> given;
    if (!f.is_kernel) {
      for (const Variable& v : f.parameters) given.push_back(f.numbers.at(v.name));
    }
    Slots s = assign_slots(flow, f.registers.size(), given);
    if (!s.unwritten.empty()) {
      throw std::runtime_error(fmt::format("{}: {} may be read before it is written", f.name,
                                           f.registers[static_cast<std::size_t>(s.unwritten[0])]));
    }
    for (std::int32_t& slot : s.slot) slot += static_cast<std::int32_t>(program_.slots);
    program_.slots += s.count;
    slots_[&f] = std::move(s.slot);
  }

  static std::uint32_t label(const Function& f, const Instruction& in) {
    if (in.operands.size() != 1 || in.operands[0].kind != Operand::Kind::symbol) {
      fail(in, "branches to no label");
    }
    const auto found = f.labels.find(in.operands[0].name);
    if (found == f.labels.end()) fail(in, "the label is missing");
    return found->second;
  }

  std::int32_t slot(const Function& f, int reg) const {
    return slots_.at(&f)[static_cast<std::size_t>(reg)];
  }
  std::int32_t constant(std::uint64_t value) {
    const auto [at, is_new] =
        constants_.emplace(value, static_cast<std::int32_t>(constants_.size()));
    if (is_new) program_.constants.insert(program_.constants.end(), kLanes, value);
    return ~at->second;
  }
  std::int32_t source(const Instruction& in, const Operand& o) {
    switch (o.kind) {
      case Operand::Kind::reg:
        return slot(*function_, o.reg);
      case Operand::Kind::number:
        return constant(o.number);
      case Operand::Kind::symbol: {
        const auto found = symbols_.find(o.name);
        if (found == symbols_.end()) fail(in, fmt::format("{} is unknown", o.name));
        return constant(found->second);
      }
      default:
        fail(in, "an operand is of no use here");
    }
  }
  std::int32_t destination(const Instruction& in, const Operand& o) const {
    if (o.kind != Operand::Kind::reg) fail(in, "the destination is no register");
    return slot(*function_, o.reg);
  }

  // --- Instructions ------------------------------------------------------------------------------

  Op& push(const Instruction& in, Kind kind) {
    Op op;
    op.kind = kind;
    op.line = in.line;
    op.source = in.source;
    program_.ops.push_back(op);
    program_.texts.push_back(in.op);
    return program_.ops.back();
  }

  void compute(const Instruction& in, const std::string& name, std::int32_t to,
               std::initializer_list<std::int32_t> from) {
    const Operation* const found = find_operation(name);
    if (found == nullptr || found->sources != from.size()) fail(in, "is not known");
    Op& op = push(in, Kind::compute);
    op.compute = found->compute;
    op.operand[0] = to;
    std::copy(from.begin(), from.end(), op.operand + 1);
  }

  void add(const Instruction& in, const std::map<const Function*, std::uint32_t>& first);
  void add_call(const Instruction& in, const std::map<const Function*, std::uint32_t>& first);
  void add_move(const Instruction& in, const std::vector<std::string>& parts);
  void add_access(const Instruction& in, const std::vector<std::string>& parts);
  void add_fence(const Instruction& in, const std::vector<std::string>& parts);
  void add_meeting(const Instruction& in, const std::vector<std::string>& parts);
  void add_shuffle(const Instruction& in, const std::vector<std::string>& parts);
  void push_like(const Instruction& in, const Op& proto);

  Program& program_;
  std::vector<const Function*> order_;
  std::size_t next_ = 0;
  const Function* function_ = nullptr;
  std::vector<std::uint32_t> starts_;
  std::map<const Function*, std::vector<std::int32_t>> slots_;
  std::map<std::string, std::uint64_t> symbols_;
  std::map<std::uint64_t, std::int32_t> constants_;
};

}  // namespace tutti::ptx
