// See elastic_run.h.
#include "tools/elastic_run.h"

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

ElasticRun::ElasticRun(ElasticLimits limits, int most, std::function<void(const Message&)> command)
    : limits_(limits), command_(std::move(command)), processes_(static_cast<std::size_t>(most)) {
  for (Process& process : processes_) process.lives = true;
}

void ElasticRun::tell(int rank, const ElasticMessage& message) {
  command_({.kind = MessageKind::word, .number = rank, .text = encode(message)});
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
  int living = 0;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const Process& process = processes_[rank];
    if (process.lives) ++living;
    if (!process.is_there) continue;
    if (process.offered != wanted_) return;
    members.push_back(static_cast<int>(rank));
  }
  const int count = static_cast<int>(members.size());
  if (count == 0 || (count < limits_.least && !finishing_)) return;
  if (!has_begun_ && count < living && std::chrono::steady_clock::now() < next_wake()) return;
  std::ranges::stable_sort(members, {}, [&](int rank) { return at(rank).place; });
  ElasticMessage list{ElasticMessage::Kind::members, wanted_};
  for (const int rank : members) {
    at(rank).place = static_cast<int>(list.handles.size());
    list.handles.push_back(at(rank).handle);
  }
  closed_ = has_begun_ = true;
  for (const int rank : members) tell(rank, list);
}

bool ElasticRun::may_start_again(const Process& process) {
  if (finishing_) {
    why_not_ = "as others have ended with status 0";
  } else if (!process.is_there && ++never_there_ >= kMostNeverThere) {
    why_not_ = fmt::format("as {} processes in a row have ended before they joined", never_there_);
  } else if (restarts_ >= limits_.restarts) {
    why_not_ = fmt::format("as {} processes were started again (--restarts)", restarts_);
  } else {
    ++restarts_;
    return true;
  }
  return false;
}

ElasticRun::Then ElasticRun::ended(int rank, bool failed) {
  const Process before = std::exchange(at(rank), {});
  if (!failed) finishing_ = true;
  const bool again = failed && may_start_again(before);
  if (again) {
    const bool early = !before.is_there && std::chrono::steady_clock::now() - before.began < kEarly;
    at(rank).lives = true;
    const auto pause = early ? std::chrono::milliseconds(kPause) : 0ms;
    command_({.kind = MessageKind::start_again,
              .number = rank,
              .value = static_cast<std::int32_t>(pause.count()),
              .text = ""});
  }
  const auto living = std::ranges::count(processes_, true, &Process::lives);
  if (!again && failed && !finishing_ && living < limits_.least) return Then::too_few;
  if (before.is_there && closed_) {
    want(wanted_ + 1);
  } else {
    close_if_ready();  // it was the one for which the others waited
  }
  return again ? Then::starts_again : Then::goes_on;
}

void ElasticRun::serve() {
  if (!has_begun_ && std::chrono::steady_clock::now() >= next_wake()) close_if_ready();
}

ElasticRun::Time ElasticRun::next_wake() const {
  return has_begun_ || first_offer_ == Time::max() ? Time::max() : first_offer_ + kForFirstRound;
}

}  // namespace tutti
