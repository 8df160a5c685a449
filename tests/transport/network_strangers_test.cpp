// Strangers at the ports at which ranks listen for ranks of other hosts, while these work: garbage,
// silence, half-open connections, wrong and reflected proofs. The job goes on, with right results,
// and ranks that connect only now get through. TUTTI_TEST_STRANGERS: how many come (5,000).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "comm/impl.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/variable.h"
#include "transport/network/network.h"
#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

int strangers() { return test::number_from("TUTTI_TEST_STRANGERS", 5000); }

SocketAddress accept_set_of(Communicator& comm) {
  return *comm.impl().group->shared_network()->address().get();
}

/// Comes to `door`, misbehaves in its `kind` of way, and may stay for a while in `held`.
void visit(const SocketAddress& door, const SocketAddress& other_door, int kind,
           std::mt19937& random, std::vector<FileDescriptor>& held) {
  constexpr std::size_t kMostHeld = 100;
  FileDescriptor socket = connect_to(door, deadline_after(5s));
  ASSERT_TRUE(socket);
  std::vector<std::byte> noise(1 + random() % 200);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  switch (kind) {
    case 0:  // random bytes
      write_exactly(socket, noise, deadline_after(100ms));
      break;
    case 1:  // one byte, and silence
      write_exactly(socket, std::span(noise).first(1), deadline_after(100ms));
      [[fallthrough]];
    case 2:  // silence
      if (held.size() >= kMostHeld) held.erase(held.begin());
      held.push_back(std::move(socket));
      break;
    case 3:  // a wrong proof
      write_exactly(socket, protocol::bytes_of(protocol::Proof{}), deadline_after(100ms));
      break;
    default: {  // what another rank says, as if it had been said by this one
      const FileDescriptor other = connect_to(other_door, deadline_after(5s));
      protocol::Greeting greeting, other_greeting;
      const auto greeted = [](const FileDescriptor& from, protocol::Greeting& heard) {
        return from && read_exactly(from, protocol::writable_bytes_of(heard), deadline_after(1s)) ==
                           IoResult::done;
      };
      // Else turned away, as one of too many.
      if (!greeted(socket, greeting) || !greeted(other, other_greeting)) break;
      protocol::Proof proof;
      proof.nonce = other_greeting.nonce;
      write_exactly(socket, protocol::bytes_of(proof), deadline_after(100ms));
      std::array<std::byte, sizeof proof.mac> answer{};
      EXPECT_NE(read_exactly(socket, answer, deadline_after(50ms)), IoResult::done);
    }
  }
}

TEST(NetworkStrangers, DisturbNobodyAtWork) {
  constexpr int kRanks = 4;
  std::array<SocketAddress, kRanks> doors;
  std::atomic<int> begun{0}, visits{0};
  std::atomic<bool> stop{false};
  std::thread attack([&] {
    while (begun < kRanks) std::this_thread::sleep_for(1ms);
    std::vector<std::jthread> attackers;
    for (unsigned a = 0; a < 4; ++a) {
      attackers.emplace_back([&, a] {
        std::mt19937 random(a);
        std::vector<FileDescriptor> held;
        const auto patience = Clock::now() + 100s;
        while (visits++ < strangers() && Clock::now() < patience) {
          const auto at = random() % kRanks;
          visit(doors[at], doors[(at + 1) % kRanks], static_cast<int>(random() % 5), random, held);
        }
      });
    }
    attackers.clear();
    stop = true;
  });
  const auto start = Clock::now();
  int calls = 0;
  std::vector<Options> hosts(kRanks);
  for (int r = 0; r < kRanks; ++r)
    hosts[static_cast<std::size_t>(r)].host_id = fmt::format("h{}", r);
  std::vector<Communicator> comms = Communicator::create_local(hosts);
  {
    std::vector<std::jthread> threads;
    for (Communicator& comm : comms) {
      threads.emplace_back([&] {
        const int rank = comm.rank();
        doors[static_cast<std::size_t>(rank)] = accept_set_of(comm);
        ++begun;
        for (unsigned call = 0;; ++call) {
          // The last element says whether all have seen the end of it.
          std::vector<std::uint64_t> in(1000), out(1000);
          for (std::size_t i = 0; i + 1 < in.size(); ++i) {
            in[i] = call * 7919 + i * kRanks + static_cast<std::uint64_t>(rank);
          }
          in.back() = stop ? 1 : 0;
          comm.all_reduce(in, out);
          for (std::size_t i = 0; i + 1 < in.size(); ++i) {
            ASSERT_EQ(out[i], kRanks * (call * 7919 + i * kRanks) + 6) << "call " << call;
          }
          // Links that were not needed before connect now.
          if (call % 200 == 100) {
            const int peer = (rank + 2) % kRanks;
            int mine = rank, theirs = -1;
            group([&] {
              comm.send(&mine, 1, DataType::int32, peer);
              comm.recv(&theirs, 1, DataType::int32, peer);
            });
            ASSERT_EQ(theirs, peer);
          }
          if (out.back() == kRanks) {
            if (rank == 0) calls = static_cast<int>(call);
            break;
          }
        }
      });
    }
  }
  attack.join();
  fmt::print("{} visits and {} calls in {:.2f} s\n", visits.load(), calls,
             std::chrono::duration<double>(Clock::now() - start).count());
  EXPECT_GE(visits, strangers());
}

}  // namespace
}  // namespace tutti
