// Simulated times of messages between hosts: whose wire they keep busy, what carries them, and when
// they come. Part of hosts_test.
#include <gtest/gtest.h>

#include <vector>

#include "collectives/model/domains.h"
#include "collectives/model/host_scenario.h"
#include "collectives/plan.h"
#include "tests/collectives/model/hosts_shapes.h"

namespace tutti {
namespace {

using namespace test;

/// Ranks 0 and 1 each send a message to ranks 2 and 3.
Plan two_messages() {
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.ranks = 4;
  Plan plan{header, {}};
  for (int r = 0; r < 4; ++r) {
    RankPlanBuilder b(header, r);
    if (r < 2) b.lane(0).step({to(r + 2)}, {in(0)});
    if (r >= 2) b.lane(0).step({out(0)}, {from(r - 2)});
    plan.ranks.push_back(b.finish());
  }
  return plan;
}

double time_of_two_messages(const std::vector<int>& host) {
  const Domains hosts(host);
  const StepCosts costs{{{10}}, {{10}}, {{3}}, {{3}}};
  const MessageCost message{.wire = 100};
  const OfSteps<MessageCost> messages(4, {{message}});
  SimulationOptions o;
  o.cores = 4;
  o.latency_ns = 5;
  o.hosts = &hosts;
  o.net_latency_ns = 1000;
  o.messages = &messages;
  return simulate(two_messages(), costs, o);
}

TEST(Simulate, RanksOfAHostShareItsWire) {
  EXPECT_EQ(time_of_two_messages({0, 0, 0, 0}), 10 + 5 + 3);
  EXPECT_EQ(time_of_two_messages({0, 1, 2, 3}), 10 + 100 + 1000 + 3);
  EXPECT_EQ(time_of_two_messages({0, 0, 1, 1}), 10 + 2 * 100 + 1000 + 3);
  EXPECT_EQ(time_of_two_messages({0, 0, 1, 2}), 10 + 2 * 100 + 1000 + 3) << "the sender's";
  EXPECT_EQ(time_of_two_messages({0, 1, 2, 2}), 10 + 2 * 100 + 1000 + 3) << "the receiver's";
  // Each direction by itself.
  EXPECT_EQ(time_of_two_messages({0, 1, 1, 0}), 10 + 100 + 1000 + 3);
}

/// Rank 0 sends one message to rank 1, which first does something for `busy`.
double time_of_one_message(const MessageCost& message, double busy) {
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.ranks = 2;
  RankPlanBuilder sender(header, 0), receiver(header, 1);
  sender.lane(0).step({to(1)}, {in(0)});
  receiver.lane(0).step({tmp(0)}, {in(0)});
  receiver.lane(0).step({out(0)}, {from(0)});
  const Plan plan{header, {sender.finish(), receiver.finish()}};
  const Domains hosts(std::vector<int>{0, 1});
  const OfSteps<MessageCost> messages{{{message}}, {{message, message}}};
  SimulationOptions o;
  o.cores = 2;
  o.hosts = &hosts;
  o.net_latency_ns = 1000;
  o.messages = &messages;
  return simulate(plan, {{{10}}, {{busy, 3}}}, o);
}

TEST(Simulate, WhatSendsCarriesAndReceivesAMessageDoesSoAtOnce) {
  EXPECT_EQ(time_of_one_message({100, 100, 100, 1, 1}, 0), 10 + 3 * 100 + 1000 + 3);
  EXPECT_EQ(time_of_one_message({100, 100, 100, 0.1, 0.1}, 0), 10 + 10 + 100 + 1000 + 10 + 3);
  // Each one as the slowest.
  EXPECT_EQ(time_of_one_message({500, 100, 100, 0.1, 0.1}, 0), 10 + 500 + 10 + 1000 + 10 + 3);
  EXPECT_EQ(time_of_one_message({100, 500, 100, 0.1, 0.1}, 0), 10 + 10 + 500 + 1000 + 10 + 3);
  EXPECT_EQ(time_of_one_message({100, 100, 500, 0.1, 0.1}, 0), 10 + 10 + 10 + 1000 + 500 + 3);
  // A receiver that has something else to do receives later.
  EXPECT_EQ(time_of_one_message({100, 100, 100, 0.1, 0.1}, 5000), 5000 + 100 + 3);
}

TEST(Simulate, MessagesComeInTheOrderInWhichTheyLeave) {
  constexpr int kRanks = 4;
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.ranks = kRanks;
  Plan plan{header, {}};
  StepCosts costs;
  for (int r = 0; r < kRanks; ++r) {
    RankPlanBuilder b(header, r);
    auto lane = b.lane(0);
    for (int d = 1; d < kRanks; ++d) lane.step({to((r + d) % kRanks)}, {in(0)});
    for (int d = 1; d < kRanks; ++d) lane.step({out(0)}, {from((r + kRanks - d) % kRanks)});
    plan.ranks.push_back(b.finish());
    costs.push_back({std::vector<double>(2 * (kRanks - 1), 0.0)});
  }
  const MessageCost message{.wire = 100};
  const OfSteps<MessageCost> messages(kRanks, {std::vector(2 * (kRanks - 1), message)});
  const Domains hosts(std::vector<int>{0, 1, 2, 3});
  SimulationOptions o;
  o.cores = kRanks;
  o.hosts = &hosts;
  o.net_latency_ns = 1000;
  o.messages = &messages;
  EXPECT_EQ(simulate(plan, costs, o), 3 * 100 + 1000) << "no wire stands idle";
}

TEST(Simulate, EachHostHasCoresOfItsOwn) {
  const Domains hosts(in_turn(2, 2));
  const StepCosts costs{{{10}}, {{10}}, {{3}}, {{3}}};
  SimulationOptions o;
  o.cores = 2;
  o.switch_ns = 100;
  o.hosts = &hosts;
  // Ranks 0 and 2 share a core, and ranks 1 and 3.
  EXPECT_EQ(simulate(two_messages(), costs, o), 10 + 100 + 3);
  o.cores = 4;
  EXPECT_EQ(simulate(two_messages(), costs, o), 10 + 3);
}

}  // namespace
}  // namespace tutti
