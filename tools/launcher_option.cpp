#include "tools/launcher_option.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "core/error.h"
#include "tools/command_line/programs.h"

namespace tutti {

void LauncherOption::add_to(CLI::App& command) {
  command
      .add_option("--launcher", launcher_,
                  "Called as CMD HOST COMMAND..., runs COMMAND on another host [ssh]")
      ->type_name("CMD");
  command
      .add_option("--tutti", tutti_, "Where this program is on the other hosts [where it is here]")
      ->type_name("PATH");
}

std::vector<std::string> LauncherOption::connect() const {
  // Nobody could answer a question, and a host that is down shall not hold up the job for minutes.
  if (is_ssh()) return {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"};
  std::vector<std::string> words;
  std::istringstream stream(launcher_);
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) throw Error(ErrorCode::invalid_argument, "--launcher: which command?");
  return words;
}

std::string LauncherOption::tutti() const {
  return tutti_.empty() ? tutti_program().string() : tutti_;
}

}  // namespace tutti
