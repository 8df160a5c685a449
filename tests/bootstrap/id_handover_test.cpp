// The id's way from rank 0 to the others over an abstract unix socket, and which processes do not
// get it.
#include "bootstrap/id_handover.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/support/contains.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

std::string fresh_job() {
  static int jobs = 0;
  return fmt::format("test-{}-{}", getpid(), ++jobs);
}

TEST(IdHandover, EveryRankGetsTheId) {
  const std::string job = fresh_job();
  const UniqueId id = make_unique_id();
  std::vector<UniqueId> got(8);
  std::vector<std::thread> threads;
  for (int rank = 1; rank < 8; ++rank) {
    threads.emplace_back(
        [&, rank] { got[static_cast<std::size_t>(rank)] = fetch_unique_id(job, rank, 8, 10s); });
  }
  std::this_thread::sleep_for(100ms);  // the others may be first
  offer_unique_id(job, 8, id, 10s);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t rank = 1; rank < 8; ++rank) EXPECT_EQ(got[rank], id);
  // All served: the name is free for the next world of the same name.
  const UniqueId next = make_unique_id();
  offer_unique_id(job, 2, next, 10s);
  EXPECT_EQ(fetch_unique_id(job, 1, 2, 10s), next);
}

TEST(IdHandover, AMissingOfferAndATakenNameAreErrors) {
  const std::string job = fresh_job();
  try {
    fetch_unique_id(job, 1, 2, 200ms);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timed_out);
    EXPECT_EQ(error.rank(), 0);
    EXPECT_CONTAINS(error.what(), "is rank 0 running");
  }
  offer_unique_id(job, 3, make_unique_id(), 10s);
  try {
    offer_unique_id(job, 3, make_unique_id(), 200ms);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timed_out);
    EXPECT_CONTAINS(error.what(), "another process hands out");
  }
  EXPECT_NO_THROW(fetch_unique_id(job, 1, 3, 1s));
  try {
    fetch_unique_id(job, 1, 3, 200ms);  // its rank has it already
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_CONTAINS(error.what(), "to another process of this rank");
  }
  try {
    fetch_unique_id(job, 2, 4, 1s);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_CONTAINS(error.what(), "says that there are 3 ranks");
  }
  EXPECT_NO_THROW(fetch_unique_id(job, 2, 3, 1s));
}

/// Runs `body` in a child with nobody as its effective user; returns what `body` returns.
int as_another_user(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(seteuid(65534) == 0 ? body() : 99);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(IdHandover, AnotherUserGetsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string job = fresh_job();
  const SocketAddress address = handover_address(job);
  offer_unique_id(job, 2, make_unique_id(), 10s);
  EXPECT_EQ(as_another_user([&] {
              const FileDescriptor socket = connect_to(address, deadline_after(2s));
              std::array<std::byte, 12> request{};
              std::byte answer{};
              if (!socket) return 1;
              write_exactly(socket, request, deadline_after(2s));
              return read_exactly(socket, std::span(&answer, 1), deadline_after(2s)) ==
                             IoResult::closed
                         ? 0
                         : 2;
            }),
            0);
  EXPECT_NO_THROW(fetch_unique_id(job, 1, 2, 5s));
}

TEST(IdHandover, AnotherUsersOfferIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string job = fresh_job();
  const SocketAddress address = handover_address(job);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t impostor = fork();
  if (impostor == 0) {
    if (seteuid(65534) != 0) _exit(1);
    const FileDescriptor listener = listen_at(address);
    [[maybe_unused]] const ssize_t told = write(ready[1], listener ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char is_ready = 0;
  ASSERT_EQ(read(ready[0], &is_ready, 1), 1);
  ASSERT_EQ(is_ready, 'y');
  try {
    fetch_unique_id(job, 1, 2, 2s);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_CONTAINS(error.what(), "user 65534 occupies the name");
  }
  kill(impostor, SIGKILL);
  waitpid(impostor, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace tutti
