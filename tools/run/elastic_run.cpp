// See elastic_run.h.
#include "tools/run/elastic_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kForFirstRound = 5s;  // after the first rank is there, for all to be
constexpr int kMostNeverThere = 3;   // in a row: then the program is no rank of an elastic job
constexpr auto kEarly = 1s;          // a process that failed sooner, and was not there yet, is
constexpr auto kPause = 1s;          // started again only after this

}  // namespace

ElasticRun::ElasticRun(ElasticLimits limits, std::vector<int> host_of,
                       std::function<void(const Message&)> command)
    : limits_(limits),
      host_of_(std::move(host_of)),
      command_(std::move(command)),
      processes_(host_of_.size()) {
  for (int rank = 0; rank < limits_.most; ++rank) at(rank).lives = true;
}

void ElasticRun::start() {
  for (int rank = 0; rank < limits_.most; ++rank) start(rank, 0ms);
}

void ElasticRun::start(int rank, std::chrono::milliseconds pause) {
  at(rank).lives = true;
  command_({.kind = MessageKind::start_rank,
            .host = host_of(rank),
            .number = rank,
            .value = static_cast<std::int32_t>(pause.count()),
            .text = ""});
}

void ElasticRun::tell(int rank, const ElasticMessage& message) {
  command_(
      {.kind = MessageKind::word, .host = host_of(rank), .number = rank, .text = encode(message)});
}

void ElasticRun::started(int rank) {
  at(rank) = {.lives = true, .handle = {}, .began = std::chrono::steady_clock::now()};
  tell(rank, {ElasticMessage::Kind::wanted, wanted_});
}

void ElasticRun::want(std::uint64_t number) {
  wanted_ = number;
  closed_ = false;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    if (processes_[rank].lives) {
      tell(static_cast<int>(rank), {ElasticMessage::Kind::wanted, wanted_});
    }
  }
}

void ElasticRun::said(int rank, std::string_view text) {
  auto message = decode_elastic(text);
  if (!message || message->kind != ElasticMessage::Kind::offer || message->number > wanted_ + 1) {
    throw Error(ErrorCode::mismatch,
                fmt::format("rank {} of the elastic job is of another version of Tutti", rank));
  }
  Process& process = at(rank);
  if (!process.lives) return;
  process.is_there = true;
  never_there_ = 0;
  first_offer_ = std::min(first_offer_, std::chrono::steady_clock::now());
  process.offered = message->number;
  process.handle = std::move(message->handles.front());
  // Its round has failed, or one is closed that it has not been in.
  if (process.offered > wanted_ || closed_) {
    want(wanted_ + 1);
  } else if (process.offered < wanted_) {
    tell(rank, {ElasticMessage::Kind::wanted, wanted_});
  }
  close_if_ready();
}

void ElasticRun::close_if_ready() {
  if (closed_) return;
  std::vector<int> members;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const Process& process = processes_[rank];
    if (!process.is_there) continue;
    if (process.offered != wanted_) return;
    members.push_back(static_cast<int>(rank));
  }
  const int count = static_cast<int>(members.size());
  if (count == 0 || (count < limits_.least && !finishing_)) return;
  const bool all_are_new =
      std::ranges::all_of(members, [&](int rank) { return at(rank).position == kNewcomer; });
  done_without_the_rest_ = has_begun_ && finishing_ && all_are_new;
  if (done_without_the_rest_) return;
  if (!has_begun_ && count < living() && std::chrono::steady_clock::now() < next_wake()) return;
  std::ranges::stable_sort(members, {}, [&](int rank) { return at(rank).position; });
  ElasticMessage list{ElasticMessage::Kind::members, wanted_};
  for (const int rank : members) {
    at(rank).position = static_cast<int>(list.handles.size());
    list.handles.push_back(at(rank).handle);
  }
  closed_ = has_begun_ = true;
  for (const int rank : members) tell(rank, list);
}

int ElasticRun::living() const {
  return static_cast<int>(std::ranges::count(processes_, true, &Process::lives));
}

int ElasticRun::next_place(int rank, const Process& before) {
  const bool is_lost = std::ranges::count(lost_hosts_, host_of(rank)) > 0;
  // What dies with its host is not to blame.
  if (!is_lost && !before.is_there) ++never_there_;
  if (finishing_) {
    why_not_ = "as others have ended with status 0";
  } else if (never_there_ >= kMostNeverThere) {
    why_not_ = fmt::format("as {} processes in a row have ended before they joined", never_there_);
  } else if (restarts_ >= limits_.restarts) {
    why_not_ = fmt::format("as {} processes were started again (--restarts)", restarts_);
  } else if (!is_lost) {
    return rank;
  } else {
    for (std::size_t place = 0; place < processes_.size(); ++place) {
      if (processes_[place].lives) continue;
      if (std::ranges::count(lost_hosts_, host_of_[place]) == 0) return static_cast<int>(place);
    }
    why_not_ = "as no other host has room for more";
  }
  return -1;
}

ElasticRun::Then ElasticRun::ended(int rank, bool failed) { return end({&rank, 1}, failed); }

std::vector<int> ElasticRun::living_on(int host) const {
  std::vector<int> ranks;
  for (std::size_t place = 0; place < processes_.size(); ++place) {
    if (host_of_[place] == host && processes_[place].lives) {
      ranks.push_back(static_cast<int>(place));
    }
  }
  return ranks;
}

ElasticRun::Then ElasticRun::lost(int host) {
  lost_hosts_.push_back(host);
  return end(living_on(host), true);
}

ElasticRun::Then ElasticRun::end(std::span<const int> ranks, bool failed) {
  Then then;
  std::vector<Process> before;
  for (const int rank : ranks) before.push_back(std::exchange(at(rank), {}));
  finishing_ = finishing_ || !failed;
  for (std::size_t i = 0; failed && i < ranks.size(); ++i) {
    const int place = next_place(ranks[i], before[i]);
    if (place < 0) continue;
    ++restarts_;
    const bool early =
        !before[i].is_there && std::chrono::steady_clock::now() - before[i].began < kEarly;
    start(place, early ? std::chrono::milliseconds(kPause) : 0ms);
    then.starts.push_back(place);
  }
  then.too_few =
      then.starts.size() < ranks.size() && failed && !finishing_ && living() < limits_.least;
  if (then.too_few) return then;
  if (closed_ && std::ranges::any_of(before, &Process::is_there)) {
    want(wanted_ + 1);
  } else {
    close_if_ready();  // it was the one for which the others waited
  }
  return then;
}

void ElasticRun::serve() {
  if (!has_begun_ && std::chrono::steady_clock::now() >= next_wake()) close_if_ready();
}

ElasticRun::Time ElasticRun::next_wake() const {
  return has_begun_ || first_offer_ == Time::max() ? Time::max() : first_offer_ + kForFirstRound;
}

}  // namespace tutti
