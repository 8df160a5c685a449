#include "tests/ptx/mutations.h"

#include <sstream>

#include "tests/ptx/module.h"

namespace tutti::ptx {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace

std::vector<Mutation> mutations_of(const std::string& text) {
  std::vector<Mutation> all;
  const Module module = read_module(text);
  for (const Function& f : module.functions) {
    for (const Instruction& in : f.instructions) {
      const auto replace = [&](const char* from, const char* to) {
        if (in.op.find(from) == std::string::npos) return;
        all.push_back({in.line, in.op, replaced(in.op, from, to), module.places[in.source]});
      };
      if (in.op.starts_with("ld.") || in.op.starts_with("st.") || in.op.starts_with("atom.")) {
        for (const char* order : {".release", ".acquire", ".acq_rel"}) replace(order, ".relaxed");
        for (const char* scope : {".sys", ".gpu"}) replace(scope, ".cta");
        if (!in.op.starts_with("atom.")) replace(".relaxed.sys", "");
      }
      if (in.op.starts_with("bar.red")) replace("bar.red.and.pred", "mov.pred");
      if (in.op == "bar.sync" || in.op == "bar.warp.sync") {
        all.push_back({in.line, in.op, "", module.places[in.source]});
      }
    }
  }
  return all;
}

std::string mutated(const std::string& text, const Mutation& m) {
  std::istringstream lines(text);
  std::string result;
  std::string line;
  for (std::uint32_t n = 1; std::getline(lines, line); ++n) {
    if (n == m.line && m.to.empty()) {
      line.clear();
    } else if (n == m.line) {
      line = replaced(line, m.from, m.to);
      // Of `d, barrier, s` what is moved.
      if (m.to == "mov.pred") {
        const std::size_t comma = line.find(',');
        line.erase(comma, line.find(',', comma + 1) - comma);
      }
    }
    result += line + "\n";
  }
  return result;
}

}  // namespace tutti::ptx
