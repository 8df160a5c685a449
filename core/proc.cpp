// See proc.h.
#include "core/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <system_error>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/number.h"

namespace tutti {

pid_t own_proc_id() {
  std::array<char, 32> link{};
  if (::readlink("/proc/self", link.data(), link.size() - 1) <= 0) return 0;
  return parse_number<pid_t>(std::string_view(link.data())).value_or(0);
}

bool proc_is_ours() { return own_proc_id() == ::getpid(); }

std::filesystem::path own_program() {
  std::error_code error;
  std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return file;
  // The kernel tells a program the path that it was started by. Whoever starts it by a search gives
  // the place that was found.
  const unsigned long started_as = ::getauxval(AT_EXECFN);
  if (started_as != 0) {
    file = std::filesystem::canonical(reinterpret_cast<const char*>(started_as), error);  // NOLINT
  }
  if (started_as != 0 && !error) return file;
  throw Error(ErrorCode::system,
              "where this program's own file is cannot be found: there is no /proc, and it was "
              "not started by a path that leads there from here; start it by its absolute path");
}

std::vector<pid_t> process_ids() {
  std::vector<pid_t> ids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  while (const dirent* const entry = folder ? ::readdir(folder.get()) : nullptr) {
    if (const auto pid = parse_number<pid_t>(entry->d_name)) ids.push_back(*pid);
  }
  return ids;
}

std::string read_proc(std::string_view process, std::string_view file) {
  constexpr std::size_t kMost = std::size_t{4} << 20;
  const FileDescriptor fd(
      ::open(fmt::format("/proc/{}/{}", process, file).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> part;
  while (fd && text.size() < kMost) {
    const ssize_t n = ::read(fd.fd(), part.data(), part.size());
    if (n <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(n));
  }
  return text;
}

std::string_view after_name(std::string_view stat) {
  const std::size_t end = stat.rfind(')');
  return end == std::string_view::npos ? std::string_view{} : stat.substr(end + 1);
}

std::string stat_field(std::string_view process, int number) {
  const std::string stat = read_proc(process, "stat");
  std::string_view fields = after_name(stat);
  for (int field = 3; field < number; ++field) take_word(fields);
  return std::string(take_word(fields));
}

}  // namespace tutti
