// A limit on the memory that this process may still map. With it a test asks for more memory than
// there is; code that does not notice fails instead of filling the machine.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace tutti::test {

class AddressSpace {
 public:
  /// From now on, until it is destroyed: so many bytes more than there are.
  explicit AddressSpace(std::size_t more) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + more;
    setrlimit(RLIMIT_AS, &now);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

 private:
  rlimit before_{};
};

}  // namespace tutti::test
