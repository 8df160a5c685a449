// Collectives by the CUDA executor, on any Device: all ranks in one launch, every buffer compared
// bit by bit, guard zones included. The same body for the host's device and for a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "collectives/algorithms.h"
#include "execute/cuda/executor.h"

namespace tutti::test {

/// Whether calls on GPUs may run it. They carry no compressed messages, and blocks of any size
/// (all_to_all_v) have no windows there.
inline bool runs_on_gpus(const Algorithm& a) {
  return !a.compressed && !(a.collective == Collective::all_to_all_v && a.windows);
}

/// Slots that small messages fill: LL's hold 512 bytes of data, LL128's 960, Simple's 512.
inline constexpr device::SegmentShape kSmallSlots{.channels = 8,
                                                  .signal_channels = 6,
                                                  .slots = 4,
                                                  .ll_bytes = 1024,
                                                  .ll128_bytes = 1024,
                                                  .simple_bytes = 512};
inline constexpr device::Protocol kProtocols[] = {device::Protocol::simple, device::Protocol::ll,
                                                  device::Protocol::ll128};

struct DeviceCase {
  const Algorithm* algorithm = nullptr;
  DataType type = DataType::float32;
  std::optional<ReduceKind> kind;  // of collectives that reduce
  std::size_t bytes = 0;           // of a block, rounded up to elements
  int root = 0;
  bool in_place = false;
  std::optional<device::Protocol> protocol;
  std::uint32_t copies = 0;
  std::uint32_t lanes = 1;
  std::size_t misalign = 0;  // elements that buffers are off their alignment
  bool canonical = false;    // DeviceBinding::canonical
  // Instead of the algorithm's plan; outlives the ranks, because they know it by its address. With
  // what is done to a user's plan before it runs (collectives/needs.h).
  const Plan* plan = nullptr;

  std::string text(int ranks) const;
};

/// A device in a test: the executor's interface, and what else a test needs. The defaults fit a
/// device that has the host's memory and does everything at once.
struct DeviceUnderTest {
  device::Device& device;
  std::function<void(std::byte* to, const std::byte* from, std::size_t bytes)> download =
      [](std::byte* to, const std::byte* from, std::size_t n) { std::copy_n(from, n, to); };
  std::function<void()> wait = [] {};  // for everything on the device
  device::Stream stream = nullptr;
  bool canonical = false;  // all cases are (DeviceBinding::canonical)
};

class DeviceRanks {
 public:
  /// Where the data of messages are: in the segments; or elsewhere, and executors have
  /// host_segments (Executor::put_data()), so that everything goes by Simple.
  enum class Data : std::uint8_t { in_segments, apart };
  DeviceRanks(DeviceUnderTest device, int ranks, const device::SegmentShape& shape,
              Data data = Data::in_segments);
  ~DeviceRanks();

  /// Bytes of the segments' Simple slots that were written: none where data are apart.
  std::size_t count_written() const;

  int size() const { return ranks_; }
  device::Executor& executor(int rank) { return *executors_[static_cast<std::size_t>(rank)]; }
  /// Elements that are wrong after one launch, on all ranks; throws a failure of the executor.
  std::size_t run(const DeviceCase& c);

  // The parts of run(): for tests that launch in other ways. `seed` makes the data.
  struct Bound {
    std::vector<device::RankLaunch> launches;
    std::function<void()> upload;              // the buffers as they are before
    std::function<std::size_t()> count_wrong;  // afterwards
  };
  Bound bind(const DeviceCase& c);
  /// More ranks than a launch can have are several, by threads: each returns when it has ended.
  void launch(const Bound& bound, DataType type);
  void throw_failure() const;
  const device::SegmentShape& shape() const { return shape_; }

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  std::byte* buffer(std::size_t index, std::size_t bytes);
  const Plan& whole_plan(const DeviceCase& c);
  const RankPlan& plan(const DeviceCase& c, int rank);

  DeviceUnderTest device_;
  int ranks_;
  device::SegmentShape shape_;
  std::vector<std::byte*> apart_;  // segments, and the data of each link
  std::vector<std::unique_ptr<device::Executor>> executors_;
  std::vector<Buffer> buffers_;  // send, receive of every rank
  std::map<std::string, std::unique_ptr<Plan>> plans_;
  std::uint64_t seed_ = 0;
};

}  // namespace tutti::test
