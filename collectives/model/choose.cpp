#include "collectives/model/choose.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "collectives/model/findings.h"
#include "collectives/model/hosts.h"
#include "core/error.h"
#include "core/fork.h"

namespace tutti {
namespace {

/// Algorithms that come first in the table are simpler, and a prediction is not as exact as that.
constexpr double kClearlyBetter = 0.97;
/// Of many ranks, one part says already which algorithms are slower than this. (Others' parts may
/// take a little less time, where there is more to move than the memory's bandwidth allows.)
constexpr double kFarWorse = 2;
/// What the kernel copies counts as so much longer: what that takes has varied by a factor of two
/// on one machine, while slots stayed within a third (docs/experiments.md#copies-by-the-kernel).
constexpr double kCopiesMayTake = 4.0 / 3;
/// Of two ranks each writes as much to tmp that all share as over links, and reads as much. It is
/// predicted to be a little faster, and takes 0.9 to 1.4 of the time; 2 to 3 times the time where
/// the cores are far from each other (docs/experiments.md#shared-tmp).
constexpr int kLeastRanksForTmp = 3;

/// Groups of fewer ranks than this that share one cache have never been predicted to be faster.
constexpr int kLeastRanksForGroups = 6;

/// More ranks than this choose when they are called.
constexpr int kMostPrepared = 8;

/// Up to here all messages lie in header lines, and take the same time.
constexpr int kShortestClass = 5;
/// Where these two have the same answer, all between them have it: what is sent hardly counts yet
/// beside how often. (So a process need not ask again for each size that it first uses.)
constexpr int kShortClass = 12;
/// Where so few ranks have two answers there, one of them serves all between, within a tenth.
constexpr int kFewRanks = 4;

/// The least power of two that holds `bytes`, as an exponent; -1 for none.
int class_of(std::size_t bytes) {
  if (bytes == 0) return -1;
  constexpr int kMost = std::numeric_limits<std::size_t>::digits - 2;  // no memory is larger
  return std::clamp(static_cast<int>(std::bit_width(bytes - 1)), kShortestClass, kMost);
}

/// The type that answers for this one: only bytes count, but where they are summed; and of few
/// words the sums take the same time, unless they are carried as another type.
DataType asked_type(const Workload& w, int size_class) {
  if (!is_reduction(w.collective)) return DataType::uint8;
  return size_class <= kShortClass && size_of(w.type) >= 4 ? DataType::float32 : w.type;
}

/// Which algorithm serves this, on cores or on GPUs: a number that differs for each.
std::uint64_t question_of(const Workload& w, DataType type, int size_class, bool on_gpus) {
  std::uint64_t q = 1;
  const auto add = [&](std::uint64_t value, std::uint64_t values) { q = q * values + value; };
  add(static_cast<std::uint64_t>(w.collective), kCollectives);
  add(static_cast<std::uint64_t>(type), 64);
  add(static_cast<std::uint64_t>(size_class + 1), 128);
  add(static_cast<std::uint64_t>(w.access), 4);
  add(w.round_once ? 1 : 0, 2);
  add(w.invariant ? 1 : 0, 2);
  add(w.compressed ? 1 : 0, 2);
  add(on_gpus ? 1 : 0, 2);
  return q;
}

}  // namespace

/// The findings for a platform. Ranks that are threads would find the same, each in some
/// milliseconds.
struct Chooser::Memory {
  explicit Memory(const Platform& p) : platform(p), layout(p.layout()) {}
  static std::shared_ptr<Memory> of(const Platform& platform);

  const Platform platform;
  const Domains layout;
  // So few ranks find what short calls need before the first of them. (More would take as long for
  // that as for all else that they do to meet.)
  const bool is_prepared = platform.ranks <= kMostPrepared && layout.count() == 1;
  const std::uint32_t generation = process_generation();
  std::mutex mutex;
  using Key = std::tuple<Collective, DataType, int, Access, bool, bool, bool>;
  std::map<Key, const Algorithm*> chosen;
  std::map<const Algorithm*, bool> may_run, rounds_once;
};

std::shared_ptr<Chooser::Memory> Chooser::Memory::of(const Platform& platform) {
  static auto* const mutex = new std::mutex;  // never destroyed: threads may use them during exit
  static auto* const all = new std::vector<std::weak_ptr<Memory>>;
  [[maybe_unused]] static const bool held =
      (hold_across_fork([] { mutex->lock(); }, [] { mutex->unlock(); }), true);
  const std::lock_guard lock(*mutex);
  std::erase_if(*all, [](const auto& m) { return m.expired(); });
  for (const auto& weak : *all) {
    const auto memory = weak.lock();
    // A child of fork() may have got the parent's while a thread of the parent's held its lock.
    if (memory && memory->generation == process_generation() && memory->platform == platform) {
      return memory;
    }
  }
  auto memory = std::make_shared<Memory>(platform);
  all->push_back(memory);
  return memory;
}

Chooser::Chooser(const Platform& platform) : memory_(Memory::of(platform)) {}

const Algorithm& Chooser::choose(const Workload& workload, Findings* findings) {
  const std::lock_guard lock(memory_->mutex);
  return choose(workload, class_of(workload.bytes), findings);
}

const Algorithm& Chooser::choose(const Workload& workload, int size_class, Findings* findings) {
  if (!memory_->is_prepared || size_class < 0) return find(workload, size_class, findings, {});
  if (workload.access < Access::windows) {
    // What needs no windows is as good without them.
    Workload with = workload;
    with.access = Access::windows;
    const Algorithm& a = choose(with, size_class, findings);
    if (a.needs() == Access::none) return a;
  }
  const bool between = size_class > kShortestClass && size_class < kShortClass;
  if (!between) return find(workload, size_class, findings, {});
  const Algorithm& shortest = choose(workload, kShortestClass, findings);
  const Algorithm& longest = choose(workload, kShortClass, findings);
  if (&shortest == &longest) return shortest;
  if (memory_->platform.ranks > kFewRanks) return find(workload, size_class, findings, {});
  return find(workload, size_class, findings, {&shortest, &longest});
}

void Chooser::prepare(Findings& findings, int rank, Access plain) {
  if (!memory_->is_prepared) return;
  // Each begins with another one, so that they share the work.
  for (int i = 0; i < kCollectives; ++i) {
    Workload workload;
    workload.collective =
        static_cast<Collective>((rank * kCollectives / memory_->platform.ranks + i) % kCollectives);
    workload.type = DataType::float32;
    for (const int size_class : {kShortestClass, kShortClass}) {
      for (const Access access : {Access::windows, plain}) {
        workload.access = access;
        const std::lock_guard lock(memory_->mutex);  // not longer: other ranks are to begin, too
        choose(workload, size_class, &findings);
      }
    }
  }
}

const Algorithm& Chooser::find(const Workload& workload, int size_class, Findings* findings,
                               std::initializer_list<const Algorithm*> among) {
  const DataType type = asked_type(workload, size_class);
  const Algorithm*& chosen =
      memory_->chosen[{workload.collective, type, size_class, workload.access, workload.round_once,
                       workload.invariant, workload.compressed}];
  if (chosen != nullptr) return *chosen;
  const auto all = algorithms();
  const std::uint64_t question =
      question_of(workload, type, size_class, memory_->platform.flags_in_data);
  if (findings != nullptr) {
    const std::size_t known =
        findings->ask(question, static_cast<std::size_t>(memory_->platform.ranks));
    if (known > 0 && known <= all.size() && may_serve(all[known - 1], workload)) {
      chosen = &all[known - 1];
      return *chosen;
    }
  }
  Workload rounded = workload;
  rounded.type = type;
  rounded.bytes = size_class < 0 ? 0 : std::size_t{1} << size_class;
  const auto predicted_from = [&](Sample sample, const Algorithm& a) {
    if (!may_serve(a, workload)) return Prediction{};
    if (among.size() > 0 && std::ranges::find(among, &a) == among.end()) return Prediction{};
    if (a.tmp_alone && memory_->platform.ranks < kLeastRanksForTmp) return Prediction{};
    if (a.groups != Algorithm::Groups::none && memory_->layout.count() == 1 &&
        memory_->platform.ranks < kLeastRanksForGroups) {
      return Prediction{};
    }
    Prediction p = predict(a, rounded, memory_->platform, sample);
    if (a.needs() == Access::copies && workload.access == Access::copies) p.ns *= kCopiesMayTake;
    return p;
  };
  const auto from_one = [&](const Algorithm& a, const Prediction&) {
    return predicted_from(Sample::one, a);
  };
  double most = std::numeric_limits<double>::infinity();
  const auto predicted = [&](const Algorithm& a, const Prediction& best) {
    if (std::isfinite(most)) {
      const Prediction least = from_one(a, best);
      if (!least.possible || least.ns > most) return Prediction{};
    }
    return predicted_from(Sample::typical, a);
  };
  if (memory_->platform.ranks > kMostSimulatedRanks) {
    const Algorithm* const hopeful = fastest(workload.collective, 1, from_one).algorithm;
    const Prediction p =
        hopeful != nullptr ? predicted_from(Sample::typical, *hopeful) : Prediction{};
    if (p.possible) most = kFarWorse * p.ns;
  }
  chosen = fastest(workload.collective, kClearlyBetter, predicted).algorithm;
  if (chosen == nullptr) {
    // Any algorithm will do: binding it says what is wrong with the links.
    const auto any = std::ranges::find_if(
        algorithms(), [&](const Algorithm& a) { return may_serve(a, workload); });
    if (any == algorithms().end()) {
      throw Error(ErrorCode::internal,
                  "no algorithm for " + std::string(name(workload.collective)));
    }
    chosen = &*any;
  }
  const auto number = static_cast<std::size_t>(chosen - all.data()) + 1;
  if (findings != nullptr && number <= UINT8_MAX) {
    findings->say(question, static_cast<std::uint8_t>(number));
  }
  return *chosen;
}

bool Chooser::may_run(const Algorithm& algorithm) {
  const std::lock_guard lock(memory_->mutex);
  return may_run_there(algorithm);
}

bool Chooser::may_run_there(const Algorithm& algorithm) {
  const Platform& platform = memory_->platform;
  if (!algorithm.windows || platform.hosts.count() == 1) return true;
  const auto known = memory_->may_run.find(&algorithm);
  if (known != memory_->may_run.end()) return known->second;
  PlanRequest request;
  request.collective = algorithm.collective;
  request.ranks = platform.ranks;
  bool may = false;
  try {
    may = !use_of(algorithm, request, memory_->layout, platform.hosts).across;
  } catch (const Error&) {  // groups that do not divide the ranks, say
  }
  memory_->may_run.emplace(&algorithm, may);
  return may;
}

bool Chooser::rounds_once(const Algorithm& algorithm) {
  const std::lock_guard lock(memory_->mutex);
  return rounds_once_there(algorithm);
}

bool Chooser::rounds_once_there(const Algorithm& algorithm) {
  const auto known = memory_->rounds_once.find(&algorithm);
  if (known != memory_->rounds_once.end()) return known->second;
  const bool once = tutti::rounds_once(algorithm, memory_->platform.ranks, memory_->layout);
  memory_->rounds_once.emplace(&algorithm, once);
  return once;
}

std::vector<Prediction> Chooser::candidates(const Workload& workload) {
  std::vector<Prediction> all;
  const std::lock_guard lock(memory_->mutex);
  for (const Algorithm& a : algorithms()) {
    if (!may_serve(a, workload)) continue;
    Prediction p = predict(a, workload, memory_->platform);
    if (p.possible) all.push_back(std::move(p));
  }
  std::ranges::stable_sort(all, {}, &Prediction::ns);
  return all;
}

}  // namespace tutti
