// What sharded training starts when, and where it waits: ahead of time, and where the result is
// needed.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "parallel/sharded/sharded.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace parallel;
using test::run_thread_ranks;

/// Writes down what is started, and what is waited for that is not over: G2 is the gather of unit
/// 2, R2 the reduction of its gradients, small letters are waits.
class WrittenAxis final : public Axis {
 public:
  WrittenAxis(Communicator& comm, std::string& log)
      : Axis(comm.rank(), comm.size()), comm_(comm), log_(log) {}

 private:
  class Written final : public Pending::Work {
   public:
    Written(Future future, std::string& log, std::string name)
        : future_(std::move(future)), log_(log), name_(std::move(name)) {}
    bool ready() override { return future_.ready(); }
    void wait() override {
      log_ += name_;
      future_.wait();
    }

   private:
    Future future_;
    std::string& log_;
    std::string name_;
  };
  std::unique_ptr<Pending::Work> begin(const Call& call) override {
    const auto unit = std::to_string(call.count / 32 - 1);  // unit u has 32 (u + 1) elements
    const bool gathers = call.collective == Collective::all_gather;
    if (call.collective == Collective::all_reduce) {
      return std::make_unique<Written>(comm_.start(call), log_, "");
    }
    log_ += (gathers ? "G" : "R") + unit + " ";
    return std::make_unique<Written>(comm_.start(call), log_, (gathers ? "g" : "r") + unit + " ");
  }

  Communicator& comm_;
  std::string& log_;
};

/// What happens in the third step; "-" between events.
std::string third_step_of(const Policy& policy) {
  std::string log, result;
  run_thread_ranks(1, [&](Communicator& comm) {
    WrittenAxis axis(comm, log);
    std::vector<Unit> units;
    for (std::size_t u = 0; u < 4; ++u) {
      units.push_back({.name = std::to_string(u), .parameters = {{"w", 32 * (u + 1), 32}}});
    }
    ShardedDataParallel model(units, policy, {.shard = &axis});
    model.share_parameters();
    for (int i = 0; i < 3; ++i) {
      log.clear();
      for (std::size_t u = 0; u < 4; ++u) {
        model.before_forward(u);
        log += "- ";
        model.after_forward(u);
      }
      for (std::size_t u = 4; u-- > 0;) {
        model.before_backward(u);
        log += "- ";
        model.after_backward(u);
      }
      model.finish_backward();
      model.step(Sgd());
    }
    result = log;
  });
  return result;
}

TEST(ShardedOverlap, StartsAheadAndWaitsWhereItNeeds) {
  Policy zero3 = Policy::zero3();
  EXPECT_EQ(third_step_of(zero3),
            "G0 G1 g0 - G2 g1 - G3 g2 - g3 - "  // the next layer's gather before this one's wait
            "G3 G2 g3 - R3 G1 g2 - R2 G0 g1 r3 - R1 g0 r2 - R0 r1 r0 ");
  zero3.prefetch_forward = 0;
  zero3.prefetch_backward = 2;
  zero3.reductions_in_flight = 0;
  EXPECT_EQ(third_step_of(zero3),
            "G0 g0 - G1 g1 - G2 g2 - G3 g3 - "
            "G3 G2 G1 g3 - R3 G0 g2 r3 - R2 g1 r2 - R1 g0 r1 - R0 r0 ");
  // The gathers that follow on a step are under way when the next one begins.
  EXPECT_EQ(third_step_of(Policy::zero1()),
            "g0 - g1 - g2 - g3 - - R3 - R2 - R1 - R0 r3 r2 r1 r0 G0 G1 G2 G3 ");
}

/// Writes down which unit it updates.
class WrittenOptimizer final : public Optimizer {
 public:
  explicit WrittenOptimizer(std::string& log) : log_(log) {}
  std::string_view name() const override { return "written"; }
  std::size_t states() const override { return 0; }

 private:
  void update_block(const Slice& slice, const kernels::Block&) const override {
    log_ += "U" + std::to_string(slice.count / 32 - 1) + " ";
  }
  std::string& log_;
};

TEST(ShardedOverlap, GathersWhatIsUpdatedBesideTheUpdatesOfOthers) {
  for (const bool eight_bits : {false, true}) {
    Policy policy = Policy::zero2(Precision::mixed());
    policy.gather_eight_bits = eight_bits;
    std::string log, of_step;
    run_thread_ranks(1, [&](Communicator& comm) {
      WrittenAxis axis(comm, log);
      std::vector<Unit> units;
      for (std::size_t u = 0; u < 3; ++u) {
        units.push_back({.name = std::to_string(u), .parameters = {{"w", 32 * (u + 1), 32}}});
      }
      ShardedDataParallel model(units, policy, {.shard = &axis});
      model.share_parameters();
      for (const std::size_t u : {0, 2}) {
        model.before_forward(u);
        model.after_forward(u);
      }
      for (const std::size_t u : {2, 0}) {
        model.before_backward(u);
        model.after_backward(u);
      }
      model.finish_backward();
      log.clear();
      model.step(WrittenOptimizer(log));
      of_step = log;
    });
    EXPECT_EQ(of_step, "U0 G0 U2 G2 ");  // unit 1 has had no gradients
  }
}

}  // namespace
}  // namespace tutti
