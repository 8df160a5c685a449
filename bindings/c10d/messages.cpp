#include "messages.h"

#include <cstring>

namespace tutti::pytorch {

Messages::Messages(Communicator& comm)
    : comm_(comm), rank_(comm.rank()), peers_(static_cast<std::size_t>(comm.size())) {}

Future Messages::start(const Call& call, std::function<void(const std::optional<Error>&)> over) {
  Future future;
  try {
    future = comm_.start(call);
  } catch (const Error& error) {
    over(error);
    return {};
  }
  future.on_ready([future, over = std::move(over)] { over(future.error()); });
  return future;
}

namespace {

Call message(const void* data, std::size_t bytes, int peer, bool sends,
             std::chrono::nanoseconds timeout) {
  Call call;
  call.collective = Collective::send_recv;
  call.count = bytes;
  call.peer = peer;
  call.sends = sends;
  call.timeout = timeout;
  if (sends) {
    call.in = data;
  } else {
    call.out = const_cast<void*>(data);
  }
  return call;
}

}  // namespace

void Messages::send(Memory from, int peer, int tag, std::chrono::nanoseconds timeout, Done done) {
  const Header header{from.bytes, tag, static_cast<std::int32_t>(from.type)};
  if (peer == rank_) {
    auto kept = std::make_shared<Kept>(Kept{header, {from.data, from.data + from.bytes}});
    std::optional<Posted> to;
    {
      const std::lock_guard lock(mutex_);
      to = take(peer, tag);
      if (!to) peers_[static_cast<std::size_t>(peer)].kept.push_back(kept);
    }
    if (to) {
      if (to->to.bytes == from.bytes && from.bytes > 0) {
        std::memcpy(to->to.data, kept->data.data(), from.bytes);
      }
      deliver(*to, peer, header);
    }
    return done(std::nullopt, peer);
  }
  auto said = std::make_shared<Header>(header);
  const bool alone = from.bytes == 0;
  start(message(said.get(), sizeof(Header), peer, true, timeout),
        [said, alone, done, peer](const std::optional<Error>& why) {
          if (alone) done(why, peer);
        });
  if (alone) return;
  start(message(from.data, from.bytes, peer, true, timeout),
        [done = std::move(done), peer](const std::optional<Error>& why) { done(why, peer); });
}

bool Messages::receive(Memory to, int source, int tag, std::chrono::nanoseconds timeout,
                       Done done) {
  std::unique_lock lock(mutex_);
  const int first = source == kAny ? 0 : source;
  const int last = source == kAny ? static_cast<int>(peers_.size()) - 1 : source;
  for (int s = first; s <= last; ++s) {
    auto& kept = peers_[static_cast<std::size_t>(s)].kept;
    for (auto it = kept.begin(); it != kept.end(); ++it) {
      if ((*it)->header.tag != tag) continue;
      const std::shared_ptr<Kept> found = *it;
      kept.erase(it);
      lock.unlock();
      const Posted posted{to, source, tag, timeout, std::move(done)};
      if (found->header.bytes == to.bytes && to.bytes > 0) {
        std::memcpy(to.data, found->data.data(), to.bytes);
      }
      deliver(posted, s, found->header);
      return false;
    }
  }
  posted_.push_back({to, source, tag, timeout, std::move(done)});
  for (int s = first; s <= last; ++s) ask(s);
  return is_own(source);
}

void Messages::expire() {
  const auto now = std::chrono::steady_clock::now();
  std::list<Posted> late;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = posted_.begin(); it != posted_.end();) {
      const auto next = std::next(it);
      if (is_own(it->source) && now - it->posted >= it->timeout) {
        late.splice(late.end(), posted_, it);
      }
      it = next;
    }
  }
  for (const Posted& p : late) {
    const double seconds = std::chrono::duration<double>(p.timeout).count();
    p.done(Error(ErrorCode::timed_out,
                 c10::str("a message that rank ", rank_,
                          " was to send to itself has not come within "
                          "the timeout of ",
                          seconds, " s", waited_for(p)),
                 rank_),
           rank_);
  }
}

void Messages::ask(int source) {
  Peer& peer = peers_[static_cast<std::size_t>(source)];
  if (peer.busy || source == rank_ || !wants(source)) return;
  peer.busy = true;
  peer.withdrawn = false;
  const std::chrono::nanoseconds timeout = std::ranges::max(posted_, {}, &Posted::timeout).timeout;
  const Future asked = start(message(&peer.header, sizeof(Header), source, false, timeout),
                             [this, source](const std::optional<Error>& why) {
                               const std::lock_guard lock(mutex_);
                               Peer& p = peers_[static_cast<std::size_t>(source)];
                               p.asked = {};
                               if (!why) return arrived(source);
                               if (!p.withdrawn) return fail(source, *why);
                               p.busy = false;
                               ask(source);  // it may be wanted again
                             });
  if (peer.busy && !asked.ready()) peer.asked = asked;
}

bool Messages::wants(int source) const {
  return std::ranges::any_of(
      posted_, [&](const Posted& p) { return p.source == kAny || p.source == source; });
}

void Messages::withdraw_unwanted() {
  for (int s = 0; s < static_cast<int>(peers_.size()); ++s) {
    Peer& peer = peers_[static_cast<std::size_t>(s)];
    if (!peer.asked.valid() || peer.withdrawn || wants(s)) continue;
    peer.withdrawn = true;
    if (comm_) comm_.withdraw(peer.asked);
  }
}

void Messages::leave() {
  const std::lock_guard lock(mutex_);
  const Error why(ErrorCode::aborted,
                  "rank " + std::to_string(rank_) + " left the group before a message had come");
  std::list<Posted> left = std::move(posted_);
  posted_.clear();
  for (const Posted& p : left) p.done(why, p.source);
  withdraw_unwanted();
}

// A header has come.
void Messages::arrived(int source) {
  Peer& peer = peers_[static_cast<std::size_t>(source)];
  const Header header = peer.header;
  auto to = std::make_shared<std::optional<Posted>>(take(source, header.tag));
  if (*to && (**to).source == kAny) withdraw_unwanted();
  auto kept = std::make_shared<Kept>();
  kept->header = header;
  std::byte* where = nullptr;
  if (*to && (**to).to.bytes == header.bytes) {
    where = (**to).to.data;
  } else {
    kept->data.resize(header.bytes);
    where = kept->data.data();
  }
  const auto over = [this, source, to, kept](const std::optional<Error>& why) {
    if (why && *to) (**to).done(why, source);
    if (why) return fail(source, *why);
    {
      const std::lock_guard lock(mutex_);
      Peer& p = peers_[static_cast<std::size_t>(source)];
      if (!*to) {
        *to = take(source, kept->header.tag);  // posted meanwhile
        if (*to && (**to).to.bytes == kept->header.bytes && kept->header.bytes > 0) {
          std::memcpy((**to).to.data, kept->data.data(), kept->data.size());
        }
        if (!*to) p.kept.push_back(kept);
      }
      p.busy = false;
      ask(source);
    }
    if (*to) deliver(**to, source, kept->header);
  };
  if (header.bytes == 0) {
    // No message follows. The lock is held, so another thread's turn comes later.
    Posted none{};
    peer.busy = false;
    if (!*to) {
      peer.kept.push_back(kept);
    } else {
      none = **to;
    }
    ask(source);
    if (*to) deliver(none, source, header);
    return;
  }
  start(message(where, header.bytes, source, false,
                *to ? (**to).timeout : std::chrono::nanoseconds::max()),
        over);
}

std::optional<Messages::Posted> Messages::take(int source, int tag) {
  const auto found = std::ranges::find_if(posted_, [&](const Posted& p) {
    return (p.source == kAny || p.source == source) && p.tag == tag;
  });
  if (found == posted_.end()) return std::nullopt;
  Posted taken = std::move(*found);
  posted_.erase(found);
  return taken;
}

void Messages::fail(int source, const Error& why) {
  std::list<Posted> failed;
  {
    const std::lock_guard lock(mutex_);
    peers_[static_cast<std::size_t>(source)].busy = false;
    for (auto it = posted_.begin(); it != posted_.end();) {
      const auto next = std::next(it);
      if (it->source == kAny || it->source == source) failed.splice(failed.end(), posted_, it);
      it = next;
    }
  }
  for (const Posted& p : failed) {
    p.done(Error(why.code(), why.what() + waited_for(p), why.rank()), source);
  }
}

std::string Messages::waited_for(const Posted& posted) {
  const bool any = posted.source == kAny;
  std::string text = c10::str(". Rank ", rank_, " was to receive ",
                              describe(posted.to.bytes, static_cast<int>(posted.to.type)),
                              " with tag ", posted.tag, " from ");
  text += any ? "any rank" : c10::str("rank ", posted.source);
  const std::lock_guard lock(mutex_);
  for (int s = 0; s < static_cast<int>(peers_.size()); ++s) {
    const auto& kept = peers_[static_cast<std::size_t>(s)].kept;
    if (kept.empty() || (!any && s != posted.source)) continue;
    text += c10::str("; what has come from rank ", s, " first has tag ", kept.front()->header.tag);
  }
  return text;
}

void Messages::deliver(const Posted& to, int source, const Header& header) {
  const int type = static_cast<int>(to.to.type);
  if (header.bytes == to.to.bytes && header.type == type) return to.done(std::nullopt, source);
  const Error why(ErrorCode::mismatch,
                  "rank " + std::to_string(rank_) + " receives " + describe(to.to.bytes, type) +
                      " with tag " + std::to_string(to.tag) + " from rank " +
                      std::to_string(source) + ", which has sent " +
                      describe(header.bytes, header.type),
                  source);
  comm_.abort(why.what());
  to.done(why, source);
}

std::string Messages::describe(std::uint64_t bytes, int type) {
  return std::to_string(bytes) + " bytes of " +
         c10::toString(static_cast<at::ScalarType>(static_cast<std::int8_t>(type)));
}

}  // namespace tutti::pytorch
