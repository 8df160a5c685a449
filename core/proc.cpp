// See proc.h.
#include "core/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>

#include "core/file_descriptor.h"
#include "core/number.h"

namespace tutti {

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
