// What `tutti run` says about a job, and the exit statuses that follow.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace tutti {

/// A line on standard error. One write, so that it is not mixed with what the ranks write.
template <typename... Values>
void report_on_job(fmt::format_string<Values...> format, Values&&... values) {
  const std::string line =
      "tutti run: " + fmt::format(format, std::forward<Values>(values)...) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(2, line.data(), line.size());
}

/// The job's exit status where it is not a rank's: the choice of timeout(1) and of shells.
constexpr int kJobTimedOut = 124, kHostLost = 125;
/// Where all ranks have ended well, but not all that they printed could be written.
constexpr int kOutputLost = 1;

/// The exit status for a rank's, which waitpid() has told: 128 + the signal that killed it.
int exit_status(int status);
/// "rank 3 (pid 77 on node2) was killed by signal 9 (Killed)"; `host` "": this one.
std::string failure_text(int rank, pid_t pid, const std::string& host, int status);

/// Why a rank's program could not be started, by errno, and the exit status for that.
std::string start_failure_text(int rank, const std::string& program, const std::string& host,
                               int error);
int start_failure_status(int error);

}  // namespace tutti
