// No thread of the host waits for kernels. So a thread has to check now and then that the other
// processes still live and that the communicator has not failed; otherwise kernels would wait for
// ever. The same thread logs late ranks, and hears the requests of other processes (windows.h).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/rank_group.h"

namespace tutti {

class DeviceWatch {
 public:
  /// Calls `look` again and again, on a thread of its own, with one of the added ranks. Between two
  /// looks it calls `wait`, which returns after 20 ms or when there is something to see.
  static std::shared_ptr<DeviceWatch> start(std::function<void(RankGroup&)> look,
                                            std::function<void()> wait);

  void add(RankGroup& group);
  /// The thread does not look at `group` after this has returned.
  void remove(RankGroup& group);
  /// After this has returned the thread does not call `look` any more; it may call `wait` once.
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
