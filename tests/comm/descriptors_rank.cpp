// Rank 1 has no file descriptor left when it needs one: it says so, nobody waits for long, and when
// it has some again, all go on. Exits with 1 when something is not right.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCount = 50'000;  // large enough that windows are used

/// Takes all descriptors that are left, but so many.
class Exhausted {
 public:
  explicit Exhausted(std::size_t spared = 0) {
    for (int fd = 0; (fd = dup(0)) >= 0;) taken_.push_back(fd);
    for (; spared > 0 && !taken_.empty(); --spared) {
      close(taken_.back());
      taken_.pop_back();
    }
  }
  ~Exhausted() {
    for (const int fd : taken_) close(fd);
  }
  Exhausted(const Exhausted&) = delete;
  Exhausted& operator=(const Exhausted&) = delete;

 private:
  std::vector<int> taken_;
};

int wrong = 0;

void expect(bool condition, int rank, const std::string& what) {
  if (condition) return;
  fmt::print(stderr, "rank {}: not so: {}\n", rank, what);
  wrong = 1;
}

/// What `body` throws, if it does, which must not take long.
template <class Body>
std::optional<tutti::Error> error_of(int rank, Body&& body) {
  const auto begin = Clock::now();
  std::optional<tutti::Error> error;
  try {
    body();
  } catch (const tutti::Error& e) {
    error = e;
  }
  expect(Clock::now() - begin < 5s, rank, "it takes less than 5 s");
  return error;
}

bool names_descriptors(const tutti::Error& e) {
  const std::string text = e.what();
  return text.find("open files") != std::string::npos ||
         text.find("descriptor") != std::string::npos;
}

bool add_up(tutti::Communicator& comm, std::uint32_t* x) {
  for (std::size_t i = 0; i < kCount; ++i) {
    x[i] = static_cast<std::uint32_t>(1000 * comm.rank() + static_cast<int>(i));
  }
  comm.all_reduce(x, x, kCount, tutti::DataType::uint32);
  const auto n = static_cast<std::size_t>(comm.size());
  for (std::size_t i = 0; i < kCount; ++i) {
    if (x[i] != 1000 * (n * (n - 1) / 2) + n * i) return false;
  }
  return true;
}

using Window = std::vector<std::uint32_t, tutti::Allocator<std::uint32_t>>;

}  // namespace

int main() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &limit);
  try {
    tutti::Options options;
    options.rendezvous_timeout = 10s;
    auto comm = tutti::Communicator::from_environment(options);
    options.rendezvous_timeout = 2s;
    const int rank = comm.rank();
    Window old_window(kCount);
    expect(add_up(comm, old_window.data()), rank, "the sum is right");

    // A new communicator: rank 1 cannot make its segment, or take the others'.
    {
      std::optional<Exhausted> exhausted;
      if (rank == 1) exhausted.emplace();
      const auto error = error_of(rank, [&] { comm.split(0, rank, options); });
      expect(error.has_value(), rank, "split() fails");
      if (error && rank == 1) {
        expect(error->code() == tutti::ErrorCode::system && names_descriptors(*error), rank,
               fmt::format("'{}' says why", error->what()));
      } else if (error) {
        const std::string text = error->what();
        expect(error->code() == tutti::ErrorCode::peer_lost && text.starts_with("rank 1 ") &&
                   text.find("given up") != std::string::npos,
               rank, fmt::format("'{}' says that rank 1 has given up", text));
      }
    }
    expect(add_up(comm, old_window.data()), rank, "the communicator still works");
    tutti::Communicator part = comm.split(0, rank, options);
    expect(add_up(part, old_window.data()), rank, "the next split() does");

    // A new window of the others, which rank 1 cannot take.
    {
      Window window(kCount);
      std::optional<Exhausted> exhausted;
      if (rank == 1) exhausted.emplace();
      const auto error = error_of(rank, [&] { add_up(part, window.data()); });
      expect(error.has_value(), rank, "the call fails");
      if (error) {
        expect(error->code() == tutti::ErrorCode::system && names_descriptors(*error), rank,
               fmt::format("'{}' says why", error->what()));
      }
    }
    part.destroy();
    tutti::Communicator again = comm.shrink({}, options);
    Window window(kCount);
    expect(add_up(again, window.data()), rank, "all go on");

    // The first way to other hosts: whatever is missing for it, the error says so. (Where the rank
    // has none left to take in its own call, a warning does.)
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 256);
    setrlimit(RLIMIT_NOFILE, &limit);
    tutti::Communicator alone = tutti::Communicator::alone(options);
    const std::vector<std::string> self{alone.handle()};
    options.rendezvous_timeout = 100ms;
    bool has_met = false;
    for (std::size_t spared = 1; spared < 30 && !has_met; ++spared) {
      std::optional<tutti::Error> error;
      {
        const Exhausted exhausted(spared);
        error = error_of(rank, [&] { alone.reconfigure(self, spared, options); });
      }
      has_met = !error.has_value();
      if (has_met || error->code() == tutti::ErrorCode::timed_out) continue;
      expect(names_descriptors(*error), rank,
             fmt::format("with {} descriptors: '{}' says why", spared, error->what()));
    }
    expect(has_met, rank, "with enough of them it meets itself");
    return wrong;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
