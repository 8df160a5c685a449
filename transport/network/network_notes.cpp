// The notes that communicators send to each other over a Network (network.h), and the news of ranks
// that have left them or are lost. A note may come before its communicator is there, and is kept;
// or after it is over, and is answered.
#include <cstring>
#include <exception>
#include <utility>

#include "transport/network/network.h"

namespace tutti {
namespace {

constexpr std::size_t kMostKept = 4096;  // notes for one communicator that is not there yet
constexpr std::size_t kMostOver = 4096;  // communicators that are over, and still asked for
// A note of its own: the answer to one for a communicator that is over. The type of the answer and
// its bytes follow. Nobody answers an answer, so two ranks that have left do not go on for ever.
constexpr std::uint32_t kAnswer = 0;
// The answer of a rank that never joined: the identity of the rank because of which, or 0.
constexpr std::uint32_t kRefusal = 10;

}  // namespace

void Network::join(std::uint64_t communicator, Listener& listener) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_[communicator] = &listener;
  over_.erase(communicator);
  if (const auto early = early_.extract(communicator)) {
    for (const EarlyNote& news : early.mapped()) pass_to(listener, news, communicator);
  }
  for (const auto& [member, end] : gone_) listener.on_gone(member, end.how, end.why);
}

std::map<int, Network::Gone> Network::gone() {
  const std::lock_guard lock(listeners_mutex_);
  return gone_;
}

bool Network::has_hung_up(int member) {
  if (gone().contains(member)) return true;
  const auto rank = find(member);
  return rank != nullptr && rank->has_hung_up();
}

void Network::leave(std::uint64_t communicator, bool failed, std::optional<Note> answer) {
  // Whatever becomes of the rest: nobody tells the listener anything any more, and no link rings
  // its doorbells.
  const Listener* listener = nullptr;
  std::exception_ptr error;
  {
    const std::lock_guard lock(listeners_mutex_);
    last_failed_ = failed;
    if (const auto found = listeners_.extract(communicator)) listener = found.mapped();
    early_.erase(communicator);
    try {
      note_over(communicator, std::move(answer));
    } catch (...) {
      error = std::current_exception();
    }
  }
  for (int last = -1; listener != nullptr;) {
    std::shared_ptr<RemoteRank> r;
    {
      const std::lock_guard lock(mutex_);
      const auto next = ranks_.upper_bound(last);
      if (next == ranks_.end()) break;
      last = next->first;
      if (listener->has(last)) r = next->second;
    }
    if (r != nullptr) r->wire().close(communicator);
  }
  if (error) std::rethrow_exception(error);
}

void Network::note_over(std::uint64_t communicator, std::optional<Note> answer) {
  if (!over_.try_emplace(communicator, std::move(answer)).second) return;  // refused before
  over_in_order_.push_back(communicator);
  if (over_in_order_.size() <= kMostOver) return;
  over_.erase(over_in_order_.front());
  over_in_order_.pop_front();
}

void Network::refuse(std::uint64_t communicator, int because_of) {
  const std::uint64_t identity = identity_of(because_of);
  const auto bytes = protocol::bytes_of(identity);
  const Note refusal{kRefusal, {bytes.begin(), bytes.end()}};
  std::set<int> who;
  {
    const std::lock_guard lock(listeners_mutex_);
    if (const auto early = early_.extract(communicator)) {
      for (const EarlyNote& k : early.mapped()) who.insert(k.member);
    }
    note_over(communicator, refusal);
  }
  for (const int member : who) answer(member, communicator, refusal);
}

void Network::answer(int member, std::uint64_t communicator, const std::optional<Note>& note) {
  std::shared_ptr<RemoteRank> r;
  {
    const std::lock_guard lock(mutex_);
    r = find_or_make(member);
  }
  if (r == nullptr) return;
  r->connect();
  if (note) {
    std::vector<std::byte> bytes(sizeof note->type);
    std::memcpy(bytes.data(), &note->type, sizeof note->type);
    bytes.insert(bytes.end(), note->bytes.begin(), note->bytes.end());
    r->tell(communicator, kAnswer, bytes);
  }
  // By the way of the data, after what this rank had sent. One that has not joined has sent
  // nothing.
  if (!note || note->type != kRefusal) r->wire().say_left(communicator);
}

void Network::tell(int member, std::uint64_t communicator, std::uint32_t type,
                   std::span<const std::byte> bytes) {
  remote(member).tell(communicator, type, bytes);
}

void Network::tell_connected(int member, std::uint64_t communicator, std::uint32_t type,
                             std::span<const std::byte> bytes) {
  const auto r = find(member);
  if (r != nullptr && r->is_up()) r->tell(communicator, type, bytes);
}

void Network::on_note(int member, std::uint64_t communicator, std::uint32_t type,
                      std::span<const std::byte> bytes) {
  if (type == kDialNote) return take_request(member, bytes);
  const bool is_answer = type == kAnswer;
  if (is_answer) {
    if (bytes.size() < sizeof type) return;
    std::memcpy(&type, bytes.data(), sizeof type);
    bytes = bytes.subspan(sizeof type);
  } else if (type == kRefusal) {
    return;
  }
  if (pass({member, Note{type, {bytes.begin(), bytes.end()}}}, communicator) || is_answer) return;
  std::optional<Note> its;
  {
    const std::lock_guard lock(listeners_mutex_);
    if (const auto over = over_.find(communicator); over != over_.end()) its = over->second;
  }
  answer(member, communicator, its);
}

void Network::on_left(int member, std::uint64_t communicator) {
  if (pass({member, std::nullopt}, communicator)) return;
  if (const auto r = find(member)) r->wire().forget_left(communicator);
}

bool Network::pass(EarlyNote news, std::uint64_t communicator) {
  const std::lock_guard lock(listeners_mutex_);
  if (const auto found = listeners_.find(communicator); found != listeners_.end()) {
    pass_to(*found->second, news, communicator);
    return true;
  }
  if (over_.contains(communicator)) return false;
  auto& early = early_[communicator];
  if (early.size() < kMostKept) early.push_back(std::move(news));
  return true;
}

void Network::pass_to(Listener& listener, const EarlyNote& news, std::uint64_t communicator) {
  if (!news.note) return listener.on_left(news.member, communicator);
  const auto& [type, bytes] = *news.note;
  if (type != kRefusal) return listener.on_note(news.member, type, bytes);
  std::uint64_t identity = 0;
  if (bytes.size() == sizeof identity) std::memcpy(&identity, bytes.data(), bytes.size());
  int because_of = -1;
  {
    const std::lock_guard lock(mutex_);
    because_of = number_of(identity);
  }
  listener.on_refused(news.member, because_of);
}

void Network::on_gone(int member, Departure how, const std::string& why) {
  const std::lock_guard lock(listeners_mutex_);
  gone_[member] = {how, why};
  for (const auto& [communicator, listener] : listeners_) listener->on_gone(member, how, why);
}

}  // namespace tutti
