// A rank of docs/semantics.md as a process: `values`: the table of numbers, in memory of malloc and
// in windows. `late`: ranks that are late, stopped, or leave. `dead`: one that is killed. Ends with
// status 1, and says why, if something is wrong.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "tests/semantics/values.h"

namespace {

using namespace std::chrono_literals;
using tutti::Communicator;
using tutti::Error;
using tutti::ErrorCode;
using Clock = std::chrono::steady_clock;

int wrong = 0;

void expect(bool right, const Communicator& c, const std::string& what) {
  if (right) return;
  fmt::print(stderr, "rank {}: {}\n", c.rank(), what);
  wrong = 1;
}

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  return Error(ErrorCode{}, "no error");
}

void expect_error(const Communicator& c, const char* when, const Error& e, ErrorCode code,
                  int rank) {
  expect(e.code() == code && e.rank() == rank, c,
         fmt::format("{}: expected {} of rank {}, got {} of rank {}: {}", when, name(code), rank,
                     name(e.code()), e.rank(), e.what()));
}

std::int32_t sum(Communicator& c, std::int32_t x) {
  c.all_reduce(&x, &x, 1, tutti::DataType::int32);
  return x;
}

void values(Communicator& c) {
  for (const bool window : {false, true}) {
    tutti::test::ValueCases cases;
    cases.window = window;
    for (const auto& fault : tutti::test::wrong_values(c, cases)) expect(false, c, fault);
    for (const auto& fault : tutti::test::wrong_copies(c, cases)) expect(false, c, fault);
  }
}

/// The last rank is late, is stopped and goes on, is stopped for too long, leaves.
void late(Communicator& world) {
  const int odd = world.size() - 1;
  const bool is_odd = world.rank() == odd;
  std::vector<std::int32_t> pids(static_cast<std::size_t>(world.size()));
  world.all_gather(std::vector<std::int32_t>{getpid()}, pids);
  const auto wake = [&](std::chrono::milliseconds after) {
    std::this_thread::sleep_for(after);
    if (world.rank() == 0) kill(pids.back(), SIGCONT);
  };
  const std::int32_t all = world.size();

  // semantics.md: R1
  if (is_odd) std::this_thread::sleep_for(300ms);
  expect(sum(world, 1) == all, world, "a late rank changes the sum");

  // semantics.md: R3
  {
    std::jthread waker;
    if (world.rank() == 0) waker = std::jthread([&] { wake(500ms); });
    if (is_odd) raise(SIGSTOP);
    expect(sum(world, 2) == 2 * all, world, "a rank that was stopped changes the sum");
  }

  // semantics.md: R1, R3, R5
  tutti::Options limited = world.options();
  limited.timeout = 1500ms;
  {
    Communicator c = world.split(0, world.rank(), limited);
    if (is_odd) raise(SIGSTOP);
    if (!is_odd) {
      const Error e = error_of([&] { sum(c, 1); });
      expect_error(c, "stopped for too long", e, ErrorCode::timed_out, odd);
      const Error again = error_of([&] { c.barrier(); });
      expect(again.code() == e.code(), c, fmt::format("afterwards: {}", again.what()));
      wake(100ms);
    } else {
      // What the others sent before they gave up may be all that this call needs: it may end before
      // it hears of the failure, with the right sum. The next call needs the others.
      std::int32_t got = all;
      Error e = error_of([&] { got = sum(c, 1); });
      expect(got == all, c, "the rank that was stopped has a wrong sum");
      if (e.code() == ErrorCode{}) e = error_of([&] { sum(c, 1); });
      expect(e.code() != ErrorCode{}, c, "the rank that was stopped hears of nothing");
    }
  }
  expect(sum(world, 3) == 3 * all, world, "another communicator is not as it was");

  // semantics.md: R4
  Communicator c = world.split(0, world.rank());
  sum(c, 1);
  if (is_odd) {
    c.destroy();
  } else {
    expect_error(c, "left", error_of([&] { sum(c, 1); }), ErrorCode::peer_lost, odd);
  }
  world.barrier();
}

// semantics.md: R2, R5
void dead(Communicator& c) {
  const int odd = c.size() - 1;
  sum(c, 1);
  Communicator other = c.split(0, c.rank());
  if (c.rank() == odd) {
    std::this_thread::sleep_for(200ms);
    raise(SIGKILL);
  }
  const auto begin = Clock::now();
  const Error e = error_of([&] { sum(c, 1); });
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  expect_error(c, "dead", e, ErrorCode::peer_lost, odd);
  expect(seconds < 10, c, fmt::format("a death is noticed after {:.1f} s", seconds));
  const Error again = error_of([&] { c.barrier(); });
  expect(std::string(again.what()) == e.what(), c, fmt::format("afterwards: {}", again.what()));
  expect_error(c, "another communicator", error_of([&] { other.barrier(); }), ErrorCode::peer_lost,
               odd);
  Communicator rest = c.shrink(std::vector<int>{odd});
  expect(sum(rest, 1) == odd, rest, "the survivors' sum");
}

}  // namespace

int main(int, char** argv) {
  try {
    Communicator c = Communicator::from_environment();
    const std::string_view what = argv[1];
    if (what == "values") values(c);
    if (what == "late") late(c);
    if (what == "dead") dead(c);
  } catch (const std::exception& e) {
    fmt::print(stderr, "semantics_rank: {}\n", e.what());
    return 1;
  }
  return wrong;
}
