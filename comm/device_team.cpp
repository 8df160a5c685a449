#include "comm/device_team.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "transport/local_group.h"

namespace tutti {
namespace {

// Slots as in NCCL's order of magnitude, not measured: 224 KiB a slot, 14 MiB a pair of ranks. With
// more ranks than four on the GPU, smaller ones, as the memory grows with the ranks' square.
device::SegmentShape shape_for(int ranks) {
  const std::uint32_t share = ranks <= 4 ? 1 : ranks <= 8 ? 2 : 4;
  device::SegmentShape shape;
  shape.ranks = static_cast<std::uint32_t>(ranks);
  shape.channels = 2 * kPlanChannels;
  shape.slots = 4;
  shape.ll_bytes = (32U << 10) / share;
  shape.ll128_bytes = (64U << 10) / share;
  shape.simple_bytes = (128U << 10) / share;
  return shape;
}

/// The stream that waits for all others of the GPU, and they for it: CUDA's default one.
bool is_default(device::Stream stream) {
  return stream == nullptr || stream == reinterpret_cast<device::Stream>(1);  // cudaStreamLegacy
}

struct Teams {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<DeviceTeam>> by_key;
};

Teams& teams() {
  static auto* const instance = new Teams;  // communicators may end with the process
  return *instance;
}

}  // namespace

DeviceTeam::DeviceTeam(std::shared_ptr<device::Device> gpu, int ordinal, int ranks)
    : gpu_(std::move(gpu)), ordinal_(ordinal), shape_(shape_for(ranks)) {
  if (static_cast<std::uint32_t>(ranks) > device::kMostRanks) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} ranks share GPU {}; at most {} can",
                                                         ranks, ordinal, device::kMostRanks));
  }
  std::vector<std::byte*> segments;
  for (int r = 0; r < ranks; ++r) {
    executors_.push_back(std::make_unique<device::Executor>(*gpu_, r, shape_, ranks, true));
    segments.push_back(executors_.back()->segment());
  }
  for (const auto& executor : executors_) executor->connect(segments);
  launched_.resize(executors_.size(), std::vector<Launched>(kRemembered));
  launches_.resize(executors_.size());
}

DeviceTeam::~DeviceTeam() { gpu_->drain(); }

void DeviceTeam::set_timeout(int rank, std::chrono::nanoseconds timeout) {
  executors_[static_cast<std::size_t>(rank)]->set_timeout(timeout);
}

void DeviceTeam::check_stream(std::span<const Part> parts) {
  const std::lock_guard lock(mutex_);
  const bool all = parts.size() == executors_.size();
  const device::Stream stream = parts.front().stream;
  if (!all && is_default(stream)) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("rank {} shares GPU {} with other ranks and uses CUDA's default stream, "
                    "which waits for theirs: use a stream of its own (made with "
                    "cudaStreamNonBlocking), or call all ranks in one group()",
                    parts.front().rank, ordinal_));
  }
  for (const Part& part : parts) {
    const auto rank = static_cast<std::size_t>(part.rank);
    const std::uint64_t number = ++launches_[rank];
    launched_[rank][number % kRemembered] = {number, all ? nullptr : stream};
    for (std::size_t r = 0; r < launched_.size() && !all; ++r) {
      const auto same_rank = [&](const Part& p) { return static_cast<std::size_t>(p.rank) == r; };
      const Launched& other = launched_[r][number % kRemembered];
      if (other.number != number || other.stream != stream ||
          std::any_of(parts.begin(), parts.end(), same_rank)) {
        continue;
      }
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format("ranks {} and {} run the same operation on the same stream of GPU {}, "
                      "one after the other, but they wait for each other: use a stream for "
                      "each, or call both in one group()",
                      r, part.rank, ordinal_));
    }
  }
}

void DeviceTeam::launch(std::span<const Part> parts) {
  const DataType type = parts.front().binding.type;
  for (const Part& part : parts) {
    if (part.binding.type == type) continue;
    throw Error(ErrorCode::mismatch,
                fmt::format("calls do not match: rank {} has {}, rank {} has {}",
                            parts.front().rank, name(type), part.rank, name(part.binding.type)),
                part.rank);
  }
  check_stream(parts);
  std::vector<device::RankLaunch> launches;
  for (const Part& part : parts) {
    device::Executor& executor = *executors_[static_cast<std::size_t>(part.rank)];
    launches.push_back(executor.prepare(part.binding, part.stream));
  }
  // One stream runs the kernel; the others wait for it, and it for them.
  const device::Stream stream = parts.front().stream;
  for (const Part& part : parts.subspan(1)) gpu_->order(part.stream, stream);
  device::enqueue(*gpu_, launches, shape_, type, stream);
  for (const Part& part : parts.subspan(1)) gpu_->order(stream, part.stream);
}

void DeviceTeam::abort() {
  for (const auto& executor : executors_) executor->abort();
}

std::optional<Error> DeviceTeam::failure() const {
  for (const auto& executor : executors_) {
    if (auto failure = executor->failure()) return failure;
  }
  return std::nullopt;
}

std::shared_ptr<DeviceTeam> join_device_team(
    std::uint64_t key, const std::function<std::shared_ptr<DeviceTeam>()>& make) {
  Teams& t = teams();
  // Held while it is made: the other ranks have to wait for it anyway.
  const std::lock_guard lock(t.mutex);
  std::erase_if(t.by_key, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = t.by_key.find(key); found != t.by_key.end()) {
    if (auto team = found->second.lock()) return team;
  }
  auto team = make();
  t.by_key[key] = team;
  return team;
}

std::shared_ptr<DeviceTeam> find_device_team(std::uint64_t key) {
  Teams& t = teams();
  const std::lock_guard lock(t.mutex);
  const auto found = t.by_key.find(key);
  return found != t.by_key.end() ? found->second.lock() : nullptr;
}

}  // namespace tutti
