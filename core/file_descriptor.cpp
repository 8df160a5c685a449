// See file_descriptor.h.
#include "core/file_descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>

namespace tutti {
namespace {

constexpr int kFirst = 3;  // behind standard input, output and error

}  // namespace

int above_standard(int fd) {
  if (fd < 0 || fd >= kFirst) return fd;
  const int high = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirst);
  const int error = errno;
  ::close(fd);
  errno = error;
  return high;
}

std::string out_of_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format(
      "its process has all the {} file descriptors open that it may have (ulimit -n raises that)",
      limit.rlim_cur);
}

void occupy_standard_descriptors() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fd < kFirst) continue;
    if (fd >= 0) ::close(fd);
    return;
  }
}

}  // namespace tutti
