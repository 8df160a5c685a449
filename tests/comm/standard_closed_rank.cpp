// A rank that was started with standard input, output and error closed prints into none of Tutti's
// descriptors: none of them has one of these numbers, whatever the rank does. What it prints goes
// nowhere, and not into a window's memory, or a connection. Exits with 1 when something is not
// right, which the copy of standard error tells that was made before.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tutti.h"

namespace {

constexpr std::size_t kCount = 100'000;  // large enough that windows are used
constexpr int kStandard[] = {0, 1, 2};

std::FILE* report = nullptr;
int wrong = 0;

/// What the numbers lead to: "closed", or the file.
std::string where(int fd) {
  std::array<char, 256> path{};
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  return readlink(link.c_str(), path.data(), path.size() - 1) > 0 ? path.data() : "closed";
}

void look(int rank, const char* after) {
  for (const int fd : kStandard) {
    const std::string what = where(fd);
    // Where a library of others may open descriptors, nothing else may lie there.
    if (what == "closed" || what == "/dev/null") continue;
    fmt::print(report, "rank {}: after {}, descriptor {} is {}\n", rank, after, fd, what);
    wrong = 1;
  }
}

/// As a program does that knows nothing of it.
void print(int rank) {
  const std::string text(300, static_cast<char>('a' + rank));
  for (const int fd : {1, 2}) {
    for (int i = 0; i < 20; ++i) {
      [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
    }
  }
}

template <class Vector>
void add_up(tutti::Communicator& comm, Vector& x, const char* where) {
  const auto n = static_cast<std::uint32_t>(comm.size());
  for (std::uint32_t i = 0; i < kCount; ++i) {
    x[i] = 1000 * static_cast<std::uint32_t>(comm.rank()) + i;
  }
  print(comm.rank());
  comm.all_reduce(x.data(), x.data(), kCount, tutti::DataType::uint32);
  print(comm.rank());
  comm.barrier();
  for (std::uint32_t i = 0; i < kCount; ++i) {
    if (x[i] == 1000 * (n * (n - 1) / 2) + n * i) continue;
    fmt::print(report, "rank {}: in {}, element {} is {}\n", comm.rank(), where, i, x[i]);
    wrong = 1;
    return;
  }
}

void run() {
  using Memory = std::vector<std::uint32_t, tutti::Allocator<std::uint32_t>>;
  auto comm = tutti::Communicator::from_environment();
  const int rank = comm.rank(), size = comm.size();
  look(rank, "meeting");
  std::vector<std::uint32_t> plain(kCount);
  add_up(comm, plain, "plain memory");
  Memory shared(kCount);
  look(rank, "allocate()");
  add_up(comm, shared, "shared memory");
  look(rank, "calls");
  std::vector<std::uint32_t> all(kCount * static_cast<std::size_t>(size)), mine = all;
  comm.all_to_all(mine.data(), all.data(), kCount, tutti::DataType::uint32);
  look(rank, "all_to_all()");
  {
    tutti::Communicator part = comm.split(0, -rank);
    look(rank, "split()");
    Memory more(kCount);
    add_up(part, more, "a part");
    tutti::Window window = part.window(4096);
    look(rank, "window()");
    print(rank);
    const int next = (part.rank() + 1) % size, last = (part.rank() + size - 1) % size;
    const std::vector<std::uint32_t> from(1000, static_cast<std::uint32_t>(part.rank()));
    window.put_signal(next, 0, from.data(), 4000);
    window.wait_signal(last, 1);
    print(rank);
    const auto* const got = reinterpret_cast<const std::uint32_t*>(window.data());
    for (int i = 0; i < 1000; ++i) {
      if (got[i] != static_cast<std::uint32_t>(last)) wrong = 1;
    }
    window.close();
    tutti::Future future = part.start({.collective = tutti::Collective::barrier});
    future.wait();
    look(rank, "start()");
  }
  const std::string own = comm.handle();
  look(rank, "handle()");
  comm.barrier();
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  report = fdopen(fcntl(2, F_DUPFD_CLOEXEC, 100), "w");
  for (const int fd : kStandard) close(fd);
  try {
    run();
  } catch (const std::exception& e) {
    fmt::print(report, "error: {}\n", e.what());
    wrong = 2;
  }
  std::fflush(report);
  return wrong;
}
