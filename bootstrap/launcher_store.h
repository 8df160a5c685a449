// Where a launcher lets the ranks of its job leave short texts for each other: PMI (pmi_store.h),
// PMIx (pmix_store.h), torchrun's store (torch_store.h). Rank 0 puts the unique id there and the
// others get it, so ranks on several hosts meet without a file and without a variable.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "bootstrap/unique_id.h"
#include "core/wait.h"

namespace tutti {

class LauncherStore {
 public:
  LauncherStore() = default;
  LauncherStore(const LauncherStore&) = delete;
  LauncherStore& operator=(const LauncherStore&) = delete;
  virtual ~LauncherStore() = default;

  /// The store's name, for messages to people: "PMI (PMI_FD=6)".
  virtual std::string name() const = 0;
  /// Rank 0 calls put(), and each other rank calls get(), for the same keys in the same order: in
  /// some launchers all ranks take part in an exchange. A key has letters, digits, '-' and '/'.
  /// Both throw Error(timed_out) or Error(system), which says what did not happen.
  virtual void put(const std::string& key, const std::string& value, Deadline deadline) = 0;
  /// Waits for rank 0's put().
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  /// Whether ranks that the launcher has started anew may find what earlier ones have put. Only
  /// then may get() be called again for the same key.
  virtual bool outlives_ranks() const { return false; }
  /// Rank 0 takes the value back, where the launcher can do that.
  virtual void remove(const std::string& /*key*/) {}
};

/// Rank 0 puts `id`, and what it says of its own program (kinship.h), if anything: digits.
void put_id(LauncherStore& store, const std::string& key, const UniqueId& id, int size,
            std::chrono::nanoseconds timeout, const std::string& program = "");
/// Why rank 0 of the program that this text describes is not this rank's; "": it may be.
using WhyNotProgram = std::function<std::string(std::string_view program)>;
/// Gets the id at the other ranks. Where `why_not` has a reason they get the next one, if the store
/// may have another. Throws Error(timed_out), Error(system) or Error(invalid_usage), which names
/// the store.
UniqueId get_id(LauncherStore& store, const std::string& key, int rank, int size,
                std::chrono::nanoseconds timeout, const WhyNotProgram& why_not = {});

}  // namespace tutti
