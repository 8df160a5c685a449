// A rank, as a process, of three that use a window when rank 1 dies:
//
//     put_kill_rank writer|waiter
//
// Rank 1 dies in the middle of a put to rank 0, or in a wait. The others, which wait for signals of
// it, blocking and started, must hear within a second that it is lost; and later calls, too. A rank
// that has found that right ends with 0.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti.h"

using namespace tutti;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kBytes = 8 << 20;
constexpr auto kDies = 200ms;

void expect_lost(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::peer_lost && e.rank() == 1) return;
    throw std::runtime_error(fmt::format("not peer_lost of rank 1, but: {}", e.what()));
  }
  throw std::runtime_error("a call with a dead rank succeeded");
}

[[noreturn]] void die(Window& window, bool writes) {
  std::thread([] {
    std::this_thread::sleep_for(kDies);
    std::raise(SIGKILL);
  }).detach();
  const std::vector<std::byte> data(kBytes, std::byte{1});
  for (;;) {
    if (writes) {
      window.put(0, 0, data.data(), kBytes);
    } else {
      window.wait_signal(0);
    }
  }
}

void survive(Communicator& comm, Window& window) {
  const auto begun = Clock::now();
  WindowCall wait;
  wait.kind = WindowCall::Kind::wait_signal;
  wait.peer = 1;
  if (comm.rank() == 0) {
    expect_lost([&] { window.wait_signal(1, 1, 3); });
  } else {
    Future future = window.start(wait);
    expect_lost([&] { future.wait(); });
  }
  const auto took = Clock::now() - begun;
  if (took > kDies + 1s) throw std::runtime_error("the news took more than a second");
  expect_lost([&] { window.put(1, 0, "abcd", 4); });
  expect_lost([&] { window.signal(1); });
  expect_lost([&] { group([&] { window.wait_signal(1); }); });
  expect_lost([&] { window.close(); });
  // The others go on.
  Communicator rest = comm.shrink(std::vector{1});
  Window again = rest.window(64);
  const int peer = 1 - rest.rank();
  again.put_signal(peer, 8, "go on", 5);
  again.wait_signal(peer);
  if (std::memcmp(again.data() + 8, "go on", 5) != 0) throw std::runtime_error("wrong data");
  again.close();
}

}  // namespace

int main(int, char** argv) {
  try {
    auto comm = Communicator::from_environment();
    Window window = comm.window(kBytes);
    comm.barrier();
    if (comm.rank() == 1) die(window, std::string(argv[1]) == "writer");
    survive(comm, window);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
