// The plans of one rank on a device: each is uploaded once and kept, until there are so many that
// the one that was not used for the longest time makes room. Its memory goes to a plan for the same
// stream alone: on others, its last kernel may not have run yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "execute/cuda/device.h"
#include "execute/cuda/plan_block.h"

namespace tutti::device {

class PlanCache {
 public:
  using Key = std::vector<std::uint64_t>;
  struct Plan {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;    // of the memory
    Stream stream = nullptr;  // of the newest use
    bool captured = false;    // a graph may run it at any time
    PlanBlock header;
    std::list<const std::vector<std::uint64_t>*>::iterator used;  // in by_use_
  };

  explicit PlanCache(Device& device) : device_(device) {}
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  /// The block with this key on the device; `build` makes it, if it is new.
  const Plan& get(Key key, const std::function<std::vector<std::byte>()>& build, Stream stream);
  std::size_t size() const { return plans_.size(); }

 private:
  /// Forgets the plan that was not used for the longest time, for its memory.
  void forget_one();
  std::byte* fresh_memory(std::size_t bytes);

  Device& device_;
  std::map<Key, Plan> plans_;
  std::list<const Key*> by_use_;                                    // the newest first
  std::multimap<std::pair<Stream, std::size_t>, std::byte*> free_;  // of forgotten plans
  std::vector<std::byte*> slabs_;                                   // what plans are cut from
  std::size_t slab_left_ = 0;  // bytes at the end of the newest
  std::byte* slab_next_ = nullptr;
};

}  // namespace tutti::device
