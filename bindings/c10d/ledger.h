// The ledger of a group's works: it numbers them, knows how many are under way, extends their
// timeouts for a while, and tells hooks how works end. A Work keeps the ledger alive.
//
// Hooks belong to PyTorch's recorders and health checks, or to the user. The ledger holds no lock
// while a hook runs. An exception of a hook is logged.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "elsewhere.h"

namespace tutti::pytorch {

class Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  /// Runs before anybody hears of a failure of the group.
  using AbortHook = std::function<void()>;
  /// Runs when the work of that number has succeeded, on the thread that ends the work. `took`: in
  /// milliseconds, if the group measures times.
  using CompletionHook = std::function<void(std::uint64_t number, std::optional<float> took)>;

  /// Runs when a work is over, however it has ended; one after the other, on no thread of Tutti's.
  using WorkHook = std::function<void(std::shared_ptr<::c10d::WorkInfo>)>;

  /// A number that no other work of this process has.
  static std::uint64_t next_number() { return numbers().fetch_add(1, std::memory_order_relaxed); }

  /// An empty hook removes that of the same id.
  void set_abort_hook(std::int64_t id, AbortHook hook);
  void set_completion_hook(std::int64_t id, CompletionHook hook);
  /// Once, before any of the works that `hook` is to hear of.
  void set_work_hook(WorkHook hook);
  /// Whether completion hooks want to hear of every call.
  bool is_watched() const { return watched_.load(std::memory_order_acquire); }
  /// Whether calls that need no work have one nevertheless.
  bool wants_works() const { return is_watched() || is_extended() || has_work_hook(); }
  /// Whether anything asks how long a work takes.
  bool measures_works() const { return measures() || is_watched() || has_work_hook(); }
  void run_abort_hooks() const;
  /// Of the communicator, not of one call's arguments, nor this rank's own wish.
  static bool is_failure(const Error& error, int rank);
  /// Runs `then` after the abort hooks, which hear of a failure once; at once where there are none.
  void failed(std::function<void()> then);
  /// The next failure is another one.
  void begin_again() { told_.store(false); }

  /// Works from now on know how long they took.
  void measure() { measures_.store(true); }
  bool measures() const { return measures_.load(std::memory_order_relaxed); }

  /// Adds `more` to the timeouts of later works, until the first of them is over.
  void extend(std::chrono::milliseconds more);
  std::chrono::milliseconds extension() const;
  bool is_extended() const { return extended_.load(std::memory_order_acquire); }

  void begun() { under_way_.fetch_add(1, std::memory_order_relaxed); }
  /// The work says itself that it is over; the completion hooks hear of it if it has succeeded.
  void over(std::uint64_t number);
  void succeeded(std::uint64_t number, std::optional<float> took) const;
  /// In the work's own words, before it is over.
  void tell_work_hook(std::shared_ptr<::c10d::WorkInfo> info);
  bool has_work_hook() const { return has_work_hook_.load(std::memory_order_acquire); }
  /// Returns when no work is under way, and the work hook has heard of all; calls `meanwhile` now
  /// and then.
  void wait_until_told(const std::function<void()>& meanwhile) const;
  /// Ends the extensions that were there before the work of that number.
  void expire(std::uint64_t number);
  /// Whether no work is under way any more; waits for that.
  bool wait_until_over(std::chrono::milliseconds longest) const;
  /// Runs `job`, which waits for the stream of a GPU, after those before it.
  void after_stream(std::function<void()> job) { streamed_.run(std::move(job)); }

 private:
  template <class Hook>
  using Table = std::shared_ptr<const std::map<std::int64_t, Hook>>;
  struct Extension {
    std::uint64_t first;  // the number that the next work had
    std::chrono::milliseconds more;
  };

  static std::atomic<std::uint64_t>& numbers();
  template <class Hook>
  Table<Hook> copy(const Table<Hook>& table) const;
  template <class Hook>
  void set(Table<Hook>& table, std::int64_t id, Hook hook);

  mutable std::mutex mutex_;
  Table<AbortHook> abort_hooks_;
  Table<CompletionHook> completion_hooks_;
  WorkHook work_hook_;  // as has_work_hook_ says
  std::vector<Extension> extensions_;
  std::atomic<bool> watched_{false}, measures_{false}, extended_{false}, told_{false};
  std::atomic<bool> has_work_hook_{false};
  std::atomic<int> under_way_{0}, untold_{0};
  InOrder failing_, streamed_, telling_;
};

}  // namespace tutti::pytorch
