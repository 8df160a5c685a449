// Which of two processes with one rank belongs to a rank 0. A launch may start several programs at
// once (`mpiexec -n 2 sh -c './a & ./b & wait'`), and two jobs may have one MASTER_PORT: then
// several processes of a host are rank 1 of what the launcher's variables name, and several are
// rank 0. Ranks of one program have more in common: who started them, their file, their arguments,
// their environment. A rank that finds a rank 0 looks whether another pairing fits better.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/launcher.h"

namespace tutti {

/// What a process is, as far as the ranks of a program have it in common. Hashes, as it travels.
struct Program {
  std::uint32_t file = 0;
  std::vector<std::uint32_t> words;   // of its command
  std::set<std::uint32_t> variables;  // with which it began
  std::vector<pid_t> above;           // its ancestors, from its parent on; of this host
};
/// Of a process of this host; empty if the kernel does not say.
Program program_of(pid_t pid);
/// As it travels to other hosts: hexadecimal digits, at most 2,600, or 300 without the variables,
/// for stores that take short texts only. And back: throws Error(invalid_argument) for what is
/// none.
enum class Detail : std::uint8_t { all, without_variables };
std::string to_text(const Program& program, Detail detail = Detail::all);
Program program_from_text(std::string_view text);
/// How much two have in common, the most important first; more is more.
using Likeness = std::array<long, 4>;
Likeness likeness(const Program& a, const Program& b);

/// Why rank 0 of this launch at `zero`, a process of this host, is that of another program than
/// this process; "": it is this one's, as far as can be seen.
std::string why_another_program(const Launcher& launcher, pid_t zero);
/// why_another_program() for a process of any host.
std::string why_another_program(const Launcher& launcher, const Program& zero);

}  // namespace tutti
