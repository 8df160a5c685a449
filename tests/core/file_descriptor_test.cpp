// Descriptors of Tutti's never have the numbers of standard input, output and error.
#include "core/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include "core/as_error.h"
#include "core/error.h"

namespace tutti {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/// Whether `body` holds in a child whose descriptors 0 to 2 are closed.
bool holds_without_standard(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) close(fd);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(FileDescriptor, MovesAboveTheStandardOnes) {
  EXPECT_TRUE(holds_without_standard([] {
    const int given = eventfd(0, 0);
    const FileDescriptor fd(given);
    const bool right = given < 3 && fd.fd() > 2 && !is_open(0) && !is_open(1) && !is_open(2);
    return right && (fcntl(fd.fd(), F_GETFD) & FD_CLOEXEC) != 0;
  }));
}

TEST(FileDescriptor, KeepsANumberThatIsHighEnough) {
  const int given = eventfd(0, EFD_CLOEXEC);
  ASSERT_GT(given, 2);
  const FileDescriptor fd(given);
  EXPECT_EQ(fd.fd(), given);
}

TEST(FileDescriptor, IsEmptyWithTheReasonWhereThereIsNoHigherNumber) {
  EXPECT_TRUE(holds_without_standard([] {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    const int first = open("/dev/null", O_RDONLY);
    for (int fd = first; fd >= 0; fd = dup(first)) {
    }
    close(1);
    const FileDescriptor none(eventfd(0, 0));
    return !none && lacks_descriptors(errno) && !is_open(1) &&
           out_of_descriptors().find(" 64 ") != std::string::npos;
  }));
}

TEST(FileDescriptor, OccupiesWhatIsFreeOfTheStandardOnes) {
  EXPECT_TRUE(holds_without_standard([] {
    const int own = open("/", O_RDONLY);  // 0, the program's own
    const bool had_three = is_open(3);
    occupy_standard_descriptors();
    struct stat root {
    }, zero{}, one{};
    return own == 0 && stat("/", &root) == 0 && fstat(0, &zero) == 0 && fstat(1, &one) == 0 &&
           zero.st_ino == root.st_ino && S_ISCHR(one.st_mode) && is_open(2) &&
           is_open(3) == had_three && (fcntl(1, F_GETFD) & FD_CLOEXEC) != 0;
  }));
}

TEST(Errors, NameTheLimitOfDescriptors) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  try {
    throw_system_error("opening it", EMFILE);
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find(std::to_string(limit.rlim_cur)), text.npos) << text;
    EXPECT_NE(text.find("ulimit -n"), text.npos) << text;
  }
}

TEST(Errors, OfMemoryAreTheSystems) {
  EXPECT_EQ(as_error(std::bad_alloc()).code(), ErrorCode::system);
  EXPECT_EQ(as_error(std::runtime_error("odd")).code(), ErrorCode::internal);
  const Error lost = as_error(Error(ErrorCode::peer_lost, "gone", 3));
  EXPECT_EQ(lost.code(), ErrorCode::peer_lost);
  EXPECT_EQ(lost.rank(), 3);
}

}  // namespace
}  // namespace tutti
