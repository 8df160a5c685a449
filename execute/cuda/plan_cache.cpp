#include "execute/cuda/plan_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::device {
namespace {

// Plans on the device; then the one that was not used for the longest time makes room. Calls with
// counts that never repeat (all_to_all_v in a mixture of experts) would fill the memory otherwise.
constexpr std::size_t kMostPlans = 1024;
// Plans are cut from pieces of this size: to allocate while kernels wait for each other costs time.
constexpr std::size_t kSlabBytes = std::size_t{1} << 20;

}  // namespace

PlanCache::~PlanCache() {
  for (std::byte* memory : slabs_) device_.deallocate(memory);
}

const PlanCache::Plan& PlanCache::get(Key key, const std::function<std::vector<std::byte>()>& build,
                                      Stream stream) {
  const bool capturing = device_.is_capturing(stream);
  if (const auto found = plans_.find(key); found != plans_.end()) {
    Plan& plan = found->second;
    plan.captured = plan.captured || capturing;
    plan.stream = stream;
    by_use_.splice(by_use_.begin(), by_use_, plan.used);
    return plan;
  }
  const std::vector<std::byte> block = build();
  Plan plan;
  plan.captured = capturing;
  plan.stream = stream;
  std::memcpy(&plan.header, block.data(), sizeof plan.header);
  plan.bytes = std::bit_ceil(block.size());
  // What a forgotten plan leaves is overwritten after the kernels that read it, which cannot be
  // during a capture.
  if (!capturing && plans_.size() >= kMostPlans) forget_one();
  if (const auto fits = free_.find({stream, plan.bytes}); !capturing && fits != free_.end()) {
    plan.memory = fits->second;
    free_.erase(fits);
    device_.overwrite(plan.memory, block, stream);
  } else {
    plan.memory = fresh_memory(plan.bytes);
    device_.upload(plan.memory, block);
  }
  const auto at = plans_.emplace(std::move(key), plan).first;
  by_use_.push_front(&at->first);
  at->second.used = by_use_.begin();
  return at->second;
}

void PlanCache::forget_one() {
  for (auto oldest = by_use_.rbegin(); oldest != by_use_.rend(); ++oldest) {
    const auto plan = plans_.find(**oldest);
    if (plan->second.captured) continue;
    free_.emplace(std::pair{plan->second.stream, plan->second.bytes}, plan->second.memory);
    by_use_.erase(plan->second.used);
    plans_.erase(plan);
    return;
  }
}

std::byte* PlanCache::fresh_memory(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 256);
  if (slab_left_ < bytes) {
    slab_left_ = std::max(bytes, kSlabBytes);
    slabs_.push_back(device_.allocate(slab_left_));
    slab_next_ = slabs_.back();
  }
  std::byte* const memory = slab_next_;
  slab_next_ += bytes;
  slab_left_ -= bytes;
  return memory;
}

}  // namespace tutti::device
