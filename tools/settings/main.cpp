// `tutti settings`: the settings, their defaults, and what the environment has; or
// docs/settings.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/settings.h"
#include "core/settings_page.h"
#include "tools/command_line/command.h"

namespace tutti {
namespace {

void print_settings() {
  for (const Setting& s : settings()) {
    const char* value = std::getenv(std::string(s.name).c_str());
    if (!s.section.empty()) {
      fmt::print("{}--- {}\n", s.name == settings().front().name ? "" : "\n", s.section);
    }
    fmt::print("{} [{}]{}\n    {}\n", s.name, s.default_value,
               value == nullptr ? "" : fmt::format(" = {}", value), s.meaning);
  }
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto markdown = std::make_shared<bool>(false);
  command.add_flag("--markdown", *markdown, "As a page for docs/settings.md");
  command.callback([markdown] {
    if (!*markdown) return print_settings();
    const std::string page = settings_markdown();
    std::fwrite(page.data(), 1, page.size(), stdout);
  });
  command.footer("Prints NAME [default] = value, with a value only if the environment has one.");
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("settings", tutti::define, argc, argv); }
