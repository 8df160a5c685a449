#include "tests/ptx/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>

namespace tutti::ptx {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Module read() {
    for (;;) {
      skip_space();
      if (at_ == text_.size()) break;
      statement();
    }
    return std::move(module_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("PTX line {}: {}", line_, what));
  }

  // --- Characters --------------------------------------------------------------------------------

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void next() {
    if (peek() == '\n') ++line_;
    ++at_;
  }
  void skip_space() {
    while (at_ < text_.size()) {
      if (text_.substr(at_, 2) == "//") {
        while (at_ < text_.size() && peek() != '\n') next();
      } else if (std::isspace(static_cast<unsigned char>(peek())) != 0) {
        next();
      } else {
        break;
      }
    }
  }
  bool take(char c) {
    skip_space();
    if (peek() != c) return false;
    next();
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("expected '{}' before '{}'", c, text_.substr(at_, 20)));
  }
  std::string word() {
    skip_space();
    const std::size_t begin = at_;
    while (is_word(peek())) next();
    if (begin == at_) fail(fmt::format("expected a word before '{}'", text_.substr(at_, 20)));
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string rest_of_line() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && peek() != '\n') next();
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::uint64_t number() {
    const std::string digits = word();
    std::uint64_t value = 0;
    const bool hex = digits.starts_with("0x");
    const auto [end, error] = std::from_chars(digits.data() + (hex ? 2 : 0),
                                              digits.data() + digits.size(), value, hex ? 16 : 10);
    if (error != std::errc{} || (*end != '\0' && std::string_view(end) != "U")) {
      fail(fmt::format("'{}' is no number", digits));
    }
    return value;
  }

  // --- Statements --------------------------------------------------------------------------------

  void statement() {
    if (take('{')) {
      scopes_.emplace_back();
      return;
    }
    if (take('}')) {
      if (scopes_.empty()) fail("a '}' too many");
      scopes_.pop_back();
      if (scopes_.empty()) function_ = -1;
      return;
    }
    if (peek() == '@') return instruction("");
    const std::string first = word();
    if (first[0] == '.') return directive(first);
    if (take(':')) {
      function().labels[first] = static_cast<std::uint32_t>(function().instructions.size());
      return;
    }
    instruction(first);
  }

  Function& function() {
    if (function_ < 0) fail("an instruction outside of a function");
    return module_.functions[static_cast<std::size_t>(function_)];
  }

  void directive(const std::string& name) {
    if (name == ".version" || name == ".address_size") {
      rest_of_line();
    } else if (name == ".target") {
      module_.target = word();
    } else if (name == ".file") {
      const std::uint64_t index = number();
      const std::string path = rest_of_line();
      files_[index] = path;
    } else if (name == ".loc") {
      const std::uint64_t file = number();
      const std::uint64_t line = number();
      rest_of_line();
      if (line != 0) place_ = {file, line};
      current_ = module_.places.size();
      waiting_.emplace_back(place_);
      module_.places.emplace_back();
    } else if (name == ".pragma") {
      while (peek() != ';') next();
      next();
    } else if (name == ".section") {
      while (peek() != '}') next();
      next();
    } else if (name == ".visible" || name == ".weak") {
      return;
    } else if (name == ".func" || name == ".entry") {
      header(name == ".entry");
    } else if (name == ".reg") {
      registers();
    } else if (name == ".param" || name == ".shared") {
      const Variable v = variable();
      expect(';');
      if (name == ".shared") {
        // That of the kernel may stand before it.
        (function_ < 0 ? shared_ : function().shared).push_back(v);
      } else {
        declare(v.name);  // a parameter of a call: a register, as far as it is one value
      }
    } else {
      fail(fmt::format("the directive {} is unknown", name));
    }
  }

  void header(bool kernel) {
    Function f;
    f.is_kernel = kernel;
    skip_space();
    if (take('(')) f.results = parameters();
    f.name = word();
    if (take('(')) f.parameters = parameters();
    for (;;) {
      skip_space();
      if (peek() == ';') {
        next();
        return;  // without a body, which comes later
      }
      if (peek() == '{') break;
      const std::string property = word();
      const auto value = static_cast<std::uint32_t>(number());
      while (take(',')) number();
      if (property == ".maxntid") {
        f.threads = value;
      } else if (property != ".minnctapersm") {
        fail(fmt::format("the property {} is unknown", property));
      }
    }
    next();
    module_.functions.push_back(std::move(f));
    function_ = static_cast<int>(module_.functions.size()) - 1;
    scopes_.emplace_back();
    if (kernel) {
      function().shared = shared_;  // what others use is left out when it is decoded
      return;
    }
    for (const Variable& v : function().parameters) declare(v.name);
    for (const Variable& v : function().results) declare(v.name);
  }

  std::vector<Variable> parameters() {
    std::vector<Variable> all;
    if (take(')')) return all;
    do {
      if (const std::string space = word(); space != ".param") fail("expected .param");
      all.push_back(variable());
    } while (take(','));
    expect(')');
    return all;
  }

  Variable variable() {
    Variable v;
    std::string type = word();
    if (type == ".align") {
      v.align = static_cast<std::uint32_t>(number());
      type = word();
    }
    v.bytes = width(type);
    if (v.align == 1) v.align = v.bytes;
    v.name = word();
    if (take('[')) {
      v.bytes *= static_cast<std::uint32_t>(number());
      expect(']');
    }
    return v;
  }

  std::uint32_t width(std::string_view type) const {
    if (type == ".pred") return 1;
    const std::string_view bits = type.substr(std::min<std::size_t>(type.size(), 2));
    if (bits == "8") return 1;
    if (bits == "16") return 2;
    if (bits == "32") return 4;
    if (bits == "64") return 8;
    fail(fmt::format("the type {} is unknown", type));
  }

  void registers() {
    width(word());
    do {
      const std::string name = word();
      if (!take('<')) {
        declare(name);
        continue;
      }
      const std::uint64_t count = number();
      expect('>');
      for (std::uint64_t i = 0; i < count; ++i) declare(fmt::format("{}{}", name, i));
    } while (take(','));
    expect(';');
  }

  int declare(const std::string& name) {
    Function& f = function();
    const int n = static_cast<int>(f.registers.size());
    // A name of an inner scope hides one outside, and another scope can have it again.
    f.registers.push_back(name);
    if (scopes_.size() == 1) f.numbers[name] = n;
    scopes_.back()[name] = n;
    return n;
  }
  int lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return found->second;
    }
    return -1;
  }

  // --- Instructions ------------------------------------------------------------------------------

  void instruction(std::string op) {
    Instruction i;
    i.line = line_;
    i.source = static_cast<std::uint32_t>(current_);
    if (op.empty()) {
      expect('@');
      i.negated = take('!');
      const std::string guard = word();
      i.guard = lookup(guard);
      if (i.guard < 0) fail(fmt::format("the register {} is not declared", guard));
      op = word();
    }
    i.op = std::move(op);
    skip_space();
    while (peek() != ';') {
      i.operands.push_back(operand());
      if (!take(',')) break;
    }
    expect(';');
    function().instructions.push_back(std::move(i));
  }

  /// `d|p`, two results, is a vector.
  Operand operand() {
    Operand o = single();
    if (o.kind != Operand::Kind::reg || !take('|')) return o;
    Operand both;
    both.kind = Operand::Kind::vector;
    both.parts = {o, single()};
    return both;
  }

  Operand single() {
    Operand o;
    skip_space();
    const char c = peek();
    if (c == '{' || c == '(') {
      next();
      o.kind = Operand::Kind::vector;
      const char end = c == '{' ? '}' : ')';
      if (take(end)) return o;
      do o.parts.push_back(operand());
      while (take(','));
      expect(end);
      return o;
    }
    if (c == '[') {
      next();
      o = operand();
      if (o.kind != Operand::Kind::reg && o.kind != Operand::Kind::symbol) fail("no address");
      o.kind = Operand::Kind::memory;
      if (take('+')) {
        const bool minus = take('-');
        o.number = number();
        if (minus) o.number = ~o.number + 1;
      }
      expect(']');
      return o;
    }
    if (c == '-') {
      next();
      o.number = ~number() + 1;
      return o;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      const std::string_view kind = text_.substr(at_, 2);
      if (kind == "0f" || kind == "0d") {
        const std::string digits = word().substr(2);
        std::from_chars(digits.data(), digits.data() + digits.size(), o.number, 16);
        return o;
      }
      o.number = number();
      return o;
    }
    o.name = word();
    o.reg = lookup(o.name);
    if (o.reg >= 0) {
      o.kind = Operand::Kind::reg;
    } else if (c == '%') {
      o.kind = Operand::Kind::special;
    } else {
      o.kind = Operand::Kind::symbol;
    }
    return o;
  }

 public:
  /// `.file` comes after the code that names it.
  void finish(Module& module) const {
    std::size_t i = 1;
    for (const auto& [file, line] : waiting_) {
      const auto found = files_.find(file);
      std::string path = found == files_.end() ? "?" : found->second;
      if (const std::size_t quote = path.rfind('"'); quote != std::string::npos) {
        path = path.substr(0, quote);
      }
      if (const std::size_t slash = path.rfind('/'); slash != std::string::npos) {
        path = path.substr(slash + 1);
      } else if (const std::size_t first = path.find('"'); first != std::string::npos) {
        path = path.substr(first + 1);
      }
      module.places[i++] = fmt::format("{}:{}", path, line);
    }
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  Module module_;
  int function_ = -1;
  std::vector<Variable> shared_;  // outside of functions
  std::vector<std::map<std::string, int>> scopes_;
  std::map<std::uint64_t, std::string> files_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> waiting_;
  std::pair<std::uint64_t, std::uint64_t> place_;
  std::size_t current_ = 0;
};

}  // namespace

const Function* Module::find(std::string_view name) const {
  for (const Function& f : functions) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

const Function& Module::kernel(std::string_view part) const {
  const Function* found = nullptr;
  for (const Function& f : functions) {
    if (!f.is_kernel || f.name.find(part) == std::string::npos) continue;
    if (found != nullptr) throw std::runtime_error("PTX with more than one kernel");
    found = &f;
  }
  if (found == nullptr) throw std::runtime_error("PTX without a kernel");
  return *found;
}

Module read_module(std::string_view text) {
  Reader reader(text);
  Module module = reader.read();
  reader.finish(module);
  return module;
}

}  // namespace tutti::ptx
