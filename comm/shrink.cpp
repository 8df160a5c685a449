#include "comm/shrink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/number.h"
#include "core/wait.h"
#include "transport/network/network.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSameList[] =
    "all ranks that stay must call shrink() with the same list, in the same order";

/// How a rank's shrink() stands.
enum State : std::uint64_t { kWaiting = 0, kGivenUp = 1, kMismatch = 2, kTimedOut = 3 };

/// The number of a Remark: how often its rank has shrunk so, the State, and the rank that it gave
/// up on.
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

/// What a Remark says: the ranks that a rank excludes ("3 5!"), those of them that it has lost
/// ("5!"), and others that it has lost ("7?").
struct Word {
  std::vector<int> excluded;
  std::vector<int> lost;

  static Word from(const std::string& text, int ranks) {
    Word word;
    // A number that is cut off at the end of a long text has no mark.
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t digits = rest.find_first_not_of("0123456789");
      const auto number = parse_number<int>(rest.substr(0, digits));
      if (digits == std::string_view::npos || !number) break;
      const int rank = *number;
      const char mark = rest[digits];
      rest.remove_prefix(digits + 1);
      if (rank >= ranks) continue;
      if (mark != kExcluded && mark != kBoth && mark != kLost) break;
      if (mark != kLost) word.excluded.push_back(rank);
      if (mark != kExcluded) word.lost.push_back(rank);
    }
    return word;
  }
  std::string text() const {
    std::string all;
    for (const int r : excluded) all += fmt::format("{}{}", r, holds(lost, r) ? kBoth : kExcluded);
    for (const int r : lost) {
      if (!holds(excluded, r)) all += fmt::format("{}{}", r, kLost);
    }
    return all;
  }
  static bool holds(const std::vector<int>& ranks, int rank) {
    return std::ranges::binary_search(ranks, rank);
  }

 private:
  static constexpr char kExcluded = ' ', kBoth = '!', kLost = '?';
};

std::string excludes(int rank, const std::vector<int>& excluded) {
  return fmt::format("rank {} excludes {}", rank,
                     excluded.empty() ? "nobody" : fmt::format("{}", fmt::join(excluded, ", ")));
}

/// One rank's meeting with the other survivors.
class Meeting {
 public:
  Meeting(RankGroup& group, const Shrinking& mine,
          const std::function<std::uint64_t(const std::vector<int>&)>& calls_with)
      : group_(group), mine_(mine), calls_with_(calls_with) {
    look_who_is_gone();
    say(kWaiting, -1);
  }

  /// Whether all are here; throws for one that cannot come.
  bool complete(Deadline deadline) {
    int missing = -1;
    look_who_is_gone();
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
    // One that is gone will not come, and its losses do not count; but why it has given up does.
    const bool there = !is_gone(rank);
    diagnostics_.ask(rank);
    const auto said = group_.control(rank).announced.read();
    if (!said) return false;
    const auto [times, state, culprit] = Stage::from(said->number);
    const Word word = Word::from(said->text, group_.size());
    if (there) learn(rank, word);
    if (state == kGivenUp) return false;
    if (times == mine_.times && word.excluded == mine_.excluded) {
      if (state == kWaiting) return there;
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
    if (state == kTimedOut) return false;
    const Shrinking theirs = Shrinking::without(word.excluded, group_.size());
    const bool waits_for_me = std::ranges::binary_search(theirs.survivors, group_.rank()) &&
                              calls_with_(theirs.survivors) < times;
    if (!waits_for_me) return false;
    // One of the two may not know yet that a rank is gone, but will by itself, or hears it now.
    give_up_if_gone();
    const std::vector<int> ending = liveness_.ending_ranks();
    const auto is_going = [&](int r) { return is_gone(r) || std::ranges::count(ending, r) > 0; };
    const bool explained =
        std::ranges::any_of(theirs.survivors, is_going) ||
        std::ranges::any_of(mine_.survivors, is_going) ||
        std::ranges::any_of(word.lost, [&](int r) { return !Word::holds(mine_.excluded, r); });
    if (explained || news_may_come()) return false;
    give_up(ErrorCode::mismatch, kMismatch, rank,
            fmt::format("{}, {}: {}", excludes(group_.rank(), mine_.excluded),
                        excludes(rank, word.excluded), kSameList));
  }

  /// On other hosts a death may be known a moment later; that is not yet another list.
  bool news_may_come() {
    constexpr auto kNews = std::chrono::milliseconds(1500);
    if (group_.one_host()) return false;
    const auto now = Clock::now();
    if (differs_since_ == Clock::time_point{}) differs_since_ = now;
    return now - differs_since_ < kNews;
  }

  // --- Who is gone ---

  /// As far as this rank knows: the ranks that have died, have left or are out of reach, and the
  /// rank that the communicator has failed for.
  void look_who_is_gone() {
    gone_ = liveness_.dead_ranks();
    for (int r = 0; r < group_.size(); ++r) {
      if (liveness_.has_left(r)) gone_.push_back(r);
    }
    if (const int r = lost_by_others(); r >= 0) gone_.push_back(r);
    std::erase(gone_, group_.rank());
    std::ranges::sort(gone_);
    gone_.erase(std::ranges::unique(gone_).begin(), gone_.end());
  }
  bool is_gone(int rank) const { return Word::holds(gone_, rank); }
  /// The rank that the communicator has failed for; this rank may still reach it. -1: none.
  int lost_by_others() const {
    if (!liveness_.failed()) return -1;
    const Failure failure = liveness_.failure();
    return failure.code == ErrorCode::peer_lost ? failure.rank : -1;
  }

  /// Takes rank `rank`'s word on which ranks are lost.
  void learn(int rank, const Word& word) {
    for (const int lost : word.lost) {
      if (lost != group_.rank() && is_gone(lost)) continue;
      if (!group_.same_host(lost)) {
        lose(lost, Departure::died, fmt::format("is lost to rank {}", rank));
      } else if (!group_.same_host(rank) && (lost == group_.rank() || !news_may_come())) {
        // This rank is there, and so is any other of this host, unless its death shows here by
        // itself. The ranks here and a rank that has lost one of them do not meet again.
        lose(rank, Departure::cut_off, fmt::format("has lost rank {} of this host", lost));
      }
    }
  }
  void lose(int rank, Departure how, const std::string& why) {
    liveness_.lose(rank, how, why);
    look_who_is_gone();
  }

  void give_up_if_gone() {
    look_who_is_gone();
    for (const int r : gone_) {
      if (!std::ranges::binary_search(mine_.survivors, r)) continue;
      give_up_if_refused(r);
      std::string does = liveness_.why_lost(r).value_or("has died or left the communicator");
      if (r == lost_by_others() && !liveness_.has_left(r)) does = "is lost to another rank";
      give_up(ErrorCode::peer_lost, kGivenUp, r,
              fmt::format("rank {} ({}) {}; exclude it too", r, group_.process_text(r), does));
    }
  }

  /// Where it is this rank that cannot hold the connection.
  void give_up_if_refused(int rank) {
    if (group_.same_host(rank)) return;
    const auto gone = group_.network()->gone();
    const auto found = gone.find(group_.member(rank));
    if (found == gone.end() || found->second.how != Departure::refused) return;
    say(kGivenUp, rank);
    const Failure refusal = refusal_here(group_, rank, found->second.why);
    throw Error(refusal.code, fmt::format("shrink: {}", refusal.text), refusal.rank);
  }

  // --- What this rank says ---

  void say(State state, int culprit) {
    const Word word{mine_.excluded, gone_};
    group_.control().announced.say(Stage{mine_.times, state, culprit}.number(), word.text());
    for (const int r : mine_.survivors) {
      if (r != group_.rank()) diagnostics_.tell(r);
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
  Liveness& liveness_ = group_.liveness();
  Diagnostics& diagnostics_ = group_.diagnostics();
  const Shrinking& mine_;
  const std::function<std::uint64_t(const std::vector<int>&)>& calls_with_;
  std::vector<int> gone_;  // in order
  Clock::time_point differs_since_{};
};

}  // namespace

Shrinking Shrinking::without(std::span<const int> excluded, int ranks) {
  Shrinking s;
  for (int r = 0; r < ranks; ++r) {
    const bool stays = std::ranges::find(excluded, r) == excluded.end();
    (stays ? s.survivors : s.excluded).push_back(r);
  }
  return s;
}

void meet_to_shrink(RankGroup& group, const Shrinking& mine,
                    const std::function<std::uint64_t(const std::vector<int>&)>& calls_with,
                    Deadline deadline) {
  // Too many to tell: they meet by keys.
  if (Word{mine.excluded, {}}.text().size() > Remark::kMostText) return;
  Meeting meeting(group, mine, calls_with);
  wait_until(Deadline::max(), [&] { return meeting.complete(deadline); });
}

}  // namespace tutti
