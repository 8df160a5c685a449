#include "meet.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "python.h"

namespace tutti::pytorch {
namespace {

constexpr const char* kId = "tutti/id";

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// As far as the launcher tells.
bool on_one_host() {
  const std::string_view here = variable("LOCAL_WORLD_SIZE"), master = variable("MASTER_ADDR");
  if (!here.empty() && here == variable("WORLD_SIZE")) return true;
  return master == "localhost" || master.starts_with("127.") || master == "::1";
}

}  // namespace

Options options_of(std::chrono::milliseconds timeout, std::optional<bool> invariant) {
  Options options;
  options.timeout = timeout;
  options.rendezvous_timeout = timeout;
  if (invariant) options.invariant = *invariant;
  return options;
}

Communicator meet(::c10d::Store& store, int rank, int size, const Options& options) {
  if (size == 1) return std::move(Communicator::create_local(1, options).front());
  if (rank != 0) {
    const UniqueId id = unique_id_from_string(store.get_to_str(kId));
    return Communicator::create(id, rank, size, options);
  }
  MeetingPlace place = on_one_host() ? MeetingPlace() : MeetingPlace::among_hosts();
  place.timeout = options.rendezvous_timeout;
  const UniqueId id = make_unique_id(place);
  store.set(kId, to_string(id));
  Communicator made = Communicator::create(id, rank, size, options);
  store.deleteKey(kId);  // everybody has it
  return made;
}

void monitored_barrier(::c10d::Store& store, int rank, int size, std::uint64_t number,
                       std::chrono::milliseconds timeout, bool all) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::string name = c10::str("tutti/monitored/", number, "/");
  const std::string verdict = name + "passed";
  const auto has_come = [&](const std::string& key) {
    auto pause = std::chrono::microseconds(50);
    while (!store.check({key})) {
      const auto left = deadline - Clock::now();
      if (left <= Clock::duration::zero()) return false;
      std::this_thread::sleep_for(std::min<Clock::duration>(pause, left));
      throw_if_interrupted();
      pause = std::min(2 * pause, std::chrono::microseconds(5000));
    }
    return true;
  };
  if (rank != 0) {
    store.set(name + std::to_string(rank), std::string("here"));
    // A moment longer than rank 0 waits: rank 0 says which ranks are missing.
    if (has_come(verdict) && store.get_to_str(verdict) == "yes") return;
    C10_THROW_ERROR(DistBackendError,
                    c10::str("Rank ", rank,
                             " successfully reached monitoredBarrier, but received errors while "
                             "waiting for send/recv from rank 0. Please check rank 0 logs for the "
                             "ranks that are missing."));
  }
  if (timeout.count() <= 0) {
    C10_THROW_ERROR(DistBackendError, c10::str("Rank 0 timed out in monitoredBarrier after ",
                                               timeout.count(), " ms."));
  }
  std::string missing;
  bool several = false;
  for (int r = 1; r < size && (all || missing.empty()); ++r) {
    if (has_come(name + std::to_string(r))) {
      store.deleteKey(name + std::to_string(r));
      continue;
    }
    several = !missing.empty();
    missing += (several ? ", " : "") + std::to_string(r);
  }
  if (missing.empty()) {
    store.set(verdict, std::string("yes"));
    if (number > 0) store.deleteKey(c10::str("tutti/monitored/", number - 1, "/passed"));
    return;
  }
  store.set(verdict, std::string("no"));
  C10_THROW_ERROR(DistBackendError,
                  c10::str(several ? "Ranks " : "Rank ", missing,
                           " failed to pass monitoredBarrier in ", timeout.count(), " ms"));
}

}  // namespace tutti::pytorch
