// What processes go through and threads do not, within one process, where it can be arranged: ranks
// that are threads, but treat each other as processes (TUTTI_APART), with sockets, descriptors that
// travel, and mappings of their own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "tests/comm/call_value.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::call_value;
using test::error_of;
using test::run_thread_ranks;

constexpr std::size_t kReduced = 25'000;
using NumbersInWindow = std::vector<std::int32_t, Allocator<std::int32_t>>;

class Apart : public testing::Test {
 protected:
  Environment environment_{{{"TUTTI_APART", "1"}}};
};

/// One all_reduce of new buffers. Whether the result is right.
bool reduces_right(Communicator& comm, int call, NumbersInWindow& in, NumbersInWindow& out) {
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = call_value(comm.rank(), i, call);
  comm.all_reduce(in.data(), out.data(), in.size(), DataType::int32);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int32_t sum = 0;
    for (int r = 0; r < comm.size(); ++r) sum += call_value(r, i, call);
    if (out[i] != sum) return false;
  }
  return true;
}

TEST_F(Apart, RanksAreApart) {
  run_thread_ranks(2, [](Communicator& comm) {
    NumbersInWindow in(kReduced), out(kReduced);
    EXPECT_TRUE(reduces_right(comm, 0, in, out));
    comm.barrier();
    std::ifstream maps("/proc/self/maps");
    int mappings = 0;
    for (std::string line; std::getline(maps, line);) {
      mappings += line.find("tutti-window") != std::string::npos ? 1 : 0;
    }
    comm.barrier();
    EXPECT_GE(mappings, 8) << "two buffers of two ranks, mapped by both";
  });
}

// Ranks that pass each other new windows in each call, while another one, with which they share a
// communicator as well, computes and hears of nothing.
TEST_F(Apart, ARankThatComputesStallsNobody) {
  std::latch others_done(2);
  struct CountDown {
    std::latch& latch;
    ~CountDown() { latch.count_down(); }
  };
  run_thread_ranks(3, [&](Communicator& all) {
    Communicator part = all.split(all.rank() < 2 ? 0 : 1, 0);
    std::list<NumbersInWindow>
        kept;  // so that the third one has to hear of all of them, in the end
    if (all.rank() == 2) {
      others_done.wait();
    } else {
      const CountDown done{others_done};
      const auto begun = std::chrono::steady_clock::now();
      for (int call = 0; call < 500; ++call) {
        NumbersInWindow& in = kept.emplace_back(kReduced);
        NumbersInWindow& out = kept.emplace_back(kReduced);
        ASSERT_TRUE(reduces_right(part, call, in, out)) << "call " << call;
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
    }
    if (kept.empty()) kept.resize(2, NumbersInWindow(kReduced));
    for (int call = 0; call < 2; ++call) {
      EXPECT_TRUE(reduces_right(all, call, kept.front(), kept.back()));
    }
  });
}

// A root that hears of many windows which it never touches, as its own output is written to.
TEST_F(Apart, WindowsThatNobodyTouchesMayBeGone) {
  run_thread_ranks(3, [](Communicator& comm) {
    const auto n = static_cast<std::size_t>(comm.size());
    for (int call = 0; call < 300; ++call) {
      NumbersInWindow in(kReduced), out(n * kReduced);
      for (std::size_t i = 0; i < kReduced; ++i) in[i] = call_value(comm.rank(), i, call);
      comm.gather(in.data(), out.data(), kReduced, DataType::int32, 1);
      for (std::size_t i = 0; comm.rank() == 1 && i < out.size(); ++i) {
        ASSERT_EQ(out[i], call_value(static_cast<int>(i / kReduced), i % kReduced, call))
            << "call " << call;
      }
    }
  });
}

/// How many descriptors are open, as a limit that leaves room for no more.
rlim_t lowest_free_descriptor() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(fd);
  return static_cast<rlim_t>(fd);
}

TEST_F(Apart, ADescriptorThatFindsNoRoomIsSpokenOf) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::latch allocated(2);
  std::latch failed(2);
  std::vector<Communicator> comms = Communicator::create_local(2);
  std::vector<Error> errors(2, Error(ErrorCode{}, "no error"));
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        NumbersInWindow in(kReduced), out(kReduced);
        allocated.arrive_and_wait();
        if (r == 0) {
          const rlimit none{lowest_free_descriptor(), before.rlim_max};
          setrlimit(RLIMIT_NOFILE, &none);
        }
        errors[r] = error_of([&] {
          for (int call = 0; call < 20; ++call) reduces_right(comms[r], call, in, out);
        });
        failed.arrive_and_wait();
        setrlimit(RLIMIT_NOFILE, &before);
      });
    }
  }
  for (const Error& e : errors) {
    EXPECT_EQ(e.code(), ErrorCode::system) << e.what();
    EXPECT_NE(std::string(e.what()).find("file descriptors"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("ulimit -n"), std::string::npos) << e.what();
  }
}

/// Whether the page at `memory`, of a window, has been touched by anybody.
bool is_touched(std::byte* memory) {
  unsigned char there = 0;
  return mincore(memory, 1, &there) == 0 && (there & 1) != 0;
}

// One step that takes long reads a peer's memory, whose call fails meanwhile: the peer frees it, as
// it may, and this rank hears of that on another thread, which waits in another communicator.
TEST_F(Apart, MemoryIsFreedAfterAFailureWhileAnotherRankReadsIt) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr std::size_t kSome = std::size_t{4} << 20;  // read by then
  const Environment one_tile{{{"TUTTI_TILE_BYTES", "1G"}}};
  Options options;
  options.algorithm = "direct_window";  // rank 0 reads everything
  std::vector<Communicator> comms = Communicator::create_local(2, options);
  std::vector<Communicator> others(2);
  {
    const std::jthread first([&] { others[0] = comms[0].split(0, 0); });
    others[1] = comms[1].split(0, 0);
  }
  std::vector<std::byte*> in(2);
  for (std::byte*& memory : in) memory = static_cast<std::byte*>(allocate(kBytes));
  auto* const out = static_cast<std::byte*>(allocate(kBytes));
  const auto reduce = [&](std::size_t rank) {
    comms[rank].reduce(in[rank], out, kBytes, DataType::uint8, ReduceKind::sum, 0);
  };
  std::atomic<bool> over = false;
  bool was_over = true;
  {
    const std::jthread reader([&] {
      EXPECT_EQ(error_of([&] { reduce(0); }).code(), ErrorCode::aborted) << "it has read zeros";
      over = true;
    });
    const std::jthread listener([&] { others[0].barrier(); });
    const std::jthread owner([&] {
      EXPECT_EQ(error_of([&] { reduce(1); }).code(), ErrorCode::aborted);
      deallocate(in[1]);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the listener looks every 10 ms
      was_over = over;
      others[1].barrier();
    });
    while (!is_touched(out + kSome) && !over) std::this_thread::yield();
    comms[1].abort("the test gives up");
  }
  if (was_over) GTEST_LOG_(WARNING) << "nothing was tested: the reader was too fast";
  deallocate(in[0]);
  deallocate(out);
}

TEST_F(Apart, EverythingElseWorksToo) {
  run_thread_ranks(4, [](Communicator& comm) {
    for (int call = 0; call < 20; ++call) {
      NumbersInWindow in(kReduced), out(kReduced);
      ASSERT_TRUE(reduces_right(comm, call, in, out));
      std::vector<std::int32_t> plain(kReduced, comm.rank()), received(kReduced);
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      group([&] {
        comm.send(plain.data(), kReduced, DataType::int32, next);
        comm.recv(received.data(), kReduced, DataType::int32, previous);
      });
      EXPECT_EQ(received, std::vector<std::int32_t>(kReduced, previous));
      Communicator half = comm.split(comm.rank() % 2, 0);
      NumbersInWindow half_in(kReduced), half_out(kReduced);
      EXPECT_TRUE(reduces_right(half, call, half_in, half_out));
    }
  });
}

}  // namespace
}  // namespace tutti
