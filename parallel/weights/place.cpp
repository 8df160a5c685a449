#include "parallel/weights/place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <tutti/core/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "core/file_descriptor.h"

namespace tutti::parallel::weights {
namespace {

constexpr std::size_t kLongestFile = std::size_t{64} << 20;  // bytes of a text

class Folder final : public Place {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
      throw_system_error(fmt::format("making the folder {}, where two jobs meet", path_));
    }
  }

  /// The rename is the moment at which others see the text.
  void write(std::string_view name, std::string_view text) override {
    const std::string path = path_of(name), part = fmt::format("{}.{}", path, ::getpid());
    {
      const FileDescriptor file(
          ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      if (file.fd() < 0) throw_system_error(fmt::format("writing {}", part));
      for (std::size_t at = 0; at < text.size();) {
        const ssize_t n = ::write(file.fd(), text.data() + at, text.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw_system_error(fmt::format("writing {}", part));
        at += static_cast<std::size_t>(n);
      }
    }
    if (::rename(part.c_str(), path.c_str()) != 0) {
      throw_system_error(fmt::format("renaming {}", part));
    }
  }

  std::optional<std::string> read(std::string_view name) override {
    const std::string path = path_of(name);
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd() < 0 && errno == ENOENT) return std::nullopt;
    if (file.fd() < 0) throw_system_error(fmt::format("reading {}", path));
    std::string text;
    char part[4096];
    for (;;) {
      const ssize_t n = ::read(file.fd(), part, sizeof part);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_system_error(fmt::format("reading {}", path));
      if (n == 0) return text;
      text.append(part, static_cast<std::size_t>(n));
      if (text.size() > kLongestFile) {
        throw Error(ErrorCode::mismatch,
                    fmt::format("{} has more than {} bytes, so no job of Tutti has written it",
                                path, kLongestFile));
      }
    }
  }

  void remove(std::string_view name) override { ::unlink(path_of(name).c_str()); }

 private:
  std::string path_of(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

  const std::string path_;
};

}  // namespace

std::shared_ptr<Place> folder_place(const std::string& path) {
  return std::make_shared<Folder>(path);
}

}  // namespace tutti::parallel::weights
