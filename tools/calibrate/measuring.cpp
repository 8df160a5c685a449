#include "tools/calibrate/measuring.h"

#include <algorithm>
#include <chrono>

#include "collectives/text/text.h"
#include "collectives/text/write.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kSlots = 8;  // the least that links have by default
constexpr int kSignals = 6;          // fewer than slots: nobody waits

/// A signal there and one back, `times` times.
std::string ping_pong(int times) {
  return plan_text(Collective::barrier, 2, 1, [&](RankPlanBuilder& b, int rank) {
    const std::vector peer{1 - rank};
    for (int i = 0; i < times; ++i) {
      if (rank == 0) b.lane(0).signal(peer);
      b.lane(0).wait(peer);
      if (rank == 1) b.lane(0).signal(peer);
    }
  });
}

/// So many signals there and back; none waits for another.
std::string burst(int messages) {
  const auto fill = [&](RankPlanBuilder& b, int rank) {
    const std::vector peer{1 - rank};
    for (int i = 0; i < messages; ++i) b.lane(0).signal(peer);
    for (int i = 0; i < messages; ++i) b.lane(0).wait(peer);
  };
  return plan_text(Collective::barrier, 2, 1, fill, kSlots);
}

double time_of_barrier(Communicator& comm, const std::string& plan, int calls) {
  comm.use_plan(plan);
  return time_of_call([&] { comm.barrier(); }, calls);
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double time_ns(const std::function<void()>& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

std::string plan_text(Collective collective, int ranks, std::uint32_t lanes,
                      const std::function<void(RankPlanBuilder&, int)>& fill, std::uint32_t slots) {
  PlanHeader header;
  header.slots = slots;
  header.collective = collective;
  header.algorithm = "calibration";
  header.ranks = ranks;
  header.lanes = lanes;
  Plan plan{header, {}};
  for (int r = 0; r < ranks; ++r) {
    RankPlanBuilder builder(header, r);
    fill(builder, r);
    plan.ranks.push_back(builder.finish());
  }
  plan.header = plan.ranks.front().header;
  return to_text(plan);
}

double time_of_call(const std::function<void()>& call, int calls) {
  const auto loop = [&] {
    for (int i = 0; i < calls; ++i) call();
  };
  loop();
  std::vector<double> samples;
  for (int s = 0; s < kSamples; ++s) samples.push_back(time_ns(loop) / calls);
  return median(std::move(samples));
}

double measure_one_way(Communicator& comm, int calls) {
  const double few = time_of_barrier(comm, ping_pong(1), calls);
  return (time_of_barrier(comm, ping_pong(1 + kRepeats), calls) - few) / kRepeats / 2;
}

double measure_signal(Communicator& comm, int calls) {
  const double one = time_of_barrier(comm, burst(1), calls);
  return (time_of_barrier(comm, burst(kSignals), calls) - one) / (kSignals - 1);
}

}  // namespace tutti
