// What the kernel shows of processes in /proc.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Numbers of processes are those of /proc. Where a PID namespace has the /proc of an outer one,
// they are not those of getpid() and its kin, but other processes'.

/// Whether the numbers of processes in /proc are those of getpid().
bool proc_is_ours();
/// This process's number; 0: there is no /proc.
pid_t own_proc_id();

/// The file that this process runs, also where there is no /proc: then as it was started. Throws
/// Error(system) where that is not there either.
std::filesystem::path own_program();

/// All processes that can be seen here.
std::vector<pid_t> process_ids();

/// File `file` of `process` (a number, or "self": this one), as far as it can be read, up to 4 MiB;
/// "" if it cannot.
std::string read_proc(std::string_view process, std::string_view file);
inline std::string read_proc(pid_t pid, std::string_view file) {
  return read_proc(std::to_string(pid), file);
}

/// What follows the name in `stat`, the text of a process's file of that name: fields 3 and on;
/// "": there is none. (The name, field 2, may hold anything.)
std::string_view after_name(std::string_view stat);
/// Field `number`, from 3 on, of that file of `process`; "": the kernel does not say.
std::string stat_field(std::string_view process, int number);

}  // namespace tutti
