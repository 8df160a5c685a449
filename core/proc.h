// What the kernel shows of processes in /proc.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

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
