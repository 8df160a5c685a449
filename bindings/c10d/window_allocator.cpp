#include "window_allocator.h"

#include <tutti/tutti.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace tutti::pytorch {
namespace {

class WindowAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &give_back, cpu};
    constexpr std::size_t kPage = 4096;
    const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    const std::lock_guard lock(mutex_);
    void* data = nullptr;
    if (auto& kept = kept_[rounded]; !kept.empty()) {
      data = kept.back();
      kept.pop_back();
    } else {
      data = tutti::allocate(rounded);
    }
    sizes_[data] = rounded;
    return {data, data, &give_back, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool has(const std::byte* data, std::size_t bytes) {
    if (bytes == 0) return true;
    const std::lock_guard lock(mutex_);
    auto after = sizes_.upper_bound(const_cast<std::byte*>(data));
    if (after == sizes_.begin()) return false;
    const auto& [begin, size] = *--after;
    const auto offset = static_cast<std::size_t>(data - static_cast<const std::byte*>(begin));
    return offset <= size && bytes <= size - offset;
  }
  static WindowAllocator& instance() {
    static auto* const allocator = new WindowAllocator;  // tensors may outlive everything
    return *allocator;
  }

 private:
  static void give_back(void* data) {
    if (data == nullptr) return;
    WindowAllocator& self = instance();
    const std::lock_guard lock(self.mutex_);
    const auto found = self.sizes_.find(data);
    self.kept_[found->second].push_back(data);
    self.sizes_.erase(found);
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> kept_;  // by size
  std::map<void*, std::size_t> sizes_;              // of those that tensors have
};

}  // namespace

std::shared_ptr<c10::Allocator> window_allocator() {
  return {std::shared_ptr<void>(), &WindowAllocator::instance()};
}

bool is_window_memory(const void* data, std::size_t bytes) {
  return WindowAllocator::instance().has(static_cast<const std::byte*>(data), bytes);
}

}  // namespace tutti::pytorch
