// Nobody waits on the host for what runs on a GPU, so a thread has to look now and then whether the
// other processes still live and the communicator has not failed: kernels would wait for ever. The
// same thread logs who is late, and hears what other processes want of this one (windows.h).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/rank_group.h"

namespace tutti {

class DeviceWatch {
 public:
  /// Calls `look` again and again, on a thread of its own, with one of the ranks that were added,
  /// and between two looks `wait`, which returns after 20 ms or when there is something to see.
  static std::shared_ptr<DeviceWatch> start(std::function<void(RankGroup&)> look,
                                            std::function<void()> wait);

  void add(RankGroup& group);
  /// `group` is not looked at any more once this has returned.
  void remove(RankGroup& group);
  /// `look` is not called any more once this has returned; `wait` may be, once.
  void stop();

 private:
  explicit DeviceWatch(std::function<void(RankGroup&)> look) : look_(std::move(look)) {}
  /// False after stop().
  bool look();

  std::function<void(RankGroup&)> look_;
  std::mutex mutex_;  // of what follows, and held while looking
  bool stopped_ = false;
  std::vector<RankGroup*> groups_;
};

}  // namespace tutti
