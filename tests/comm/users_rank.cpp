// Ranks of other users, and those that change their user after they have met:
//
//     together     all are nobody, and the C library says root, as under fakeroot: they meet
//     apart        rank 1 is another user: all hear so
//     drop         all become nobody after they have met: they go on
//     drop_one     rank 1 alone does: the others hear of users
//
// Exits with 1 when something is not right, with 77 where it may not change its user.
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tutti.h"

// As fakeroot has them. The kernel knows better.
extern "C" uid_t getuid() noexcept { return 0; }
extern "C" uid_t geteuid() noexcept { return 0; }

namespace {

constexpr uid_t kNobody = 65534;

void become_nobody() {
  if (setresuid(kNobody, kNobody, kNobody) != 0) throw std::runtime_error("cannot be nobody");
}

/// Long messages, in memory that the others have not seen, and in memory that they cannot map.
void exchange(tutti::Communicator& comm) {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  const auto expect = [&](float got, const char* where) {
    const int n = comm.size();
    const auto want = static_cast<float>(n * (n + 1) / 2);
    if (got != want) throw std::runtime_error(fmt::format("{}: {}, not {}", where, got, want));
  };
  std::vector<float, tutti::Allocator<float>> shared(kCount,
                                                     1.0F + static_cast<float>(comm.rank()));
  comm.all_reduce(shared.data(), shared.data(), kCount, tutti::DataType::float32);
  expect(shared.back(), "window memory");
  std::vector<float> own(kCount, 1.0F + static_cast<float>(comm.rank()));
  comm.all_reduce(own.data(), own.data(), kCount, tutti::DataType::float32);
  expect(own.back(), "memory of malloc");
}

/// Whether `body` throws an error that speaks of users.
template <class Body>
bool is_refused(const Body& body) {
  try {
    body();
  } catch (const tutti::Error& e) {
    const std::string text = e.what();
    if (text.find("user") != std::string::npos) return true;
    fmt::print(stderr, "{}: {}\n", name(e.code()), text);
    return false;
  }
  fmt::print(stderr, "there is no error\n");
  return false;
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace std::chrono_literals;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (syscall(SYS_geteuid) != 0) {
    fmt::print("needs root, to be another user\n");
    return 77;
  }
  const char* const rank = getenv("TUTTI_RANK");
  const bool is_one = rank != nullptr && std::string_view(rank) == "1";
  tutti::Options options;
  options.timeout = options.rendezvous_timeout = 30s;
  const auto begun = std::chrono::steady_clock::now();
  bool good = true;
  if (mode == "together") {
    become_nobody();
    auto comm = tutti::Communicator::from_environment(options);
    exchange(comm);
  } else if (mode == "apart") {
    if (is_one) become_nobody();
    good = is_refused([&] { (void)tutti::Communicator::from_environment(options); });
  } else {
    auto comm = tutti::Communicator::from_environment(options);
    comm.barrier();
    if (mode == "drop" || is_one) become_nobody();
    comm.barrier();
    if (mode == "drop") {
      exchange(comm);
    } else {
      good = is_refused([&] { exchange(comm); });
    }
  }
  const bool in_time = std::chrono::steady_clock::now() - begun < 20s;
  if (!in_time) fmt::print(stderr, "it takes too long\n");
  return good && in_time ? 0 : 1;
} catch (const std::exception& e) {
  fmt::print(stderr, "error: {}\n", e.what());
  return 2;
}
