// A file descriptor that Tutti owns. None of them has the number of standard input, output or
// error: a program may have been started with one of these closed, or close one, and what it prints
// then would go into a window's memory, or into a connection. So a descriptor that the system has
// given such a number moves up. Every place that gets a descriptor from the system puts it into
// a FileDescriptor, or passes it through above_standard().
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace tutti {

/// `fd`, unless it is 0, 1 or 2: then its copy with a higher number, which is closed on exec, and
/// `fd` is closed. A negative one stays as it is, with errno; -1, with errno, also where the
/// process may have no more descriptors. Any thread may call it.
int above_standard(int fd);

/// Before a library of others opens descriptors that it keeps: puts /dev/null, which is closed on
/// exec, at those of the numbers 0 to 2 that are free. They stay so. Any thread may call it.
void occupy_standard_descriptors();

/// Whether `error`, an errno, says that this process, or the system, has no descriptor left.
inline bool lacks_descriptors(int error) { return error == EMFILE || error == ENFILE; }
/// "its process has all the 1024 file descriptors open that it may have (ulimit -n raises that)",
/// of this process.
std::string out_of_descriptors();

/// An owned file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// Empty, with errno, where `fd` is negative, or as above_standard().
  explicit FileDescriptor(int fd) : fd_(above_standard(fd)) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace tutti
