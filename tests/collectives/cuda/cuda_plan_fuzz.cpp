// Random plans by the CUDA executor's step logic, compiled for the host.
#include "collectives/needs.h"
#include "tests/collectives/cuda/cuda_host_device.h"
#include "tests/collectives/cuda/cuda_matrix.h"
#include "tests/collectives/plan_fuzz.h"

namespace tutti::test {

Outcome run_on_device(const Plan& original, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  if (!unfit_to_run(original).empty()) return {true, {}};
  Plan plan = original;
  tighten(plan);
  device::SegmentShape shape = kSmallSlots;
  shape.channels = 16;
  if (below(2) == 0) shape.simple_bytes = 4096;
  if (!device::unfit(plan.header, needs_of(plan), shape).empty()) return {true, {}};
  Algorithm algorithm{};
  algorithm.collective = plan.header.collective;
  algorithm.name = plan.header.algorithm;
  HostDevice device({8 * (1 + below(2))});
  DeviceRanks ranks({device}, plan.header.ranks, shape);
  for (const std::size_t bytes : {std::size_t{8}, 1 + random() % 500, 1 + random() % 20'000}) {
    DeviceCase c;
    c.algorithm = &algorithm;
    c.plan = &plan;
    c.type = static_cast<DataType>(below(kDataTypes));
    if (is_reduction(algorithm.collective)) c.kind = static_cast<ReduceKind>(below(kReduceKinds));
    c.bytes = bytes;
    c.root = plan.header.root;
    c.in_place = has_in_place(algorithm.collective) && below(2) == 0;
    if (below(2) == 0) c.protocol = kProtocols[below(3)];
    c.copies = below(4);
    c.misalign = below(2);
    try {
      if (ranks.run(c) > 0) return {false, c.text(plan.header.ranks) + ": wrong elements"};
    } catch (const Error& e) {
      if (e.code() == ErrorCode::invalid_argument) return {true, {}};
      return {false, c.text(plan.header.ranks) + ": " + e.what()};
    }
  }
  return {};
}

}  // namespace tutti::test
