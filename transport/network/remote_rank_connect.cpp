// See remote_rank.h. How its connection comes about, from two attempts: one dialled from here and
// one accepted from there.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "core/log.h"
#include "core/settings.h"
#include "transport/network/remote_rank.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A host that is not reached may be about to come up.
constexpr auto kDialAgain = 100ms;
// The kernel asks again ever more seldom, and so would hear late of one that has come up.
constexpr auto kDialAfresh = 1000ms;
// Others are asked when nothing has answered for so long, or when a dial was turned away; and then
// so often.
constexpr auto kAskOthers = 300ms, kAskOthersAgain = 500ms;
// For how long a host may turn dials away: a firewall may do that in one direction alone, and the
// rank dial once it is asked; but one that has died is to be known within a second.
constexpr std::chrono::duration<double> kTurnedAway{0.7};
// For how long this process may lack descriptors: the program may close some.
constexpr std::chrono::duration<double> kLacking{2};

}  // namespace

void RemoteRank::connect() {
  const std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_relaxed) != State::idle) return;
  ticked_ = Clock::now();
  // First: the ticks go on with it where the rest throws.
  reactor_.keep_awake(*this, ticked_ + kDialAgain);
  state_.store(State::connecting, std::memory_order_release);
  if (!is_ready(theirs_)) dial();
}

void RemoteRank::dial() {
  if (std::ranges::none_of(ours_.streams, [](const StreamCandidate& c) { return bool(c); })) {
    ++ours_.number;
  }
  const auto now = Clock::now();
  lacks_descriptors_ = false;
  for (std::uint32_t s = 0; s < streams(); ++s) {
    StreamCandidate& c = ours_.streams[s];
    if (c && (now - dialled_ < kDialAfresh || c.is_answered())) continue;
    if (c) {
      reactor_.unwatch(c.fd());
      turned_away_ = false;
    }
    c = StreamCandidate(begin_to_connect(where_.address, where_.from), where_.key,
                        {self_, where_.identity, s, StreamHello::asks, ours_.number},
                        s == kControl && !chooses());
    if (c) {
      reactor_.watch(c.fd(), c.events(), *this);
    } else {
      has_failed(c);
    }
  }
  dialled_ = now;
}

void RemoteRank::drop(Attempt& attempt) {
  for (StreamCandidate& c : attempt.streams) {
    if (c) reactor_.unwatch(c.fd());
    c = {};
  }
}

void RemoteRank::drop_streams() {
  for (Stream& s : streams_) {
    if (s) reactor_.unwatch(s.fd());
    s = {};
  }
}

bool RemoteRank::is_ready(const Attempt& attempt) const {
  for (std::uint32_t s = 0; s < streams(); ++s) {
    if (!attempt.streams[s].is_ready()) return false;
  }
  return true;
}

bool RemoteRank::is_answered() const {
  const auto answered = [](const StreamCandidate& c) { return c.is_answered(); };
  return std::ranges::any_of(ours_.streams, answered) ||
         std::ranges::any_of(theirs_.streams, answered);
}

void RemoteRank::advance(Attempt& attempt, std::uint32_t stream) {
  StreamCandidate& c = attempt.streams[stream];
  const bool was_ready = c.is_ready();
  // Where step() fails, it closes the socket, and another descriptor may get its number at once.
  reactor_.unwatch(c.fd());
  if (c.step() == StreamCandidate::State::failed) {
    if (&attempt == &ours_) has_failed(c);
    c = {};
    if (was_ready) drop(attempt);  // else this stream alone is dialled again
    return;
  }
  reactor_.watch(c.fd(), c.events(), *this);
  if (c.is_over()) {
    // The peer's choice of this connection, and later notes, may have come over the other streams.
    StreamCandidate& control = attempt.streams[kControl];
    if (stream != kControl && control.is_ready()) {
      reactor_.unwatch(control.fd());
      if (control.step() != StreamCandidate::State::failed) {
        reactor_.watch(control.fd(), control.events(), *this);
      }
    }
    const bool chosen = control.state() == StreamCandidate::State::chosen;
    if (!chosen || !is_ready(attempt)) return drop(attempt);
  }
  settle(attempt);
}

void RemoteRank::has_failed(const StreamCandidate& dialled) {
  turned_away_ = dialled.is_turned_away();
  lacks_descriptors_ = dialled.lacks_descriptors();
  why_unanswered_ = dialled.why();
  // Where it has chosen the other connection, it refuses this one.
  if (!dialled.is_refused() || is_ready(theirs_)) return;
  ended_ = Clock::now() - kLastData;
  end_ = {Departure::cut_off, fmt::format("is lost (it refuses the connection at {})", place())};
}

void RemoteRank::accept(FileDescriptor socket, const StreamHello& hello,
                        const protocol::Session& session) {
  const std::lock_guard lock(mutex_);
  if (hello.connection < theirs_.number) return;  // the peer has given it up
  if (hello.stream >= kStreams && hello.stream < kStreams + kMostStripes) {
    // This rank may not know yet that the peer uses the connection.
    const std::uint32_t number = hello.stream - kStreams;
    if (is_gone() || hello.connection != theirs_.number || number < attached_) return;
    if (where_.more.empty()) return;
    tune_socket(socket);
    // One that is there already has failed at the peer, which takes another way.
    stripes_[number] = StreamCandidate(
        std::move(socket), session,
        {self_, where_.identity, hello.stream, StreamHello::accepted, hello.connection}, false);
    return attach_stripes();
  }
  const bool refuses = is_up() || is_gone() || hello.stream >= streams();
  tune_socket(socket);
  watch_over(socket.fd());
  StreamCandidate c(std::move(socket), session,
                    {self_, where_.identity, hello.stream,
                     refuses ? StreamHello::refused : StreamHello::accepted, hello.connection},
                    hello.stream == kControl && !chooses());
  if (!c) return;
  if (hello.connection > theirs_.number) drop(theirs_);
  theirs_.number = hello.connection;
  StreamCandidate& place = theirs_.streams[hello.stream];
  if (place) reactor_.unwatch(place.fd());
  place = std::move(c);
  reactor_.watch(place.fd(), place.events(), *this);
  settle(theirs_);
}

void RemoteRank::settle(Attempt& attempt) {
  if (!is_ready(attempt)) return;
  StreamCandidate& control = attempt.streams[kControl];
  if (chooses()) {
    // A stream that has ended by now can still be made again; a chosen connection cannot.
    if (std::ranges::any_of(attempt.streams,
                            [](const StreamCandidate& c) { return c.is_over(); }) ||
        !control.choose()) {
      return drop(attempt);
    }
  } else if (control.state() != StreamCandidate::State::chosen) {
    return;
  }
  use(attempt);
}

void RemoteRank::use(Attempt& attempt) {
  number_used_ = attempt.number;
  dialled_it_ = &attempt == &ours_;
  for (std::uint32_t s = 0; s < streams(); ++s) {
    StreamCandidate& c = attempt.streams[s];
    reactor_.unwatch(c.fd());
    streams_[s] = Stream(std::move(c.socket()), protection_, c.session(), &attempt == &ours_);
  }
  drop(ours_);
  drop(theirs_);
  // Whatever has become of the other attempt.
  ended_.reset();
  end_ = {};
  for (const std::uint32_t data : {kData, kSecond}) {
    if (streams_[data]) stop_watching_over(streams_[data].fd());
  }
  reactor_.watch(streams_[kControl].fd(), EPOLLIN, *this);
  if (wire_.abilities().streams > 0) {
    wire_.attach(std::move(streams_[kData]), std::move(streams_[kSecond]), self_ > where_.identity);
  } else {
    notes_.push_front(framed(Frame::hello, 0, 0, wire_.address()));
  }
  const std::array<int, 2> data = wire_.descriptors();
  for (std::size_t which = 0; which < data.size(); ++which) {
    if (data[which] >= 0) watch_data(which, data[which]);
  }
  state_.store(State::up, std::memory_order_release);
  log().debug("connected to peer {} at {}{}, data go over {}", where_.member, place(),
              protection_ == Protection::encryption ? ", encrypted"
              : protection_ == Protection::checksum ? ", with checksums"
                                                    : "",
              wire_.carrier());
  dial_stripe();
  attach_stripes();
  flush_notes();
  owner_.on_connected();
}

// --- Stripes -------------------------------------------------------------------------------------

void RemoteRank::dial_stripe() {
  if (!dialled_it_ || wire_.abilities().streams == 0 || streams() < kStreams) return;
  while (next_way_ < where_.more.size() && attached_ < kMostStripes) {
    const Way& way = where_.more[next_way_++];
    const StreamHello hello{self_, where_.identity, kStreams + attached_, StreamHello::asks,
                            number_used_};
    StreamCandidate& c = stripes_[attached_];
    c = StreamCandidate(begin_to_connect(way.to, way.from), where_.key, hello, false);
    if (c) {
      // A way that swallows all fails after 3 s, not after minutes: the next one waits for it.
      constexpr int kOneMore = 1;
      setsockopt(c.fd(), IPPROTO_TCP, TCP_SYNCNT, &kOneMore, sizeof kOneMore);
      return reactor_.watch(c.fd(), c.events(), *this);
    }
    drop_stripe(c);
  }
}

void RemoteRank::drop_stripe(StreamCandidate& stripe) {
  log().info("no connection to {} besides the one at {} ({}): its long messages take fewer ways",
             to_string(where_.more[next_way_ - 1].to), place(), stripe.why());
  stripe = {};
}

void RemoteRank::advance_stripe(std::uint32_t stripe) {
  StreamCandidate& c = stripes_[stripe];
  reactor_.unwatch(c.fd());
  if (c.step() == StreamCandidate::State::failed) {
    drop_stripe(c);
    return dial_stripe();
  }
  if (c.is_ready()) return attach_stripes();
  reactor_.watch(c.fd(), c.events(), *this);
}

void RemoteRank::attach_stripes() {
  if (!is_up()) return;
  while (attached_ < kMostStripes && stripes_[attached_].is_ready()) {
    StreamCandidate& c = stripes_[attached_];
    Stream stripe(std::move(c.socket()), protection_, c.session(), dialled_it_);
    c = {};
    const int fd = stripe.fd();
    watch_over_idle(fd);
    if (!wire_.add_stripe(std::move(stripe))) return;
    watch_data(kStreams - 1 + attached_++, fd);
    if (dialled_it_) return dial_stripe();
  }
}

Reactor::Time RemoteRank::keep_dialling(Reactor::Time now, bool& asks) {
  // Time in which this process did not run, stopped or starved, says nothing of the peer.
  const auto passed = std::min<std::chrono::nanoseconds>(now - ticked_, 2 * kDialAgain);
  ticked_ = now;
  unanswered_ = is_answered() ? 0ns : unanswered_ + passed;
  // A network that is down for less than TUTTI_PEER_TIMEOUT harms nobody: the next dial comes
  // after.
  std::chrono::duration<double> limit = setting_seconds("TUTTI_PEER_TIMEOUT");
  if (limit.count() > 0) limit += kDialAfresh;
  if (turned_away_ && (limit.count() == 0 || limit > kTurnedAway)) limit = kTurnedAway;
  const bool lacks = lacks_descriptors_ || owner_.cannot_accept();
  lacking_ = lacks ? lacking_ + passed : 0ns;
  if (lacking_ > (limit.count() > 0 ? std::min(limit, kLacking) : kLacking)) {
    ended_ = now - kLastData;
    end_ = {Departure::refused, out_of_descriptors()};
    return now;
  }
  if (limit.count() > 0 && unanswered_ > limit) {
    ended_ = now - kLastData;
    end_ = {turned_away_ ? Departure::died : Departure::cut_off, why_unreached(limit)};
    return now;
  }
  const bool missing = std::ranges::any_of(std::span(ours_.streams).first(streams()),
                                           [](const StreamCandidate& c) { return !c; });
  if (now - dialled_ >= (missing ? kDialAgain : kDialAfresh) && !is_ready(theirs_)) dial();
  asks = (turned_away_ || unanswered_ >= kAskOthers) && now - asked_ >= kAskOthersAgain;
  if (asks) asked_ = now;
  return now + kDialAgain;
}

std::string RemoteRank::why_unreached(std::chrono::duration<double> limit) const {
  const std::string no_other =
      fmt::format("and no connection has come from there for {:.1f} s", limit.count());
  if (turned_away_) {
    return fmt::format("died, or a firewall turns connections away (nothing listens at {}, {})",
                       place(), no_other);
  }
  return fmt::format(
      "is out of reach (no connection to {} comes about{}, {}, TUTTI_PEER_TIMEOUT and a second: "
      "its "
      "host is down, or a firewall drops connections both ways)",
      place(), why_unanswered_.empty() ? "" : fmt::format(" ({})", why_unanswered_), no_other);
}

}  // namespace tutti
