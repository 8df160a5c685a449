// See programs.h.
#include "tools/command_line/programs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/proc.h"

namespace tutti {

namespace fs = std::filesystem;

const ToolProgram* find_tool(std::string_view name) {
  const auto tool = std::ranges::find(kToolPrograms, name, &ToolProgram::name);
  return tool == kToolPrograms.end() ? nullptr : &*tool;
}

fs::path tutti_program() {
  const fs::path self = own_program();
  const fs::path folder = self.parent_path();
  if (!folder.native().ends_with("/libexec/tutti")) return self;
  return folder.parent_path().parent_path() / "bin" / "tutti";
}

fs::path tools_folder() {
  return tutti_program().parent_path().parent_path() / "libexec" / "tutti";
}

fs::path tool_path(std::string_view name) { return tools_folder() / fmt::format("tutti-{}", name); }

bool is_program(const fs::path& path) {
  return ::access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
}

std::string how_to_build(const ToolProgram& tool) {
  const fs::path root = tools_folder().parent_path().parent_path();
  const std::string option = tool.option.empty() ? "" : fmt::format("-D{}=ON", tool.option);
  if (fs::exists(root / "CMakeCache.txt")) {  // a build folder
    return fmt::format(
        "'tutti {0}' is not built yet: {1}cmake --build {2} --target tutti-{0}", tool.name,
        option.empty() ? "" : fmt::format("cmake {} {} && ", option, root.string()), root.string());
  }
  return fmt::format(
      "'tutti {0}' is not part of this installation ({1} is missing): build Tutti{2}, whose target "
      "tutti-{0} it is, and install it",
      tool.name, tool_path(tool.name).string(), option.empty() ? "" : " with " + option);
}

}  // namespace tutti
