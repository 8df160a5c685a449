#include "tests/ptx/program.h"

#include <fmt/format.h>

#include "tests/ptx/decoder.h"

namespace tutti::ptx {

std::string Program::place(std::uint32_t op) const {
  if (op >= ops.size()) return "an instruction of another kernel";
  return fmt::format("PTX line {} ({}): {}", ops[op].line, module.places[ops[op].source],
                     texts[op]);
}

std::shared_ptr<const Program> make_program(std::string_view text, std::string_view kernel) {
  auto program = std::make_shared<Program>();
  program->module = read_module(text);
  Decoder(*program, kernel).decode();
  return program;
}

}  // namespace tutti::ptx
