// What is chosen for several hosts: it addresses no other host, sends little across where wires are
// slow, and in few hops where messages are short. Part of hosts_test.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

#include "collectives/cut.h"
#include "collectives/model/choose.h"
#include "tests/collectives/model/hosts_shapes.h"

namespace tutti {
namespace {

using namespace test;

TEST(Choose, OfLongMessagesLittleCrossesAWireOfOneGigabit) {
  for (const std::vector<int>& host :
       {in_order({2, 2}), in_turn(2, 2), in_order({1, 3}), in_order({4, 4, 4})}) {
    const Platform p = platform(host, 1);
    for (const Access access : {Access::windows, Access::none}) {
      for (const Collective c :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
            Collective::broadcast, Collective::reduce}) {
        const Workload w{c, 16 << 20, DataType::float32, access};
        Chooser chooser(p);
        const Algorithm& chosen = chooser.choose(w);
        double least = std::numeric_limits<double>::infinity();
        double sends = 0;
        for (const Prediction& candidate : chooser.candidates(w)) {
          least = std::min(least, candidate.across);
          if (candidate.algorithm == &chosen) sends = candidate.across;
        }
        EXPECT_LE(sends, least * 1.001)
            << name(c) << " " << chosen.name << " on " << fmt::format("{}", fmt::join(host, " "));
        // So the time is that of the wire, and little more.
        const double wire = sends * p.machine.net_wire / 1024;
        const double ns = predict(chosen, w, p).ns;
        EXPECT_GT(ns, wire);
        EXPECT_LT(ns, (access == Access::windows ? 1.25 : 1.5) * wire)
            << name(c) << " " << chosen.name;
      }
    }
  }
  const Workload w{Collective::all_reduce, 16 << 20, DataType::float32};
  EXPECT_TRUE(is_composed_or_grouped(Chooser(platform(in_turn(2, 2), 1)).choose(w)));
}

// Where cores are the limit, to cut a message costs more than it gains; longer ones gain by adding
// up less.
TEST(Choose, TwoHostsExchangeOnceUpToHundredsOfKiB) {
  Platform p = platform({0, 1}, 40);
  p.links = {32, 512 << 10, 4};
  p.least_piece = kLeastFarPiece;
  Chooser chooser(p);
  const auto chosen = [&](std::size_t bytes) {
    return chooser.choose({Collective::all_reduce, bytes, DataType::float32, Access::none}).name;
  };
  for (const std::size_t bytes : {8, 4 << 10, 32 << 10, 256 << 10}) {
    EXPECT_EQ(chosen(bytes), "recursive_doubling") << bytes;
  }
  EXPECT_EQ(chosen(16 << 20), "ring");
}

TEST(Choose, ShortMessagesTakeTheFewestHopsBetweenHosts) {
  for (const std::vector<int>& host : {in_order({2, 2}), in_turn(2, 2), in_order({1, 1}),
                                       in_order({1, 3}), in_turn(3, 2), in_order({4, 4})}) {
    const Platform p = platform(host);
    for (const Collective c : {Collective::all_reduce, Collective::all_gather,
                               Collective::reduce_scatter, Collective::broadcast}) {
      Chooser chooser(p);
      const Workload w{c, 8, DataType::float32};
      const auto hops = [&](const Algorithm& a) {
        return hops_across(laid_out_plan(a, {c, p.ranks}, p.layout()), p.hosts);
      };
      double fewest = std::numeric_limits<double>::infinity();
      for (const Prediction& candidate : chooser.candidates(w)) {
        fewest = std::min(fewest, hops(*candidate.algorithm));
      }
      EXPECT_EQ(hops(chooser.choose(w)), fewest)
          << name(c) << " " << chooser.choose(w).name << " on "
          << fmt::format("{}", fmt::join(host, " "));
    }
  }
}

TEST(Choose, NothingThatAddressesAnotherHostIsACandidate) {
  for (const std::vector<int>& host : {in_turn(2, 4), in_turn(4, 10), in_order({20, 3, 1})}) {
    const Platform p = platform(host);
    Chooser chooser(p);
    for (const Algorithm& a : algorithms()) {
      const Workload w{a.collective, 1 << 20, DataType::float32};
      EXPECT_TRUE(chooser.may_run(chooser.choose(w)));
      EXPECT_TRUE(chooser.may_run(a) || !predict(a, w, p).possible) << a.name;
      for (const Prediction& c : chooser.candidates(w)) EXPECT_TRUE(chooser.may_run(*c.algorithm));
    }
  }
}

TEST(Choose, ForManyHostsTakesNoLongerThanItIsWorth) {
  const auto start = std::chrono::steady_clock::now();
  Chooser chooser(platform(in_turn(125, 8)));
  const Algorithm& chosen = chooser.choose({Collective::all_reduce, 64 << 20, DataType::float32});
  EXPECT_FALSE(chosen.name == "one_shot" || chosen.name == "recursive_doubling") << chosen.name;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// A wire is never faster than its bandwidth, also where there are too many ranks to simulate.
TEST(Predict, TheWireIsALimit) {
  for (const std::vector<int>& host : {in_turn(2, 4), in_turn(4, 8)}) {
    const Platform p = platform(host, 1);
    for (const Algorithm& a : algorithms()) {
      const Prediction result = predict(a, {a.collective, 8 << 20, DataType::float32}, p);
      if (!result.possible || a.collective == Collective::barrier) continue;
      const double wire = result.across * p.machine.net_wire / 1024;
      EXPECT_GT(result.across, 0) << name(a.collective) << " " << a.name;
      EXPECT_GT(result.ns, 0.99 * wire) << name(a.collective) << " " << a.name;
      if (is_composed_or_grouped(a)) {
        EXPECT_LT(result.ns, 2 * wire) << name(a.collective) << " " << a.name;
      }
    }
  }
}

}  // namespace
}  // namespace tutti
