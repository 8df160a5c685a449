// Long messages between hosts go from the user's memory and land in it (lending.cpp): a message has
// the bytes that were there, whatever the plan or the user writes there next; nothing is touched
// once a call has ended, even where it has failed; and nobody else notices.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/memory.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// In windows: RDMA devices reach no other memory.
using Words = std::vector<std::uint32_t, Allocator<std::uint32_t>>;

/// Differs by rank, position and call.
std::uint32_t value(int rank, std::size_t at, unsigned call) {
  return static_cast<std::uint32_t>(at * 2654435761U + static_cast<unsigned>(rank) * 40503U +
                                    call * 977U);
}
Words values(int rank, std::size_t count, unsigned call) {
  Words all(count);
  for (std::size_t k = 0; k < count; ++k) all[k] = value(rank, k, call);
  return all;
}
std::uint32_t sum(int ranks, std::size_t at, unsigned call) {
  std::uint32_t total = 0;
  for (int r = 0; r < ranks; ++r) total += value(r, at, call);
  return total;
}

/// Throws where an element is another one, so that the other ranks end, too.
template <class Expected>
void check(const Words& data, Expected&& expected) {
  for (std::size_t k = 0; k < data.size(); ++k) {
    if (data[k] != expected(k)) {
      throw std::runtime_error(fmt::format("element {} of {} is wrong", k, data.size()));
    }
  }
}

/// Each rank a host.
class Lending : public testing::TestWithParam<const char*> {
 protected:
  Environment environment_{{{"TUTTI_TEST_RANKS_PER_HOST", "1"}, {GetParam(), "1"}}};
};
INSTANTIATE_TEST_SUITE_P(Protected, Lending,
                         testing::Values("TUTTI_WINDOWS", "TUTTI_TCP_CHECKSUM", "TUTTI_ENCRYPT"),
                         [](const auto& test) { return std::string(test.param); });

const std::vector<std::size_t> kCounts = {2'000, 2'048, 9'000, 40'001, 300'000, 3'000'017};

TEST_P(Lending, InPlaceEveryAlgorithmIsRight) {
  for (const char* algorithm :
       {"", "ring", "tree", "recursive_doubling", "hierarchical_pipelined", "two_shot"}) {
    SCOPED_TRACE(algorithm);
    Options options;
    options.algorithm = algorithm;
    for (const int ranks : {2, 3}) {
      run_thread_ranks(ranks, options, [&](Communicator& comm) {
        unsigned call = 0;
        for (const std::size_t count : kCounts) {
          Words data = values(comm.rank(), count, ++call);
          comm.all_reduce(data.data(), data.data(), count, DataType::uint32, ReduceKind::sum);
          check(data, [&](std::size_t k) { return sum(ranks, k, call); });
        }
      });
    }
  }
}

TEST_P(Lending, WhatIsSentMayBeOverwrittenAtOnce) {
  run_thread_ranks(2, [&](Communicator& comm) {
    for (unsigned call = 0; call < 4; ++call) {
      for (const std::size_t count : kCounts) {
        if (comm.rank() == 0) {
          Words data = values(0, count, call);
          comm.send(data.data(), count, DataType::uint32, 1);
          std::ranges::fill(data, 0xdeadbeef);
        } else {
          if (call == 0) std::this_thread::sleep_for(20ms);
          Words data(count);
          comm.recv(data.data(), count, DataType::uint32, 0);
          check(data, [&](std::size_t k) { return value(0, k, call); });
        }
      }
    }
  });
}

TEST_P(Lending, OneCallsMessagesAreNotAnothers) {
  run_thread_ranks(3, [&](Communicator& comm) {
    Words in, out;
    for (unsigned call = 0; call < 30; ++call) {
      const std::size_t count = kCounts[call % (kCounts.size() - 1)];
      in = values(comm.rank(), count, call);
      out.assign(count, 1);
      comm.all_reduce(in.data(), out.data(), count, DataType::uint32, ReduceKind::sum);
      check(in, [&](std::size_t k) { return value(comm.rank(), k, call); });
      std::ranges::fill(in, 7U);
      check(out, [&](std::size_t k) { return sum(3, k, call); });
    }
  });
}

/// Rank 1 is late: what is sent to it does not fit the sockets, and waits.
void expect_right(const std::string& plan) {
  Options options;
  options.slots = 2;
  options.slot_bytes = std::size_t{16} << 20;  // more than a socket takes at once
  run_thread_ranks(2, options, [&](Communicator& comm) {
    comm.use_plan(plan);
    for (unsigned call = 0; call < 4; ++call) {
      for (const std::size_t count : kCounts) {
        if (comm.rank() == 1) std::this_thread::sleep_for(5ms);
        Words data = values(comm.rank(), count, call), out(count);
        comm.all_reduce(data.data(), out.data(), count, DataType::uint32, ReduceKind::sum);
        check(out, [&](std::size_t k) { return sum(2, k, call); });
      }
    }
  });
}

TEST_P(Lending, APlanMayWriteWhatItHasJustSent) {
  expect_right(
      "tutti plan 1\nall_reduce twice  ranks 2  pieces 2  slots 2  lanes 1\n"
      "rank 0  tmp 1\n  lane 0\n    tmp[0] <- in[0] as out[0]\n    to(1) <- tmp[0] as out[0]\n"
      "    tmp[0] <- in[1] as out[1]\n    to(1) <- tmp[0] as out[1]\n"
      "    out[0] <- from(1)\n    out[1] <- from(1)\n"
      "rank 1\n  lane 0\n    out[0], to(0) <= in[0] + from(0)\n"
      "    out[1], to(0) <= in[1] + from(0)\n");
}

TEST_P(Lending, NothingLandsInWhatIsBeingSent) {
  expect_right(
      "tutti plan 1\n"
      "all_reduce swap  ranks 2  pieces 1  slots 1  lanes 1\n"
      "rank 0  tmp 2\n"
      "  lane 0\n"
      "    tmp[0] <- in[0] as out[0]\n"
      "    tmp[1] <- in[0] as out[0]\n"
      "    to(1).0 <- tmp[0] as out[0]\n"
      "    tmp[0] <- from(1).1 as out[0]\n"
      "    out[0] <= tmp[1] + tmp[0]\n"
      "rank 1  tmp 1\n"
      "  lane 0\n"
      "    tmp[0] <- in[0] as out[0]\n"
      "    to(0).1 <- in[0]\n"
      "    out[0] <= from(0).0 + tmp[0]\n");
}

/// Memory that is gone afterwards, not only free.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(data_, bytes_); }
  std::uint32_t* data() const { return static_cast<std::uint32_t*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST_P(Lending, EndsWithACallThatFails) {
  constexpr std::size_t kCount = 16 << 20;
  for (const int sender : {0, 1, 0, 1}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      {
        Communicator child = comm.split(0, comm.rank());
        const Pages pages(kCount * 4);
        std::memset(pages.data(), 1, kCount * 4);
        comm.barrier();
        const bool sends = comm.rank() == sender;
        // In the middle of it.
        const std::jthread other([&] {
          std::this_thread::sleep_for(4ms);
          if (sends) child.abort("enough");
        });
        try {
          for (int k = 0; k < 1000; ++k) {
            if (sends) child.send(pages.data(), kCount, DataType::uint32, 1 - sender);
            if (!sends) child.recv(pages.data(), kCount, DataType::uint32, sender);
          }
          ADD_FAILURE() << "it has not ended";
        } catch (const Error&) {
        }
      }
      // Over the same connections.
      for (unsigned call = 0; call < 3; ++call) {
        for (const std::size_t count : kCounts) {
          Words data = values(comm.rank(), count, call), out(count);
          comm.all_reduce(data.data(), out.data(), count, DataType::uint32, ReduceKind::sum);
          check(out, [&](std::size_t k) { return sum(2, k, call); });
        }
      }
    });
  }
}

}  // namespace
}  // namespace tutti::test
