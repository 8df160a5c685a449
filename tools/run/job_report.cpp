// See job_report.h.
#include "tools/run/job_report.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace tutti {

int exit_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string failure_text(int rank, pid_t pid, const std::string& host, int status) {
  const std::string who =
      fmt::format("rank {} (pid {}{})", rank, pid, host.empty() ? "" : " on " + host);
  if (!WIFSIGNALED(status)) {
    return fmt::format("{} exited with status {}", who, WEXITSTATUS(status));
  }
  const int number = WTERMSIG(status);
  return fmt::format("{} was killed by signal {} ({})", who, number, ::strsignal(number));
}

std::string start_failure_text(int rank, const std::string& program, const std::string& host,
                               int error) {
  const std::string where = host.empty() ? "" : fmt::format("host {}: ", host);
  if (error == ENOENT) {
    std::error_code ignored;
    const bool is_here = host.empty() && program.find('/') == std::string::npos &&
                         std::filesystem::exists(program, ignored);
    return fmt::format(
        "{}cannot run '{}': there is no such program (or not the interpreter that it names){}",
        where, program, is_here ? fmt::format("; the file of this folder is ./{}", program) : "");
  }
  if (error == EACCES || error == ENOEXEC) {
    return fmt::format("{}cannot run '{}': it is not executable ({})", where, program,
                       std::strerror(error));
  }
  return fmt::format("{}cannot start rank {} of '{}': {}", where, rank, program,
                     std::strerror(error));
}

int start_failure_status(int error) { return error == ENOENT ? 127 : 126; }

}  // namespace tutti
