// See rendezvous_meetings.h.
#include "bootstrap/rendezvous_meetings.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_tree.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr rlim_t kOtherDescriptors = 64;  // that the process has, beside those of the ranks
// For so long it may lack descriptors: the program may close some, and strangers, who may have
// them, are sent away by then.
constexpr std::chrono::seconds kInTrouble(6);
constexpr std::size_t kMostFailed = 64;  // so many failures of meetings by number are kept

std::string peer_name(const FileDescriptor& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getpeername(socket.fd(), address.get(), &address.length) != 0) return "a lost connection";
  return to_string(address);
}

/// Each rank keeps a connection until all have met.
std::optional<Error> need_descriptors(int size) {
  rlimit limit{};
  const rlim_t need = static_cast<rlim_t>(size) + kOtherDescriptors;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) return std::nullopt;
  return Error(ErrorCode::system,
               fmt::format("rendezvous: {} ranks need {} descriptors in the process that made "
                           "the unique id, which may have {}: raise `ulimit -n` before it starts",
                           size, need, limit.rlim_cur));
}

}  // namespace

RendezvousMeetings::Clock::time_point RendezvousMeetings::next_wake() const {
  Clock::time_point wake = Clock::time_point::max();
  for (const auto& meeting : meetings_) {
    wake = std::min(wake, meeting->round.deadline());
    if (meeting->roll_call) wake = std::min(wake, meeting->roll_call->next_wake());
  }
  return wake;
}

void RendezvousMeetings::expire() {
  in_trouble_since_ =
      owner_.is_in_trouble() ? std::min(in_trouble_since_, owner_.now()) : Clock::time_point::max();
  for (const auto& meeting : std::vector(meetings_.begin(), meetings_.end())) {
    if (meeting->roll_call) call_the_roll(meeting);
    if (meeting->round.over()) continue;
    if (owner_.now() - kInTrouble >= in_trouble_since_ &&
        meeting->round.phase() == RendezvousRound::Phase::joining) {
      fail(meeting,
           Error(ErrorCode::system,
                 fmt::format("rendezvous: some ranks cannot be let in: {}", owner_.trouble())));
      continue;
    }
    if (owner_.now() < meeting->round.deadline()) continue;
    meeting->round.expire(owner_.trouble());
    settle(meeting);
  }
}

bool RendezvousMeetings::is_to_tell_of_failure() const {
  const auto joining = joining_.find(0);
  return joining != joining_.end() && joining->second->round.failure() &&
         joining->second->hellos < joining->second->round.size();
}

void RendezvousMeetings::lost(const Member& member) {
  if (!member.meeting) return;
  member.meeting->round.leave(member.rank);
  settle(member.meeting);
}

void RendezvousMeetings::hear(std::uint64_t who) {
  Member& member = members_.at(who);
  const protocol::FrameReader& frame = member.reader;
  if (!member.greeted && frame.type() == protocol::FrameType::hello &&
      frame.payload().size() >= sizeof(protocol::Hello)) {
    return join(who);
  }
  if (!member.greeted && frame.type() == protocol::FrameType::trouble) return refuse(who);
  if (!member.greeted && frame.type() == protocol::FrameType::question && appointments_) {
    return answer_question(who);
  }
  if (!member.meeting) return members_.lose(who);
  const std::shared_ptr<Meeting> meeting = member.meeting;
  const auto failure = frame.type() == protocol::FrameType::trouble
                           ? protocol::failure_in(frame.payload(), meeting->round.size())
                           : std::nullopt;
  if (failure) {
    meeting->round.fail(*failure);
  } else if (frame.type() == protocol::FrameType::have && frame.payload().empty() &&
             meeting->round.phase() != RendezvousRound::Phase::joining) {
    meeting->round.have(member.rank);
  } else {
    return members_.lose(who);
  }
  settle(meeting);
}

void RendezvousMeetings::join(std::uint64_t who) {
  Member& member = members_.at(who);
  protocol::Hello hello;
  std::memcpy(static_cast<void*>(&hello), member.reader.payload().data(), sizeof hello);
  members_.greet(who);
  member.rank = hello.rank;
  if (owner_.is_closing()) {
    const Error used(ErrorCode::invalid_usage,
                     "rendezvous: the ranks of this unique id have met already; an id is good "
                     "for one communicator, so make another");
    return members_.answer(who, used, owner_.now());
  }
  if (appointments_) {
    const auto failed = failed_.find(hello.about.number);
    if (failed != failed_.end()) return members_.answer(who, failed->second, owner_.now());
    if (const auto wrong = appointments_->judge(hello.about)) {
      members_.answer(who, *wrong, owner_.now());
      // Ranks that come to it later hear why.
      if (wrong->code() == ErrorCode::mismatch) fail(next_meeting(hello.about.number), *wrong);
      return;
    }
  } else if (hello.about != Appointment{}) {
    return members_.lose(who);
  }
  const std::shared_ptr<Meeting> meeting = next_meeting(hello.about.number);
  ++meeting->hellos;
  const auto card = member.reader.payload().subspan(sizeof hello);
  if (const auto error = meeting->round.join(hello, card, peer_name(member.socket))) {
    return members_.answer(who, *error, owner_.now());
  }
  if (const auto error = need_descriptors(hello.size)) meeting->round.fail(*error);
  member.meeting = meeting;
  settle(meeting);
}

std::shared_ptr<Meeting> RendezvousMeetings::next_meeting(std::uint64_t number) {
  if (const auto known = joining_.find(number); known != joining_.end()) return known->second;
  const auto meeting = std::make_shared<Meeting>();
  joining_.emplace(number, meeting);
  try {
    meetings_.push_back(meeting);
  } catch (...) {
    joining_.erase(number);
    throw;
  }
  return meeting;
}

void RendezvousMeetings::refuse(std::uint64_t who) {
  const auto payload = members_.at(who).reader.payload();
  const auto failure = protocol::failure_in(payload, protocol::kMaxRanks);
  const std::uint64_t number = protocol::number_in(payload);
  members_.remove(who);
  if (!failure || owner_.is_closing() || (number != 0 && !appointments_) ||
      failed_.contains(number)) {
    return;
  }
  const std::shared_ptr<Meeting> meeting = next_meeting(number);
  ++meeting->hellos;
  fail(meeting, *failure);
}

void RendezvousMeetings::fail(const std::shared_ptr<Meeting>& meeting, const Error& why) {
  meeting->round.fail(why);
  settle(meeting);
}

void RendezvousMeetings::settle(const std::shared_ptr<Meeting>& meeting) {
  const RendezvousRound& round = meeting->round;
  if (round.failure()) {
    for (const std::uint64_t who : members_.of(meeting))
      members_.answer(who, *round.failure(), owner_.now());
    end(meeting);
  } else if (round.phase() == RendezvousRound::Phase::met) {
    for (const std::uint64_t who : members_.of(meeting)) {
      members_.answer(who, protocol::frame(members_.at(who).session, protocol::FrameType::go, {}));
    }
    end(meeting);
  } else {
    owner_.on_under_way();
    if (round.phase() == RendezvousRound::Phase::passing && !meeting->roster) {
      joining_.erase(round.about().number);
      meeting->roll_call.reset();
      owner_.on_complete();
      place(meeting);
    }
  }
}

void RendezvousMeetings::place(const std::shared_ptr<Meeting>& meeting) {
  const int size = meeting->round.size();
  meeting->roster = std::make_shared<const std::vector<std::byte>>(meeting->round.roster());
  protocol::Placement placement;
  protocol::fill_random(placement.nonce);
  placement.roster_bytes = meeting->roster->size();
  placement.roster_hash = protocol::roster_hash(*meeting->roster);
  for (const std::uint64_t who : members_.of(meeting)) {
    Member& member = members_.at(who);
    const int parent = tree::parent(member.rank, size);
    const bool here = parent == tree::kServer;
    placement.parent = here ? protocol::Endpoint{} : meeting->round.endpoint(parent);
    member.outbox.add(protocol::frame(member.session, protocol::FrameType::placement,
                                      {protocol::bytes_of(placement)}));
    if (here) member.outbox.add(meeting->roster);
  }
  // Sent after all have one: a member that is gone ends the round.
  for (const std::uint64_t who : members_.of(meeting)) {
    if (members_.has(who)) members_.send(who);
  }
}

void RendezvousMeetings::end(const std::shared_ptr<Meeting>& meeting) {
  meetings_.remove(meeting);
  meeting->roll_call.reset();
  if (appointments_) {
    std::erase_if(joining_, [&](const auto& entry) {
      if (entry.second != meeting) return false;
      if (failed_.size() >= kMostFailed) failed_.erase(failed_.begin());
      failed_.emplace(entry.first, *meeting->round.failure());
      return true;
    });
  }
  // Of a unique id, ranks that are late shall hear of a failure, too: joining_ stays.
  owner_.on_over();
}

void RendezvousMeetings::look_at_appointments() {
  for (const auto& call : appointments_->calls()) {
    if (call->rank != 0 || failed_.contains(call->about.number)) continue;
    const auto meeting = next_meeting(call->about.number);
    if (meeting->roll_call) continue;
    // Where it cannot ask, that meeting fails, and this server goes on.
    try {
      meeting->roll_call = std::make_unique<RollCall>(call, owner_.now());
      owner_.watch_roll_call(meeting->roll_call->descriptor());
    } catch (const Error& error) {
      fail(meeting, error);
    }
  }
  // Visitors that came before this rank was called.
  for (const auto& meeting : std::vector(meetings_.begin(), meetings_.end())) {
    if (meeting->round.phase() != RendezvousRound::Phase::joining) continue;
    if (meeting->round.about() == Appointment{}) continue;
    if (const auto wrong = appointments_->judge(meeting->round.about())) fail(meeting, *wrong);
  }
  std::erase_if(questions_, [&](const auto& question) {
    if (!members_.has(question.first)) return true;
    const auto wrong = appointments_->judge(question.second);
    if (wrong) members_.answer(question.first, *wrong, owner_.now());
    return wrong.has_value();
  });
}

void RendezvousMeetings::call_the_roll(const std::shared_ptr<Meeting>& meeting) {
  const RendezvousRound& round = meeting->round;
  std::optional<Error> wrong;
  try {
    wrong = meeting->roll_call->step([&](int rank) { return !round.has(rank); }, owner_.now());
  } catch (const Error& error) {
    wrong = error;
  }
  if (wrong) fail(meeting, *wrong);
}

void RendezvousMeetings::answer_question(std::uint64_t who) {
  const auto about = members_.at(who).reader.payload_as<Appointment>();
  if (!about) return members_.lose(who);
  members_.greet(who);
  if (const auto wrong = appointments_->judge(*about)) {
    return members_.answer(who, *wrong, owner_.now());
  }
  questions_[who] = *about;
}

}  // namespace tutti
