// The executor of pipeline schedules with thread ranks: right data whatever the schedule, and what
// it counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>

#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/text.h"
#include "parallel/pipeline/verify.h"
#include "tests/parallel/pipeline_cases.h"
#include "tests/parallel/pipeline_model.h"
#include "tests/parallel/pipeline_sizes.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::pipeline {
namespace {

using test::PipelineModel;
using test::run_thread_ranks;

/// What a rank has to send, and what to receive, in a step.
std::pair<Statistics::Count, Statistics::Count> traffic(const Schedule& s, int rank,
                                                        const std::vector<std::size_t>& bytes) {
  Statistics::Count sent, received;
  const auto m = static_cast<std::uint64_t>(s.micro_batches);
  for (int b = 0; b + 1 < s.stages(); ++b) {
    const int first = s.rank_of(b), second = s.rank_of(b + 1);
    if (first == second || (first != rank && second != rank)) continue;
    // An activation one way, a gradient the other way.
    for (Statistics::Count* c : {&sent, &received}) {
      c->messages += m;
      c->bytes += m * bytes[static_cast<std::size_t>(b)];
    }
  }
  return {sent, received};
}

void run(const Schedule& s, int steps) {
  const Verdict verdict = verify(s);
  ASSERT_TRUE(verdict.proved) << verdict.story;
  const auto bytes = sizes(s);
  run_thread_ranks(s.ranks(), [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    PipelineModel model(s, bytes);
    Executor pipeline(axis, s, bytes, model.stages());
    for (int i = 0; i < steps; ++i) pipeline.step();
    EXPECT_EQ(model.check(comm.rank(), steps), "");
    const Statistics& st = pipeline.statistics();
    const auto n = static_cast<std::uint64_t>(steps);
    auto [sent, received] = traffic(s, comm.rank(), bytes);
    sent = {n * sent.messages, n * sent.bytes};
    received = {n * received.messages, n * received.bytes};
    EXPECT_EQ(st.sent, sent);
    EXPECT_EQ(st.received, received);
    EXPECT_EQ(axis.traffic()[Collective::send_recv].sent, sent.bytes);
    EXPECT_EQ(axis.traffic()[Collective::send_recv].received, received.bytes);
    EXPECT_EQ(axis.traffic()[Collective::send_recv].calls, sent.messages + received.messages);
    EXPECT_EQ(st.live, verdict.live[static_cast<std::size_t>(comm.rank())]);
    EXPECT_EQ(st.steps, n);
    EXPECT_EQ(st.actions, n * s.actions[static_cast<std::size_t>(comm.rank())].size());
  });
}

TEST(PipelineExecute, EveryScheduleGivesTheModelItsData) {
  for (const Generator& g : generators()) {
    for (const auto& [p, m] :
         {std::pair(1, 3), std::pair(2, 1), std::pair(3, 4), std::pair(4, 8)}) {
      SCOPED_TRACE(fmt::format("{} {} {}", g.name, p, m));
      run(generate(g, {p, m, 0}), 2);
    }
  }
  run(generate(*find_generator("interleaved"), {3, 6, 4}), 2);
}

TEST(PipelineExecute, EveryScheduleRunsWithTheFewestBuffers) {
  for (const Generator& g : generators()) {
    Schedule s = generate(g, {3, 6, 0});
    for (s.buffers = 1; !verify(s).proved; ++s.buffers) {
    }
    SCOPED_TRACE(fmt::format("{} {} buffers", g.name, s.buffers));
    run(s, 2);
  }
}

TEST(PipelineExecute, RandomSchedulesGiveTheModelItsData) {
  std::mt19937 random(17);
  int runs = 0;
  for (int i = 0; runs < 60; ++i) {
    ASSERT_LT(i, 2000);
    const Schedule s = test::random_schedule(random, 1 + i % 4);
    if (!verify(s).proved) continue;
    SCOPED_TRACE(to_text(s));
    run(s, 2);
    if (testing::Test::HasFailure()) return;
    ++runs;
  }
}

TEST(PipelineExecute, AWholeBackwardIsUsedWhereThereIsOne) {
  const Schedule s = generate(*find_generator("1f1b"), {2, 4, 0});
  std::atomic<int> whole{0};
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Stages stages;
    stages.forward = [](int, int, Stages::In, Stages::Out) {};
    stages.backward = [&](int, int, Stages::In, Stages::Out) { ++whole; };
    Executor pipeline(axis, s, {8}, stages);
    pipeline.step();
  });
  EXPECT_EQ(whole, 8);
}

TEST(PipelineExecute, TellsWhatRanAndWaited) {
  const Schedule s = generate(*find_generator("zb-h1"), {2, 3, 0});
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    PipelineModel model(s, {10});
    Executor pipeline(axis, s, {10}, model.stages());
    std::vector<Ran> ran;
    pipeline.observe([&](const Ran& r) { ran.push_back(r); });
    pipeline.step();
    const auto& actions = s.actions[static_cast<std::size_t>(comm.rank())];
    ASSERT_EQ(ran.size(), actions.size());
    std::chrono::nanoseconds computed{0};
    for (std::size_t i = 0; i < ran.size(); ++i) {
      EXPECT_EQ(ran[i].action, actions[i]);
      EXPECT_LE(ran[i].waited_from, ran[i].from);
      EXPECT_LE(ran[i].from, ran[i].to);
      if (i > 0) {
        EXPECT_LE(ran[i - 1].to, ran[i].waited_from);
      }
      computed += ran[i].to - ran[i].from;
    }
    EXPECT_EQ(pipeline.statistics().computed, computed);
  });
}

}  // namespace
}  // namespace tutti::parallel::pipeline
