// See sysfs_tree.h.
#include "topology/sysfs_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/file_descriptor.h"
#include "core/number.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostOfFile = 1 << 20;  // /proc/cpuinfo of a large machine
constexpr std::size_t kMostNames = 1 << 16;

/// strverscmp orders 0000:0a before 0000:10, and node2 before node10.
bool before(const std::string& a, const std::string& b) {
  return strverscmp(a.c_str(), b.c_str()) < 0;
}

}  // namespace

std::string SysfsTree::all(const std::string& path) const {
  const int fd = above_standard(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd < 0) return "";
  std::string text;
  char part[4096];
  ssize_t got = 0;
  struct stat status {};
  const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  while (regular && text.size() < kMostOfFile && (got = read(fd, part, sizeof part)) > 0) {
    text.append(part, static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

std::string SysfsTree::line(const std::string& path) const {
  const std::string text = all(path);
  return std::string(trimmed(std::string_view(text).substr(0, text.find('\n'))));
}

std::optional<std::int64_t> SysfsTree::integer(const std::string& path) const {
  const std::string text = line(path);
  if (text.starts_with("0x"))
    return parse_number<std::int64_t>(std::string_view(text).substr(2), 16);
  return parse_number<std::int64_t>(text);
}

std::vector<std::string> SysfsTree::names(const std::string& path) const {
  std::vector<std::string> found;
  DIR* const folder = opendir((root_ + path).c_str());
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.' && found.size() < kMostNames) found.emplace_back(entry->d_name);
  }
  closedir(folder);
  std::ranges::sort(found, before);
  return found;
}

bool SysfsTree::exists(const std::string& path) const {
  struct stat status {};
  return lstat((root_ + path).c_str(), &status) == 0;
}

SysfsTree::PciPath SysfsTree::pci_path(const std::string& link) const {
  PciPath path;
  char target[4096];
  const ssize_t length = readlink((root_ + link).c_str(), target, sizeof target);
  if (length <= 0) return path;
  std::string_view rest(target, static_cast<std::size_t>(length));
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    if (const auto id = parse_bus_id(part)) {
      path.devices.push_back(*id);
    } else if (path.devices.empty() && part.starts_with("pci") && part.find(':') != part.npos) {
      path.host_bridge = part;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return path;
}

}  // namespace tutti::topology
