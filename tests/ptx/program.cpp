#include "tests/ptx/program.h"

#include <fmt/format.h>

#include "tests/ptx/decoder.h"

namespace tutti::ptx {

std::string Program::place(std::uint32_t op) const {
  if (op >= ops.size()) return "an instruction of another kernel";
  return fmt::format("PTX line {} ({}): {}", ops[op].line, module.places[ops[op].source],
                     texts[op]);
}

std::shared_ptr<const Program> make_program(Module module) {
  auto program = std::make_shared<Program>();
  program->module = std::move(module);
  Decoder(*program).decode();
  return program;
}

std::shared_ptr<const Program> make_program(std::string_view text) {
  return make_program(read_module(text));
}

}  // namespace tutti::ptx
