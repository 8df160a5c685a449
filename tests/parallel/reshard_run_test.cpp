// Reshards that run: random pairs on threads, in messages and from bound memory, on one host and on
// several; coded; and what goes wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/reshard/buffers.h"
#include "parallel/reshard/reshard.h"
#include "tests/parallel/reshard_cases.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::reshard::test {
namespace {

using tutti::test::error_of;
using tutti::test::run_thread_ranks;

ReshardOptions options_of(const Case& c) {
  ReshardOptions o;
  o.message_bytes = c.options.message_bytes;
  o.host_message_bytes = c.options.host_message_bytes;
  o.hosts = c.options.hosts;
  return o;
}

/// A thread for each rank, with options of its own.
void run_on(const std::vector<Options>& each, const std::function<void(Communicator&)>& body) {
  std::vector<Communicator> comms = Communicator::create_local(each);
  std::vector<std::jthread> threads;
  for (Communicator& comm : comms) {
    threads.emplace_back([&] {
      try {
        body(comm);
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
        comm.abort("a test body threw");
      }
    });
  }
}

/// Runs the case twice on each rank, with other values: from bound memory, or in messages.
void run_case(Communicator& comm, const Case& c, const ReshardOptions& options, bool bind,
              std::uint64_t seed) {
  const int rank = comm.rank();
  RankMemory source(c.from, rank), target(c.to, rank);
  Reshard reshard(comm, c.from, c.to, options);
  if (bind) reshard.bind(source.sources, target.pointers);
  for (const std::uint64_t version : {1, 2}) {
    fill(c.from, rank, version, source);
    if (bind) {
      reshard.run();
    } else if (version == 1) {
      reshard.run(source.sources, target.pointers);
    } else {
      Transfer transfer = reshard.start(source.sources, target.pointers);
      transfer.wait();
    }
    EXPECT_EQ(wrong(c.from, c.to, rank, version, target), "")
        << "seed " << seed << (bind ? ", bound" : ", in messages");
  }
}

TEST(ReshardRun, RandomPairsBringEveryElement) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Case c = random_case(seed);
    run_thread_ranks(c.to.ranks, [&](Communicator& comm) {
      run_case(comm, c, options_of(c), seed % 2 == 0, seed);
    });
  }
}

TEST(ReshardRun, RandomPairsBringEveryElementBetweenHosts) {
  for (std::uint64_t seed = 200; seed < 220; ++seed) {
    const Case c = random_case(seed);
    std::vector<Options> each(c.options.hosts.size());
    for (std::size_t r = 0; r < each.size(); ++r) {
      each[r].host_id = std::to_string(c.options.hosts[r]);
    }
    run_on(each, [&](Communicator& comm) {
      ReshardOptions options = options_of(c);
      options.hosts.clear();  // it finds them itself
      run_case(comm, c, options, seed % 2 == 0, seed);
    });
  }
}

/// Inverts the bits, behind a byte of the message's number.
class Inverting final : public Coder {
 public:
  std::size_t most(std::size_t plain) const override { return plain + 1; }
  std::size_t encode(std::size_t number, std::span<const std::byte> plain,
                     std::span<std::byte> coded) override {
    coded[0] = static_cast<std::byte>(number);
    for (std::size_t i = 0; i < plain.size(); ++i) coded[i + 1] = ~plain[i];
    ++encoded;
    return plain.size() + 1;
  }
  void decode(std::size_t number, std::span<const std::byte> coded,
              std::span<std::byte> plain) override {
    if (coded[0] != static_cast<std::byte>(number) || coded.size() != plain.size() + 1) {
      throw Error(ErrorCode::internal, "another message");
    }
    for (std::size_t i = 0; i < plain.size(); ++i) {
      present_is_there = present_is_there && plain[i] == RankMemory::kGap;
      plain[i] = ~coded[i + 1];
    }
    ++decoded;
  }
  bool wants_present() const override { return true; }
  int encoded = 0, decoded = 0;
  bool present_is_there = true;
};

TEST(ReshardRun, ACoderSeesEachMessageBetweenHostsAndWhatTheReceiverHas) {
  Layout from(4), to(4);
  const Tensor tensor{"w", DataType::int32, {64, 64}};
  add_sharded(from, tensor, {{2}, {shard(0)}, {0, 1}});
  add_sharded(to, tensor, {{2}, {shard(1)}, {2, 3}});
  std::atomic<int> encoded = 0, decoded = 0;
  run_thread_ranks(4, [&](Communicator& comm) {
    const auto coder = std::make_shared<Inverting>();
    ReshardOptions options;
    options.hosts = {0, 0, 1, 1};
    options.message_bytes = 1000;
    options.coder = coder;
    RankMemory source(from, comm.rank()), target(to, comm.rank());
    fill(from, comm.rank(), 1, source);
    Reshard reshard(comm, from, to, options);
    reshard.run(source.sources, target.pointers);
    EXPECT_EQ(wrong(from, to, comm.rank(), 1, target), "");
    EXPECT_TRUE(coder->present_is_there);
    encoded += coder->encoded;
    decoded += coder->decoded;
    // A byte more in each message.
    const auto expected = comm.rank() < 2 ? 8192u + static_cast<unsigned>(coder->encoded) : 0u;
    EXPECT_EQ(reshard.traffic().sent_to_hosts, expected);
  });
  EXPECT_GT(encoded, 16);
  EXPECT_EQ(encoded, decoded);
}

// --- What goes wrong
// -------------------------------------------------------------------------------

struct Simple {
  Layout from{2}, to{2};
  Tensor tensor{"w", DataType::float32, {8}};
  Simple() {
    const int first[] = {0}, second[] = {1};
    add_replicated(from, tensor, first);
    add_replicated(to, tensor, second);
  }
};

TEST(ReshardRun, RanksWithDifferentLayoutsAreTold) {
  const Simple s;
  run_thread_ranks(2, [&](Communicator& comm) {
    Layout to = s.to;
    if (comm.rank() == 1) to.tensors[0].pieces[0].offset = 4;
    const Error e = error_of([&] { Reshard(comm, s.from, to); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_CONTAINS(e, "target layout");
  });
}

TEST(ReshardRun, LayoutsOfAnotherNumberOfRanksAreRefused) {
  const Simple s;
  run_thread_ranks(3, [&](Communicator& comm) {
    const Error e = error_of([&] { Reshard(comm, s.from, s.to); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(e, "of 2 ranks, and the communicator has 3");
  });
}

TEST(ReshardRun, AMissingBufferIsAnErrorOnAllRanks) {
  const Simple s;
  run_thread_ranks(2, [&](Communicator& comm) {
    Reshard reshard(comm, s.from, s.to);
    RankMemory source(s.from, comm.rank()), target(s.to, comm.rank());
    if (comm.rank() == 1) target.pointers[0] = nullptr;
    const Error e = error_of([&] { reshard.run(source.sources, target.pointers); });
    EXPECT_CONTAINS(e, "the destination buffer 'w', of which it holds 32 bytes");
    EXPECT_EQ(error_of([&] { reshard.run(); }).code(), ErrorCode::invalid_usage);
  });
}

TEST(ReshardRun, AReceiverWithoutASenderTimesOut) {
  const Simple s;
  run_thread_ranks(2, [&](Communicator& comm) {
    ReshardOptions options;
    options.timeout = std::chrono::milliseconds(200);
    Reshard reshard(comm, s.from, s.to, options);
    RankMemory source(s.from, comm.rank()), target(s.to, comm.rank());
    reshard.bind(source.sources, target.pointers);
    if (comm.rank() == 1) {
      const auto begin = std::chrono::steady_clock::now();
      const Error e = error_of([&] { reshard.run(); });
      EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    }
    comm.barrier();
  });
}

TEST(ReshardRun, AReshardThatEndsWaitsForItsRun) {
  const Simple s;
  run_thread_ranks(2, [&](Communicator& comm) {
    RankMemory source(s.from, comm.rank()), target(s.to, comm.rank());
    fill(s.from, comm.rank(), 1, source);
    Transfer transfer;
    {
      Reshard reshard(comm, s.from, s.to);
      transfer = reshard.start(source.sources, target.pointers);
    }
    EXPECT_TRUE(transfer.ready());
    transfer.wait();
    EXPECT_EQ(wrong(s.from, s.to, comm.rank(), 1, target), "");
  });
}

TEST(ReshardRun, AnAbortEndsARunThatWaits) {
  const Simple s;
  run_thread_ranks(2, [&](Communicator& comm) {
    Reshard reshard(comm, s.from, s.to);
    RankMemory source(s.from, comm.rank()), target(s.to, comm.rank());
    reshard.bind(source.sources, target.pointers);
    comm.barrier();
    if (comm.rank() == 1) {
      Transfer transfer = reshard.start();
      EXPECT_FALSE(transfer.wait_for(std::chrono::milliseconds(50)));
      reshard.abort("the test ends it");
      EXPECT_EQ(error_of([&] { transfer.wait(); }).code(), ErrorCode::aborted);
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace tutti::parallel::reshard::test
