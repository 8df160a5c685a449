#include "comm/shrink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "core/background.h"
#include "core/error.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSameList[] =
    "all ranks that stay must call shrink() with the same list, in the same order";

/// What has become of it.
enum State : std::uint64_t { kWaiting = 0, kGivenUp = 1, kMismatch = 2, kTimedOut = 3 };

/// The number of a Remark: how often its rank has shrunk so, the State, and on whom it gave up.
struct Stage {
  std::uint64_t times;
  State state;
  int culprit;

  static Stage from(std::uint64_t number) {
    return {number / 4 % (1ULL << kTimesBits), static_cast<State>(number % 4),
            static_cast<int>(number >> (kTimesBits + 2)) - 1};
  }
  std::uint64_t number() const {
    return static_cast<std::uint64_t>(culprit + 1) << (kTimesBits + 2) |
           times % (1ULL << kTimesBits) * 4 | state;
  }

 private:
  static constexpr int kTimesBits = 38;
};

std::vector<int> ranks_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<int> ranks;
  for (int r = 0; in >> r;) ranks.push_back(r);
  return ranks;
}

std::string excludes(int rank, const std::string& list) {
  return fmt::format("rank {} excludes {}", rank,
                     list.empty() ? "nobody" : fmt::format("{}", fmt::join(ranks_in(list), ", ")));
}

/// One rank's meeting with the other survivors.
class Meeting {
 public:
  Meeting(RankGroup& group, const Shrinking& mine,
          const std::function<std::uint64_t(const std::vector<int>&)>& calls_with)
      : group_(group), mine_(mine), calls_with_(calls_with) {
    say(kWaiting, -1);
  }

  /// Whether all are here; throws for one that cannot come.
  bool complete(Deadline deadline) {
    int missing = -1;
    for (const int r : mine_.survivors) {
      if (r != group_.rank() && !is_here(r) && missing < 0) missing = r;
    }
    if (missing < 0) return true;
    give_up_if_gone();
    if (Clock::now() >= deadline) give_up_late(missing);
    return false;
  }

 private:
  bool is_here(int rank) {
    group_.ask(rank);
    const auto said = group_.control(rank).shrinking.read();
    if (!said) return false;
    const auto [times, state, culprit] = Stage::from(said->number);
    if (state == kGivenUp) return false;
    if (times == mine_.times && said->text == mine_.excluded) {
      if (state == kWaiting) return true;
      // It may be gone by now, but that is not why.
      if (state == kMismatch && !group_.one_host() && news_may_come()) return false;
      if (state == kTimedOut) {
        // On this rank, which is late: the others may try again.
        if (culprit < 0 || culprit >= group_.size() || culprit == group_.rank()) return false;
        give_up_late(culprit);
      }
      give_up(ErrorCode::mismatch, kMismatch, rank,
              fmt::format("rank {}, which excludes the same ranks, has met one that does not: {}",
                          rank, kSameList));
    }
    // Else it may still be busy with others, without this rank, or be late.
    if (state == kTimedOut || said->text.size() >= Remark::kMostText) return false;
    const Shrinking theirs = Shrinking::without(ranks_in(said->text), group_.size());
    const bool waits_for_me = std::ranges::binary_search(theirs.survivors, group_.rank()) &&
                              calls_with_(theirs.survivors) < times;
    if (!waits_for_me) return false;
    // One of the two may not know yet that a rank is gone, but will by itself.
    give_up_if_gone();
    if (gone(theirs.survivors) || news_may_come()) return false;
    give_up(ErrorCode::mismatch, kMismatch, rank,
            fmt::format("{}, {}: {}", excludes(group_.rank(), mine_.excluded),
                        excludes(rank, said->text), kSameList));
  }

  /// On other hosts a death may be known a moment later; that is not yet another list.
  bool news_may_come() {
    constexpr auto kNews = std::chrono::milliseconds(1500);
    if (group_.one_host()) return false;
    const auto now = Clock::now();
    if (differs_since_ == Clock::time_point{}) differs_since_ = now;
    return now - differs_since_ < kNews;
  }

  /// The first of `ranks` that has died or left.
  std::optional<int> gone(const std::vector<int>& ranks) {
    const std::vector<int> dead = group_.dead_ranks();
    for (const int r : ranks) {
      if (group_.has_left(r) || std::ranges::count(dead, r) > 0) return r;
    }
    return std::nullopt;
  }
  /// Whom the communicator has failed for: lost by another rank, it may be there for this one.
  std::optional<int> lost_by_others() const {
    if (!group_.failed()) return std::nullopt;
    const Failure failure = group_.failure();
    const bool stays =
        failure.rank != group_.rank() && std::ranges::binary_search(mine_.survivors, failure.rank);
    if (failure.code != ErrorCode::peer_lost || !stays) return std::nullopt;
    return failure.rank;
  }
  void give_up_if_gone() {
    if (const auto r = gone(mine_.survivors)) {
      give_up(ErrorCode::peer_lost, kGivenUp, *r,
              fmt::format("rank {} ({}) has died or left the communicator; exclude it too", *r,
                          group_.process_text(*r)));
    }
    if (const auto r = lost_by_others()) {
      give_up(ErrorCode::peer_lost, kGivenUp, *r,
              fmt::format("another rank has lost rank {} ({}); exclude it too", *r,
                          group_.process_text(*r)));
    }
  }

  void say(State state, int culprit) {
    group_.control().shrinking.say(Stage{mine_.times, state, culprit}.number(), mine_.excluded);
    for (const int r : mine_.survivors) {
      if (r != group_.rank()) group_.tell(r);
    }
  }

  [[noreturn]] void give_up_late(int missing) {
    give_up(ErrorCode::timed_out, kTimedOut, missing,
            fmt::format("rank {} has not called it in time; {}", missing, kSameList));
  }
  [[noreturn]] void give_up(ErrorCode code, State state, int culprit, const std::string& why) {
    say(state, culprit);
    throw Error(code, fmt::format("shrink: rank {}: {}", group_.rank(), why), culprit);
  }

  RankGroup& group_;
  const Shrinking& mine_;
  const std::function<std::uint64_t(const std::vector<int>&)>& calls_with_;
  Clock::time_point differs_since_{};
};

}  // namespace

Shrinking Shrinking::without(std::span<const int> excluded, int ranks) {
  Shrinking s;
  for (int r = 0; r < ranks; ++r) {
    if (std::ranges::find(excluded, r) == excluded.end()) {
      s.survivors.push_back(r);
    } else {
      s.excluded += fmt::format("{}{}", s.excluded.empty() ? "" : " ", r);
    }
  }
  return s;
}

void meet_to_shrink(RankGroup& group, const Shrinking& mine,
                    const std::function<std::uint64_t(const std::vector<int>&)>& calls_with,
                    Deadline deadline) {
  if (mine.excluded.size() >= Remark::kMostText) return;  // too many to tell: they meet by keys
  Meeting meeting(group, mine, calls_with);
  while (!meeting.complete(deadline)) pause_for(std::chrono::microseconds(100));
}

}  // namespace tutti
