#include "tools/top/stack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <sstream>
#include <vector>

#include "tools/output_of.h"
#include "tools/top/process.h"

namespace tutti::top {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);  // a debugger reads large files

/// Where gdb's threads begin; what it says before is about files.
std::string from_first_thread(const std::string& text) {
  const std::size_t at = text.find("\nThread ");
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace

std::string stack_of(int pid) {
  const std::string number = std::to_string(pid);
  std::string tried;
  const auto try_one = [&](std::vector<std::string> program) -> std::string {
    const Output out = output_of(program, kPatience);
    if (out.status == 0 && !out.text.empty()) return out.text;
    if (out.status != Output::kNotFound) {
      tried += fmt::format("  {}: {}\n", program.front(),
                           out.complaint.empty() ? "no result" : out.complaint);
    }
    return "";
  };
  if (has_mapped(pid, "python")) {
    if (std::string text = try_one({"py-spy", "dump", "--pid", number, "--native"});
        !text.empty()) {
      return text;
    }
    if (std::string text = try_one({"py-spy", "dump", "--pid", number}); !text.empty()) return text;
    tried += "  Python's own lines: 'pip install py-spy' shows them\n";
  }
  if (std::string text = try_one({"eu-stack", "-p", number}); !text.empty()) return tried + text;
  const std::string text =
      try_one({"gdb", "-nx", "-q", "-batch", "-ex", "set debuginfod enabled off", "-ex",
               "thread apply all backtrace 30", "-p", number});
  if (!text.empty()) return tried + from_first_thread(text);
  return fmt::format(
      "the stack of process {} cannot be shown: py-spy (Python), eu-stack (elfutils) or gdb has to "
      "be installed, and allowed to look (root, or kernel.yama.ptrace_scope=0)\n{}",
      pid, tried);
}

}  // namespace tutti::top
