// The cost model: simulated times that can be worked out by hand, and what must hold for all
// algorithms. No clock is involved, but for how long a choice takes.
#include "collectives/model/predict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "collectives/model/choose.h"
#include "collectives/model/host_scenario.h"
#include "execute/host/write_trial.h"
#include "tests/collectives/model/hops.h"

namespace tutti {
namespace {

constexpr ConnectionShape kLinks{8, 64 << 10};
constexpr std::size_t kTile = 4 << 20;

/// Round numbers, as of a server with a core for every rank.
Machine plain_machine() {
  Machine m;
  m.l2_bytes = 1 << 20;
  m.l3_bytes = 32 << 20;
  m.call_ns = 50;
  m.step_ns = 20;
  m.link_ns = 20;
  m.latency_ns = 200;
  m.switch_ns = 1500;
  m.window_ns = 300;
  m.slot_write = 200;
  m.slot_read = 50;
  m.l2_read = m.l2_write = 10;
  m.l3_read = m.l3_write = 20;
  m.memory_read = 60;
  m.memory_write = 80;
  m.stream_write = 40;
  m.memory_bandwidth = 100;
  m.reduce_float32 = m.reduce_other = 6;
  m.reduce_float16 = 30;
  m.reduce_float8 = 200;
  return m;
}

Platform platform_of(int ranks, int cores = 0) {
  return {plain_machine(), ranks, cores > 0 ? cores : ranks, kLinks, kTile};
}

const Algorithm& algorithm(Collective c, std::string_view name) {
  const Algorithm* a = find_algorithm(c, name);
  EXPECT_NE(a, nullptr) << name;
  return *a;
}

double predicted(std::string_view name, std::size_t bytes, const Platform& p,
                 Collective c = Collective::all_reduce) {
  return predict(algorithm(c, name), {c, bytes, DataType::float32}, p).ns;
}

TEST(Simulate, HopsAreThoseOfTheTextbook) {
  SimulationOptions all;
  all.latency_ns = 1;
  for (const Algorithm& a : algorithms()) {
    for (int n = 1; n <= 17; ++n) {
      PlanRequest request;
      request.collective = a.collective;
      request.ranks = n;
      const double hops = test::hops_of(generate_plan(a, request), all);
      const double textbook = a.hops(request).inside + a.hops(request).across;
      const std::string what = std::string(name(a.collective)) + " " + std::string(a.name) +
                               " on " + std::to_string(n) + " ranks";
      // Where a round's blocks are not contiguous, it has two messages, and the textbook one.
      const bool in_parts = a.name == "bruck" || (a.name == "recursive_halving" &&
                                                  a.collective == Collective::reduce_scatter);
      if (in_parts) {
        EXPECT_GE(hops, textbook) << what;
        EXPECT_LE(hops, 2 * textbook) << what;
      } else if (a.groups != Algorithm::Groups::none) {
        EXPECT_NEAR(hops, textbook, 1) << what;  // such a round inside, or stages that overlap
      } else {
        EXPECT_EQ(hops, textbook) << what;
      }
    }
  }
}

/// Rank 0 sends `times` messages to rank 1.
Plan stream(int times) {
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.ranks = 2;
  Plan plan{header, {}};
  for (int r = 0; r < 2; ++r) {
    RankPlanBuilder b(header, r);
    for (int i = 0; i < times; ++i) {
      if (r == 0) b.lane(0).step({to(1)}, {in(0)});
      if (r == 1) b.lane(0).step({out(0)}, {from(0)});
    }
    plan.ranks.push_back(b.finish());
  }
  return plan;
}

StepCosts stream_costs(int times, double send, double receive) {
  const auto n = static_cast<std::size_t>(times);
  return {{std::vector<double>(n, send)}, {std::vector<double>(n, receive)}};
}

TEST(Simulate, SenderAndReceiverOverlap) {
  SimulationOptions o;
  o.cores = 2;
  o.slots = 8;
  o.latency_ns = 5;
  // Sends end at 10, 20, 30, 40; each is there 5 later, and takes 3.
  EXPECT_EQ(simulate(stream(4), stream_costs(4, 10, 3), o), 48);
  // The receiver is the slower one: 10 + 5, then four times 30.
  EXPECT_EQ(simulate(stream(4), stream_costs(4, 10, 30), o), 135);
}

TEST(Simulate, ASenderWaitsForAFreeSlot) {
  SimulationOptions o;
  o.cores = 2;
  o.slots = 1;
  o.latency_ns = 5;
  // Send 10, way 5, receive 3, way back 5; the last message needs no way back.
  EXPECT_EQ(simulate(stream(4), stream_costs(4, 10, 3), o), 4 * 23 - 5);
}

TEST(Simulate, TilesRepeatThePlan) {
  SimulationOptions o;
  o.cores = 2;
  o.slots = 8;
  o.latency_ns = 5;
  o.tiles = 4;
  EXPECT_EQ(simulate(stream(1), stream_costs(1, 10, 3), o), 48);
}

TEST(Simulate, RanksThatShareACoreTakeTurns) {
  SimulationOptions o;
  o.cores = 1;
  o.slots = 8;
  o.latency_ns = 5;
  o.switch_ns = 100;
  // All sends (40), a switch, all receives (12): the latency passes meanwhile.
  EXPECT_EQ(simulate(stream(4), stream_costs(4, 10, 3), o), 152);
  // With one slot the core changes hands seven times, and each time but the first, when the
  // receiver waits for nothing but the core, the way of a message comes before that.
  o.slots = 1;
  EXPECT_EQ(simulate(stream(4), stream_costs(4, 10, 3), o), 4 * 13 + 7 * 100 + 6 * 5);
}

TEST(Predict, MoreBytesTakeLonger) {
  for (const Algorithm& a : algorithms()) {
    if (a.collective == Collective::barrier || a.collective == Collective::all_to_all_v) continue;
    for (const int ranks : {2, 3, 4, 8, 64}) {
      double last = 0;
      for (std::size_t bytes = 64; bytes <= std::size_t{1} << 30; bytes *= 4) {
        const Prediction p =
            predict(a, {a.collective, bytes, DataType::float32}, platform_of(ranks));
        if (!p.possible) continue;
        EXPECT_GE(p.ns, last * 0.999)
            << name(a.collective) << " " << a.name << ", " << ranks << " ranks, " << bytes;
        last = p.ns;
      }
    }
  }
}

TEST(Predict, ClosedFormContinuesTheSimulation) {
  static_assert(kMostSimulatedRanks == 16);
  for (const Algorithm& a : algorithms()) {
    if (a.collective == Collective::all_to_all_v) continue;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{64} << 10, std::size_t{8} << 20}) {
      if (bytes > 0 && a.collective == Collective::barrier) continue;
      const Workload w{a.collective, bytes, DataType::float32};
      const Prediction simulated = predict(a, w, platform_of(16));
      // Of 17 ranks each would be a group of its own.
      const Prediction closed =
          predict(a, w, platform_of(a.name.starts_with("hierarchical_") ? 20 : 17));
      ASSERT_TRUE(simulated.possible && closed.possible);
      EXPECT_TRUE(simulated.simulated && !closed.simulated);
      EXPECT_GT(closed.ns, simulated.ns / 3) << name(a.collective) << " " << a.name << " " << bytes;
      EXPECT_LT(closed.ns, simulated.ns * 3) << name(a.collective) << " " << a.name << " " << bytes;
    }
  }
}

TEST(Predict, ManyRanksPreferLogarithmsForShortMessages) {
  const Platform p = platform_of(64);
  EXPECT_LT(predicted("recursive_doubling", 8, p), predicted("one_shot", 8, p));
  EXPECT_LT(predicted("tree", 8, p), predicted("ring", 8, p));
  EXPECT_LT(predicted("recursive_doubling", 8, p), predicted("ring", 8, p));
  // If messages cost their sender nothing, everybody may send to everybody.
  Platform free = p;
  free.machine.link_ns = free.machine.step_ns = 0.1;
  EXPECT_LT(predicted("one_shot", 8, free), predicted("recursive_doubling", 8, free));
}

TEST(Predict, LongMessagesPreferFewBytes) {
  for (const int ranks : {4, 8, 64}) {
    const Platform p = platform_of(ranks);
    constexpr std::size_t kLong = 64 << 20;
    EXPECT_LT(predicted("two_shot", kLong, p), predicted("one_shot", kLong, p)) << ranks;
    EXPECT_LT(predicted("ring", kLong, p), predicted("recursive_doubling", kLong, p)) << ranks;
    EXPECT_LT(predicted("two_shot_window", kLong, p), predicted("two_shot", kLong, p)) << ranks;
    EXPECT_LT(predicted("chain", kLong, p, Collective::broadcast),
              predicted("direct", kLong, p, Collective::broadcast))
        << ranks;
  }
}

TEST(Predict, TheMemoryIsALimit) {
  Platform p = platform_of(8);
  const double fast = predicted("two_shot_window", 256 << 20, p);
  p.machine.memory_bandwidth = 1;
  const Prediction slow = predict(algorithm(Collective::all_reduce, "two_shot_window"),
                                  {Collective::all_reduce, 256 << 20, DataType::float32}, p);
  EXPECT_GT(slow.ns, 5 * fast);
  EXPECT_NEAR(slow.memory_ns / slow.ns, 1, 0.01);
  // Eight ranks read and write 2N each: 4 GiB through memory that moves a byte a nanosecond.
  EXPECT_NEAR(slow.memory_ns, 8.0 * 2 * (256 << 20), 1e7);
}

TEST(Predict, FewerCoresTakeLonger) {
  for (const char* name : {"one_shot", "ring", "two_shot", "two_shot_window"}) {
    EXPECT_GT(predicted(name, 8, platform_of(4, 2)), predicted(name, 8, platform_of(4)) + 1500)
        << name;
    EXPECT_GT(predicted(name, 8, platform_of(64, 2)), 5 * predicted(name, 8, platform_of(64)))
        << name;
  }
}

TEST(Predict, NarrowFloatsTakeLongerToAddUp) {
  const Algorithm& a = algorithm(Collective::all_reduce, "two_shot_window");
  const auto time = [&](DataType type) {
    return predict(a, {Collective::all_reduce, 256 << 10, type}, platform_of(4)).ns;
  };
  EXPECT_LT(time(DataType::float32), time(DataType::bfloat16));
  EXPECT_LT(time(DataType::bfloat16), time(DataType::float8_e5m2));
}

TEST(Predict, WhatLinksDoNotCarryIsNotPossible) {
  Platform p = platform_of(4);
  p.links.slots = 1;
  const Workload w{Collective::all_reduce, 1024, DataType::float32};
  EXPECT_FALSE(predict(algorithm(Collective::all_reduce, "two_shot"), w, p).possible);
  EXPECT_TRUE(predict(algorithm(Collective::all_reduce, "one_shot"), w, p).possible);
}

TEST(Cut, ResultsThatDoNotFitTheCacheArePastIt) {
  const auto slots = [](Collective collective, const char* algorithm, int ranks, int rank) {
    PlanRequest request;
    request.collective = collective;
    request.ranks = ranks;
    return slots_in_use(find_algorithm(collective, algorithm)->generate(request, rank), kLinks) /
           kLinks.data_bytes();
  };
  EXPECT_EQ(slots(Collective::all_reduce, "ring", 4, 1), 1U);
  EXPECT_EQ(slots(Collective::all_reduce, "two_shot", 4, 1), 3U);
  EXPECT_EQ(slots(Collective::broadcast, "direct", 4, 0), 3U) << "the root sends";
  EXPECT_EQ(slots(Collective::broadcast, "direct", 4, 2), 1U) << "the others receive";
  EXPECT_EQ(slots(Collective::all_reduce, "two_shot_window", 4, 1), 0U);
  // In and out of two ranks, and of the slots what passes through them.
  constexpr std::size_t kL3 = 32 << 20;
  const auto past = [](std::size_t bytes, std::size_t of_slots, int ranks) {
    return writes_past_caches(bytes_in_caches(bytes, of_slots, ranks), kL3);
  };
  EXPECT_TRUE(past(8 << 20, 0, 2));
  EXPECT_FALSE(past((8 << 20) - 1, 0, 2));
  EXPECT_FALSE(past(4 << 20, 2 << 20, 2));
  EXPECT_TRUE(past(7 << 20, 2 << 20, 2));
  EXPECT_TRUE(past(2 << 20, 6 << 20, 4));
  EXPECT_FALSE(past(1 << 20, 6 << 20, 4));
  EXPECT_FALSE(past(0, 6 << 20, 4));
  EXPECT_TRUE(may_fit_caches(kL3, kL3));
  EXPECT_FALSE(may_fit_caches(kL3 / 2, kL3));
  EXPECT_FALSE(may_fit_caches(2 * kL3, kL3));
}

/// How many of the next calls, which take so long, are written past the caches.
int past_caches(WriteTrial& trial, int calls, double cached_ns, double past_ns) {
  int past = 0;
  for (int i = 0; i < calls; ++i) {
    const bool way = trial.next();
    past += way ? 1 : 0;
    trial.took(way ? past_ns : cached_ns);
  }
  return past;
}

TEST(WriteTrial, TakesTheFasterWayAndSeesWhenThatChanges) {
  for (const bool guess : {false, true}) {
    WriteTrial trial(guess);
    EXPECT_EQ(past_caches(trial, 32, 600, 400), guess ? 32 : 0);
    past_caches(trial, 256 - 32, 600, 400);
    EXPECT_EQ(past_caches(trial, 2560, 600, 400), 2560 - 10 * 8) << "but for eight of 256";
    // It sees what has changed.
    past_caches(trial, 256, 300, 400);
    EXPECT_EQ(past_caches(trial, 2560, 300, 400), 10 * 8);
    // What is much the same is left alone, and so is one interruption.
    past_caches(trial, 31, 300, 299);
    trial.next();
    trial.took(1e9);
    EXPECT_EQ(past_caches(trial, 2560 - 32, 300, 299), 10 * 8);
  }
}

TEST(Choose, EveryCollectiveHasAnAlgorithmForEverySize) {
  for (const int ranks : {1, 2, 5, 16, 17, 1000}) {
    Chooser chooser(platform_of(ranks));
    for (const Algorithm& a : algorithms()) {
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, std::size_t{100000}, std::size_t{1} << 40}) {
        for (const Access access : {Access::none, Access::tmp, Access::copies, Access::windows}) {
          const Algorithm& chosen =
              chooser.choose({a.collective, bytes, DataType::bfloat16, access});
          EXPECT_EQ(chosen.collective, a.collective);
          EXPECT_LE(chosen.needs(), access);
        }
      }
    }
  }
}

// A first call does not look at all algorithms then.
TEST(Choose, AShortCallOfFewRanksTakesOneOfTwoAnswersAndIsAsFast) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    const Platform p = platform_of(ranks);
    Chooser chooser(p);
    for (int c = 0; c < kCollectives; ++c) {
      for (const Access access : {Access::none, Access::tmp, Access::copies, Access::windows}) {
        Workload w{static_cast<Collective>(c), 32, DataType::float32, access};
        const Algorithm& shortest = chooser.choose(w);
        w.bytes = 4096;
        const Algorithm& longest = chooser.choose(w);
        for (w.bytes = 64; w.bytes < 4096; w.bytes *= 2) {
          const std::string what = fmt::format("{} of {} bytes, {} ranks, access {}",
                                               name(w.collective), w.bytes, ranks, int(access));
          const Algorithm& chosen = chooser.choose(w);
          Workload with = w;
          with.access = Access::windows;
          EXPECT_TRUE(&chosen == &shortest || &chosen == &longest ||
                      &chosen == &chooser.choose(with))
              << what;
          // Copies by the kernel count as a third more.
          const double least = chooser.candidates(w).front().ns;
          EXPECT_LE(predict(chosen, w, p).ns, least * (access == Access::copies ? 1.4 : 1.1))
              << what;
        }
      }
    }
  }
}

TEST(Choose, IsTheBestOfTheCandidates) {
  Chooser chooser(platform_of(4));
  for (std::size_t bytes = 8; bytes <= 64 << 20; bytes *= 2) {
    const Workload w{Collective::all_reduce, bytes, DataType::float32};
    const auto all = chooser.candidates(w);
    ASSERT_GT(all.size(), 5u);
    for (const Prediction& c : all) {
      if (c.algorithm != &chooser.choose(w)) continue;
      EXPECT_LE(c.ns, all.front().ns / 0.95) << bytes;
    }
  }
}

TEST(Choose, ShortMessagesGoOverLinksAndLongOnesThroughWindows) {
  Chooser chooser(platform_of(4));
  for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::broadcast,
                             Collective::reduce_scatter, Collective::all_to_all}) {
    EXPECT_FALSE(chooser.choose({c, 64, DataType::float32}).windows) << name(c);
    EXPECT_EQ(chooser.choose({c, 8 << 20, DataType::float32}).needs(), Access::copies) << name(c);
    EXPECT_FALSE(chooser.choose({c, 8 << 20, DataType::float32, Access::none}).windows) << name(c);
  }
}

// Many ranks write long data once, into memory that all of them share.
TEST(Choose, LongMessagesOfManyRanksGoThroughSharedMemory) {
  for (const Collective c : {Collective::all_gather, Collective::broadcast}) {
    const Workload large{c, 8 << 20, DataType::float32, Access::tmp};
    const Workload small{c, 64, DataType::float32, Access::tmp};
    EXPECT_EQ(Chooser(platform_of(8)).choose(large).needs(), Access::tmp) << name(c);
    EXPECT_EQ(Chooser(platform_of(8)).choose(small).needs(), Access::none) << name(c);
    // What goes through it stays in the caches, as in slots, whichever ranks' parts are looked at.
    for (const int ranks : {8, 100}) {
      const Prediction p = predict(*find_algorithm(c, "shared"), large, platform_of(ranks));
      EXPECT_LE(p.tile_bytes, std::size_t{1} << 20) << name(c) << " " << ranks;
    }
  }
}

TEST(Choose, TwoRanksHaveNoUseForSharedMemory) {
  for (const Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
    Chooser chooser(platform_of(2));
    for (std::size_t bytes = 64; bytes <= std::size_t{64} << 20; bytes *= 2) {
      const Workload w{c, bytes, DataType::float32, Access::tmp};
      EXPECT_EQ(chooser.choose(w).needs(), Access::none) << name(c) << " " << bytes;
    }
  }
}

// What the kernel has to copy goes through slots or shared memory, unless that is clearly slower.
TEST(Choose, CopiesByTheKernelArePredictedToo) {
  for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::broadcast,
                             Collective::reduce_scatter, Collective::all_to_all}) {
    Platform p = platform_of(4);
    const Workload large{c, 8 << 20, DataType::float32, Access::copies};
    const Workload small{c, 1 << 10, DataType::float32, Access::copies};
    p.machine.copy_pages = 1000;
    EXPECT_LT(Chooser(p).choose(large).needs(), Access::copies) << name(c);
    p.machine.copy_pages = 10;
    p.machine.copy_ns = 1000;
    EXPECT_EQ(Chooser(p).choose(large).needs(), Access::copies) << name(c);
    EXPECT_FALSE(Chooser(p).choose(small).windows) << name(c);
  }
}

// Of one MiB from each of three ranks, in pieces of a quarter of half a MiB; see copied_piece().
TEST(Predict, CopiesByTheKernelCostWhatTheyAreSaidTo) {
  Platform p = platform_of(4);
  p.machine.copy_ns = 1e6;
  const Algorithm& a = algorithm(Collective::reduce, "direct_window");
  const Workload mapped{Collective::reduce, 1 << 20, DataType::float32, Access::windows};
  Workload copied = mapped;
  copied.access = Access::copies;
  const double ns = predict(a, copied, p).ns - predict(a, mapped, p).ns;
  EXPECT_NEAR(ns / 1e6, 3 * 11, 1);
  EXPECT_FALSE(
      predict(a, {Collective::reduce, 1 << 20, DataType::float32, Access::none}, p).possible);
}

// Eight ranks of each of two sockets: what crosses between them is little, and known.
TEST(Choose, RanksOfSeveralDomainsWorkInsideOfThemFirst) {
  Platform p = platform_of(16);
  p.machine.far_latency_ns = 1000;
  p.machine.far_data = 1000;
  const auto chosen = [&](Collective c, std::size_t bytes, Access access) {
    return Chooser(p).choose({c, bytes, DataType::float32, access});
  };
  const auto is_nested = [](const Algorithm& a) { return a.groups != Algorithm::Groups::none; };
  for (const Access access : {Access::none, Access::windows}) {
    EXPECT_FALSE(is_nested(chosen(Collective::all_reduce, 1 << 20, access)));
  }
  p.domains = Domains::even(16, 2);
  for (const Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    for (const Access access : {Access::none, Access::windows}) {
      EXPECT_TRUE(is_nested(chosen(c, 1 << 20, access))) << name(c);
    }
  }
}

// On a GPU, where moving a MiB takes as long as a message, one exchange is best for much longer.
TEST(Choose, RanksOnGpusExchangeOnceUpToHundredsOfKiB) {
  for (const int ranks : {2, 8}) {
    Chooser chooser(gpu_platform(ranks));
    const auto chosen = [&](std::size_t bytes) {
      return chooser.choose({Collective::all_reduce, bytes, DataType::float32}).name;
    };
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4} << 10, std::size_t{64} << 10}) {
      EXPECT_EQ(chosen(bytes), ranks == 2 ? "recursive_doubling" : "one_shot") << bytes;
    }
    for (const std::size_t bytes : {std::size_t{4} << 20, std::size_t{1} << 30}) {
      EXPECT_EQ(chosen(bytes), "two_shot_window") << bytes;
    }
  }
}

TEST(Choose, TakesNoLongerThanItIsWorth) {
  const auto start = std::chrono::steady_clock::now();
  for (const int ranks : {16, 64, 1000}) {
    Chooser chooser(platform_of(ranks));
    chooser.choose({Collective::all_reduce, 1 << 20, DataType::float32});
  }
  // Milliseconds; the rest is for sanitizers and a machine that does something else.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace tutti
