#include "parallel/checkpoint/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace tutti::parallel {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw_system_error(fmt::format("{} {}", what, path));
}

}  // namespace

NewFile::NewFile(std::string path) : path_(std::move(path)), early_(early_name(path_)) {
  fd_ = above_standard(::open(early_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666));
  if (fd_ < 0) fail(early_, "cannot create");
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(early_.c_str());
}

void NewFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(early_, "cannot write");
    from += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

bool NewFile::commit() {
  if (::fsync(fd_) != 0) fail(early_, "cannot sync");
  if (::rename(early_.c_str(), path_.c_str()) != 0) {
    if (errno == ENOENT) return false;
    fail(path_, "cannot name");
  }
  ::close(std::exchange(fd_, -1));
  // The name is safe when its folder is.
  try {
    sync_folder(std::filesystem::path(path_).parent_path().string());
  } catch (...) {
    ::unlink(path_.c_str());
    throw;
  }
  return true;
}

void sync_folder(const std::string& path) {
  const int dir =
      above_standard(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir < 0) fail(path, "cannot open");
  const int failed = ::fsync(dir) == 0 ? 0 : errno;
  ::close(dir);
  if (failed != 0) throw_system_error(fmt::format("cannot sync {}", path), failed);
}

}  // namespace tutti::parallel
