// What axes count, how their ranks agree on what they have, and an axis that takes the time of a
// slow link.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/agreement.h"
#include "parallel/mesh.h"
#include "parallel/throttled_axis.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::error_of;
using test::run_thread_ranks;

TEST(Agreements, NameTheFirstLineThatDiffersAndTheRank) {
  run_thread_ranks(3, [](Communicator& world) {
    CommunicatorAxis axis(world);
    const auto refused = [&](const std::vector<std::string>& lines) {
      const Error error = error_of([&] { agree(axis, "this", lines); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      return std::pair(error.rank(), std::string(error.what()));
    };
    const std::vector<std::string> lines{"a", "b\nc", "d"};
    agree(axis, "this", lines);
    std::vector<std::string> mine = lines;
    if (world.rank() == 1) mine.pop_back();
    auto [rank, what] = refused(mine);
    EXPECT_EQ(rank, 1);
    EXPECT_NE(what.find("rank 1 has \"nothing more\" where rank 0 has \"d\""), what.npos) << what;
    if (world.rank() == 2) mine[0] = "e";  // an earlier line
    std::tie(rank, what) = refused(mine);
    EXPECT_EQ(rank, 2);
    EXPECT_NE(what.find("rank 2 has \"e\" where rank 0 has \"a\""), what.npos) << what;
    mine = lines;
    if (world.rank() == 0) mine[0] = "e";  // alone with it
    EXPECT_EQ(refused(mine).first, 0);
    mine = {"a", "b", "c d"};
    if (world.rank() == 1) mine = {"a", "b c", "d"};
    EXPECT_EQ(refused(mine).first, 1);
    agree(axis, "nothing", {});
  });
}

TEST(Agreements, AreRefusedInsideOfAGroup) {
  run_thread_ranks(2, [](Communicator& world) {
    CommunicatorAxis axis(world);
    const std::vector<std::string> lines{"a"};
    Error error(ErrorCode::internal, "none");
    group([&] { error = error_of([&] { agree(axis, "this", lines); }); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
    EXPECT_NE(std::string(error.what()).find("inside of a group()"), std::string::npos)
        << error.what();
    agree(axis, "this", lines);
  });
}

// Of shards and replicas. If all ranks are refused, each one throws its own error. Else all learn
// of the first rank that was refused, and none waits for it.
TEST(Agreements, ARefusalOfOneRankIsEverybodys) {
  run_thread_ranks(4, [](Communicator& world) {
    Mesh mesh(world, {{"pp", 2}, {"tp", 2}});
    Agreement all(mesh.axis("tp"), &mesh.axis("pp"));
    const auto told = [&](int first_refused) {
      return error_of([&] {
        together(all, "this", [&] {
          if (world.rank() < first_refused) return;
          throw Error(ErrorCode::invalid_argument,
                      fmt::format("no {}", first_refused == 0 ? 7 : world.rank()));
        });
      });
    };
    EXPECT_EQ(std::string(told(4).what()), "no error");
    for (const int first : {1, 3}) {
      const Error e = told(first);
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      EXPECT_EQ(e.rank(), first);
      EXPECT_TRUE(std::string(e.what()).starts_with(
          fmt::format("this: rank {0} was refused, and so no rank goes on: no {0};", first)))
          << e.what();
    }
    EXPECT_EQ(told(0).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(std::string(told(0).what()), "no 7");
    world.barrier();
  });
}

TEST(Axes, CountWhatIsCarried) {
  constexpr int kRanks = 4;
  run_thread_ranks(kRanks, [](Communicator& world) {
    CommunicatorAxis axis(world);
    const auto self = static_cast<std::size_t>(world.rank());
    std::vector<float> in(400), out(400);
    axis.all_reduce(in.data(), out.data(), 100, DataType::float32).wait();
    axis.run(call_of(Collective::all_reduce, in.data(), out.data(), 100, DataType::float32));
    EXPECT_EQ(axis.traffic()[Collective::all_reduce], (Traffic::Count{2, 1200, 1200}));
    axis.all_gather(in.data(), out.data(), 100, DataType::float32).wait();
    EXPECT_EQ(axis.traffic()[Collective::all_gather], (Traffic::Count{1, 1200, 1200}));
    axis.reduce_scatter(in.data(), out.data(), 100, DataType::float32).wait();
    EXPECT_EQ(axis.traffic()[Collective::reduce_scatter], (Traffic::Count{1, 1200, 1200}));
    axis.all_to_all(in.data(), out.data(), 100, DataType::float32).wait();
    EXPECT_EQ(axis.traffic()[Collective::all_to_all], (Traffic::Count{1, 1200, 1200}));
    axis.broadcast(in.data(), out.data(), 100, DataType::float32, 2).wait();
    EXPECT_EQ(axis.traffic()[Collective::broadcast],
              (self == 2 ? Traffic::Count{1, 400, 0} : Traffic::Count{1, 0, 400}));

    // Rank r has 10 r elements: of 60 in all.
    const std::vector<std::size_t> counts{0, 10, 20, 30};
    Call gather = call_of(Collective::all_gather_v, in.data(), out.data(), 0, DataType::float32);
    gather.out_counts = counts;
    axis.start(gather).wait();
    EXPECT_EQ(axis.traffic()[Collective::all_gather_v],
              (Traffic::Count{1, 3 * 40 * self, 240 - 40 * self}));
    Call scatter =
        call_of(Collective::reduce_scatter_v, in.data(), out.data(), 0, DataType::float32);
    scatter.in_counts = counts;
    axis.start(scatter).wait();
    EXPECT_EQ(axis.traffic()[Collective::reduce_scatter_v],
              (Traffic::Count{1, 240 - 40 * self, 3 * 40 * self}));

    const int next = (world.rank() + 1) % kRanks, previous = (world.rank() + 3) % kRanks;
    Pending sent = axis.send(in.data(), 7, DataType::float64, next);
    axis.recv(out.data(), 7, DataType::float64, previous).wait();
    sent.wait();
    sent.wait();  // a second time: nothing
    EXPECT_EQ(axis.traffic()[Collective::send_recv], (Traffic::Count{2, 56, 56}));
    const Traffic::Count all = axis.traffic().total();
    EXPECT_EQ(all.calls, 10u);
    EXPECT_GT(axis.traffic().waited.count(), 0);
    axis.reset_traffic();
    EXPECT_EQ(axis.traffic().total(), Traffic::Count{});
  });
}

TEST(Axes, CountRootedCallsByWhatTheRootHasOfTheOthers) {
  const auto of = [](Collective collective, int rank) {
    Call call = call_of(collective, nullptr, nullptr, 10, DataType::float16);
    call.root = 1;
    return traffic_of(call, rank, 3);
  };
  using Count = Traffic::Count;
  EXPECT_EQ(of(Collective::reduce, 0), (Count{1, 20, 0}));
  EXPECT_EQ(of(Collective::reduce, 1), (Count{1, 0, 20}));
  EXPECT_EQ(of(Collective::gather, 0), (Count{1, 20, 0}));
  EXPECT_EQ(of(Collective::gather, 1), (Count{1, 0, 40}));
  EXPECT_EQ(of(Collective::scatter, 0), (Count{1, 0, 20}));
  EXPECT_EQ(of(Collective::scatter, 1), (Count{1, 40, 0}));
  EXPECT_EQ(of(Collective::barrier, 1), (Count{1, 0, 0}));
}

TEST(ThrottledAxes, TakeTheirTimeAndGiveTheSameResults) {
  run_thread_ranks(3, [](Communicator& world) {
    using Clock = std::chrono::steady_clock;
    CommunicatorAxis beneath(world);
    ThrottledAxis axis(beneath, {.bytes_per_second = 1e6, .latency = std::chrono::milliseconds(2)});
    std::vector<float> x(7500, static_cast<float>(world.rank())), y(7500);
    // 2 * 2/3 * 30 kB at 1 MB/s, and the latency: 42 ms. Twice, one after the other.
    const Call call = call_of(Collective::all_reduce, x.data(), y.data(), 7500, DataType::float32);
    EXPECT_EQ(axis.time_of(call), std::chrono::milliseconds(42));
    const auto start = Clock::now();
    Pending first = axis.start(call);
    EXPECT_FALSE(first.ready());
    std::vector<float> z(7500);
    Pending second = axis.all_reduce(x.data(), z.data(), 7500, DataType::float32);
    const int previous = (world.rank() + 2) % 3;
    std::vector<float> came(10);
    Pending received = axis.recv(came.data(), 10, DataType::float32, previous);
    Pending sent = axis.send(x.data(), 10, DataType::float32, (world.rank() + 1) % 3);
    received.wait();
    first.wait();
    second.wait();
    sent.wait();
    EXPECT_GE(Clock::now() - start,
              std::chrono::milliseconds(86));  // all three, one behind the other
    EXPECT_EQ(came, std::vector<float>(10, static_cast<float>(previous)));
    EXPECT_EQ(y, std::vector<float>(7500, 3));
    EXPECT_EQ(z, y);
    EXPECT_EQ(axis.traffic()[Collective::all_reduce].sent, 2u * 40000);
  });
}

}  // namespace
}  // namespace tutti::parallel
