#include "transport/network.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/background.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/log.h"
#include "transport/rank_listener.h"
#include "transport/tcp_socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kHelloPatience = 5s;
// Each rank of a job of more may need too many descriptors.
constexpr std::size_t kMostWithApart = 64;
// In the set of data, beside the numbers of ranks:
constexpr std::uint64_t kDoorbell = UINT64_MAX, kMakers = UINT64_MAX - 256;
constexpr auto kTick = 10ms;
constexpr auto kLookAtDoor = 500ms;  // while somebody is there
constexpr auto kShortSleep = 500us;
constexpr std::uint64_t kListener = WaitingRoom::kPlaces, kFirstGuest = kListener + 1;
constexpr std::size_t kMostGuests = 256;
constexpr std::size_t kMostEarly = 4096;  // notes for one communicator that is not there yet
constexpr auto kFarewell = 5000ms, kFarewellInTrouble = 100ms;
constexpr auto kLastWords = 500ms;  // for whom this rank has had nothing to do with so far
// Notes of its own:
constexpr std::uint32_t kLeftNote = 0;  // the answer to a note for a communicator that is over

}  // namespace

NetworkAddress NetworkAddress::of(const SocketAddress& address) {
  NetworkAddress a;
  if (address.length > a.socket.size()) return a;
  std::memcpy(a.socket.data(), &address.storage, address.length);
  a.length = address.length;
  return a;
}

std::optional<SocketAddress> NetworkAddress::get() const {
  SocketAddress address;
  if (length > socket.size()) return std::nullopt;
  std::memcpy(&address.storage, socket.data(), length);
  address.length = static_cast<socklen_t>(length);
  const bool right = (address.family() == AF_INET && length == sizeof(sockaddr_in)) ||
                     (address.family() == AF_INET6 && length == sizeof(sockaddr_in6));
  if (!right) return std::nullopt;
  return address;
}

Network::Network(const SocketAddress& local, const NearestPorts& nearest)
    : asked_(local),
      generation_(process_generation()),
      listener_(listen_for_ranks(local)),
      door_(epoll_create1(EPOLL_CLOEXEC)),
      data_(epoll_create1(EPOLL_CLOEXEC)),
      doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wires_(usable_wires(nearest)) {
  if (!listener_ || !door_ || !data_ || !doorbell_) {
    throw_system_error(fmt::format("cannot listen at {}{} for ranks of other hosts",
                                   host_text(local), at_which_ports()));
  }
  check_congestion_control();
  local_ = bound_address(listener_);
  watch(data_, EPOLL_CTL_ADD, doorbell_, kDoorbell, EPOLLIN);
}

Network::~Network() {
  if (generation_ != process_generation()) {
    for (auto& [member, r] : ranks_) abandon(std::move(r));
    for (auto& [kind, maker] : makers_) abandon(std::move(maker));
    abandon(std::shared_ptr<EndpointMaker>(wires_.verbs));
    return;
  }
  if (reactor_ == nullptr) return;
  // A failure, say: whom it is to be told to may be somebody whom this rank has to connect to
  // first.
  const Deadline told = deadline_after(kLastWords);
  const auto is_awaited = [](RemoteRank* r) { return r->is_to_be_awaited(); };
  while (std::ranges::any_of(all_remote(), is_awaited) && Clock::now() < told && !must_stop()) {
    std::this_thread::sleep_for(50us);
  }
  reactor_->forget(*this);
  std::vector<RemoteRank*> ranks;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;  // there will be no others
    for (auto& [member, r] : ranks_) ranks.push_back(r.get());
  }
  for (RemoteRank* r : ranks) r->say_bye();
  reactor_->forget(*this);  // where one of them was connected meanwhile
  const Deadline deadline = deadline_after(last_failed_ ? kFarewellInTrouble : kFarewell);
  for (std::vector<RemoteRank*> left = ranks;;) {
    std::erase_if(left, [](RemoteRank* r) { return r->is_delivered(); });
    if (left.empty() || Clock::now() >= deadline || must_stop()) break;
    std::this_thread::sleep_for(50us);
  }
  for (RemoteRank* r : ranks) r->close();
  ranks_.clear();  // while all else is still there
}

NetworkAddress Network::address() const {
  NetworkAddress address = NetworkAddress::of(local_);
  address.wires = wires_.offer;
  address.protection = static_cast<std::uint32_t>(wanted_protection());
  return address;
}

void Network::check() const {
  if (wires_.offer.refused != 0) throw Error(ErrorCode::system, wires_.why_refused);
}

void Network::begin(int rank, std::vector<Peer> peers, const wire::Bytes32& secret,
                    Protection protection) {
  rank_ = rank;
  protection_ = protection;
  peers_ = std::move(peers);
  secret_ = secret;
  std::set<WireKind> routes;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].here) continue;
    // Where they cannot agree, or UCX cannot be begun, no rank gets any further than here.
    const int peer = static_cast<int>(r);
    const WireRoute route = choose_wire(wires_.offer, rank_, peers_[r].address.wires, peer);
    if (route.kind != WireKind::tcp && protection_ != Protection::none) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank 0 has set {}, which messages over {} cannot have: set "
                              "TUTTI_TRANSPORT=tcp",
                              setting_of(protection_), name_of(route.kind)));
    }
    routes.insert(route.kind);
    hears_all_ = hears_all_ && route.kind == WireKind::tcp;
  }
  waiting_room_ = std::make_unique<WaitingRoom>("network", secret_);
  watch(door_, EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
  reactor_ = &Reactor::instance();
  for (const WireKind kind : routes) maker(kind);
  reactor_->watch(door_.fd(), EPOLLIN, *this);
  reactor_->watch(data_.fd(), 0, *this);
  // So that a child of fork() does not answer there, when this process is gone.
  reactor_->watch(listener_.fd(), 0, *this);
}

EndpointMaker& Network::maker(WireKind kind) {
  std::shared_ptr<EndpointMaker>& maker = makers_[kind];
  if (maker) return *maker;
  maker = kind == WireKind::verbs    ? wires_.verbs
          : kind == WireKind::plugin ? wires_.plugin
                                     : make_endpoints(kind);
  if (maker->descriptor() < 0) return *maker;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kMakers + static_cast<std::uint64_t>(kind);
  if (epoll_ctl(data_.fd(), EPOLL_CTL_ADD, maker->descriptor(), &event) != 0) {
    throw_system_error("watching a descriptor of a network");
  }
  // For children of fork().
  reactor_->watch(maker->descriptor(), 0, *this);
  return *maker;
}

RemoteRank& Network::remote(int member) {
  RemoteRank* found = nullptr;
  {
    const std::lock_guard lock(mutex_);
    found = find_or_make(member);
  }
  if (found == nullptr) {
    throw Error(ErrorCode::system,
                fmt::format("rank {} of the job is on another host, and has said no address at "
                            "which it can be reached",
                            member));
  }
  found->connect();
  return *found;
}

RemoteRank* Network::find_or_make(int member) {
  const Peer& peer = peers_.at(static_cast<std::size_t>(member));
  const auto address = peer.address.get();
  if (!address) return nullptr;
  std::unique_ptr<RemoteRank>& r = ranks_[member];
  if (!r && leaving_) return nullptr;
  if (!r) {
    const WireRoute route =
        peer.here ? WireRoute{} : choose_wire(wires_.offer, rank_, peer.address.wires, member);
    EndpointMaker& network = maker(route.kind);
    const auto make = [&](Endpoint::Sink& sink) { return network.make(sink, member, route.port); };
    r = std::make_unique<RemoteRank>(
        static_cast<RemoteRank::Owner&>(*this), rank_, RemoteRank::Where{member, *address, asked_},
        secret_, protection_,
        peers_.size() > kMostWithApart ? RemoteRank::kApart : RemoteRank::kStreams, data_, make,
        network.lock());
    r->wire().set_listening(true);  // as the reactor may
  }
  return r.get();
}

std::string Network::carrier_to(int member) {
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(member);
  if (found != ranks_.end()) return found->second->wire().carrier();
  const WireOffer& theirs = peers_.at(static_cast<std::size_t>(member)).address.wires;
  return std::string(name_of(choose_wire(wires_.offer, rank_, theirs, member).kind));
}

std::vector<RemoteRank*> Network::all_remote() {
  const std::lock_guard lock(mutex_);
  std::vector<RemoteRank*> all;
  for (auto& [member, r] : ranks_) all.push_back(r.get());
  return all;
}

// --- Data ----------------------------------------------------------------------------------------

void Network::serve_data() {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(data_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const epoll_event& e = events[static_cast<std::size_t>(i)];
    if (e.data.u64 == kDoorbell) {
      quiet_doorbell();
      continue;
    }
    if (e.data.u64 >= kMakers) {
      for (RemoteRank* const r : all_remote()) {
        if (!r->wire().abilities().level_triggered) r->wire().drive();
      }
      // What comes while this is done is served the next time.
      arm_makers();
      continue;
    }
    RemoteRank* r = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = ranks_.find(static_cast<int>(e.data.u64 / 2));
      if (found != ranks_.end()) r = found->second.get();
    }
    if (r != nullptr) r->on_data(e.data.u64 % 2, e.events);
  }
}

void Network::poll() {
  polled_.store(true, std::memory_order_seq_cst);
  on_polled();
  serve_data();
  for (RemoteRank* r : all_remote()) {
    Wire& wire = r->wire();
    if (!wire.abilities().level_triggered) {
      wire.poll_and_tell();
    } else if (wire.is_restless()) {
      wire.drive();
    }
  }
}

void Network::sleep(std::chrono::nanoseconds most, const std::function<bool()>& ready) {
  {
    const std::lock_guard lock(sleep_mutex_);
    // The first one is heard by whoever wakes; any other may miss the doorbell.
    if (sleepers_.fetch_add(1, std::memory_order_seq_cst) > 0) {
      most = std::min<std::chrono::nanoseconds>(most, kShortSleep);
    }
  }
  on_polled();
  const std::vector<RemoteRank*> ranks = all_remote();
  bool may = true;
  for (RemoteRank* r : ranks) {
    may = may && r->prepare_to_sleep();
    if (!r->wire().abilities().wakes) most = std::min<std::chrono::nanoseconds>(most, kShortSleep);
  }
  may = may && arm_makers();
  // After sleepers_ was raised: pairs with wake().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (may && !ready()) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
    const timespec time{seconds.count(), (most - seconds).count()};
    pollfd set{data_.fd(), POLLIN, 0};
    ppoll(&set, 1, &time, nullptr);
  }
  for (RemoteRank* r : ranks) r->after_sleep();
  end_sleep();
  serve_data();
}

void Network::end_sleep() {
  polled_.store(true, std::memory_order_seq_cst);
  {
    const std::lock_guard lock(sleep_mutex_);
    if (sleepers_.load(std::memory_order_relaxed) == 1) {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t heard = ::read(doorbell_.fd(), &rings, sizeof rings);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  // Whoever listens next, if this one does not look again.
  if (!ticking_.exchange(true, std::memory_order_seq_cst)) {
    reactor_->keep_awake(*this, Clock::now() + kTick);
  }
}

void Network::wake() {
  // After what there is for them: pairs with sleep().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.fd(), &one, sizeof one);
}

void Network::quiet_doorbell() {
  const std::lock_guard lock(sleep_mutex_);
  if (sleepers_.load(std::memory_order_relaxed) > 0) return;
  std::uint64_t rings = 0;
  [[maybe_unused]] const ssize_t heard = ::read(doorbell_.fd(), &rings, sizeof rings);
}

void Network::on_connected() {
  if (!ticking_.exchange(true, std::memory_order_seq_cst)) reactor_->keep_awake(*this);
}

void Network::on_polled() {
  if (!listening_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock(listening_mutex_);
    if (!listening_.exchange(false)) return;
    reactor_->change(data_.fd(), 0);
  }
  ticking_.store(true, std::memory_order_seq_cst);
  reactor_->keep_awake(*this, Clock::now() + kTick);
}

bool Network::arm_makers() {
  bool armed = true;
  for (const auto& [kind, maker] : makers_) armed = maker->arm() && armed;
  return armed;
}

void Network::set_listening() {
  const std::lock_guard lock(listening_mutex_);
  for (RemoteRank* r : all_remote()) r->wire().set_listening(true);
  listening_.store(true);
  reactor_->change(data_.fd(), EPOLLIN);
}

std::optional<Reactor::Time> Network::tend_data(Reactor::Time now) {
  // In this order: who wakes after this was read starts the ticks again (end_sleep()).
  ticking_.store(false, std::memory_order_seq_cst);
  const bool sleeps = sleepers_.load(std::memory_order_seq_cst) > 0;
  bool polled = polled_.exchange(false, std::memory_order_seq_cst);
  bool busy = false;
  const std::vector<RemoteRank*> ranks = all_remote();
  for (RemoteRank* r : ranks) {
    if (!r->is_up()) continue;
    Wire& wire = r->wire();
    polled = wire.was_polled() || polled;
    if (!wire.abilities().level_triggered) {
      wire.drive();
    } else if (wire.is_restless()) {
      wire.tend();
    }
    busy = busy || wire.is_restless() || !wire.abilities().wakes;
  }
  if (!polled && !sleeps) {
    if (!listening_.load()) set_listening();
    for (RemoteRank* r : ranks) {
      if (r->is_up()) busy = !r->wire().arm() || busy;
    }
    busy = !arm_makers() || busy;
  }
  if (!busy && (sleeps || !polled)) return std::nullopt;
  ticking_.store(true, std::memory_order_seq_cst);
  return now + kTick;
}

// --- Communicators -------------------------------------------------------------------------------

void Network::join(std::uint64_t group, Listener& listener) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_[group] = &listener;
  over_.erase(group);
  if (const auto early = early_.extract(group)) {
    for (const Kept& k : early.mapped()) {
      if (k.type == kLeftNote) {
        listener.on_left(k.member, group, k.because_of);
      } else {
        listener.on_note(k.member, k.type, k.bytes);
      }
    }
  }
  for (const auto& [member, lost] : lost_) listener.on_lost(member, lost.how, lost.why);
}

bool Network::is_lost(int member) {
  const std::lock_guard lock(listeners_mutex_);
  return lost_.contains(member);
}

void Network::leave(std::uint64_t group, bool failed, int because_of) {
  {
    const std::lock_guard lock(listeners_mutex_);
    last_failed_ = failed;
    listeners_.erase(group);
    early_.erase(group);
    over_.try_emplace(group, because_of);
  }
  for (RemoteRank* r : all_remote()) r->wire().close(group);
}

void Network::refuse(std::uint64_t group, int because_of) {
  std::set<int> who;
  {
    const std::lock_guard lock(listeners_mutex_);
    if (const auto early = early_.extract(group)) {
      for (const Kept& k : early.mapped()) who.insert(k.member);
    }
    over_[group] = because_of;
  }
  for (const int member : who) say_left(member, group, because_of);
}

void Network::say_left(int member, std::uint64_t group, std::int32_t because_of) {
  RemoteRank* r = nullptr;
  {
    const std::lock_guard lock(mutex_);
    r = find_or_make(member);
  }
  if (r == nullptr) return;
  r->connect();
  r->tell(group, kLeftNote, wire::bytes_of(because_of));
}

void Network::tell(int member, std::uint64_t group, std::uint32_t type,
                   std::span<const std::byte> bytes) {
  remote(member).tell(group, type, bytes);
}

void Network::on_note(int member, std::uint64_t group, std::uint32_t type,
                      std::span<const std::byte> bytes) {
  if (type == kLeftNote) {
    std::int32_t because_of = -1;
    if (bytes.size() == sizeof because_of) std::memcpy(&because_of, bytes.data(), bytes.size());
    return heard_left(member, group, because_of);
  }
  if (type == kDialNote) return take_request(member, bytes);
  std::unique_lock lock(listeners_mutex_);
  if (const auto found = listeners_.find(group); found != listeners_.end()) {
    return found->second->on_note(member, type, bytes);
  }
  if (const auto over = over_.find(group); over != over_.end()) {
    const int because_of = over->second;
    lock.unlock();
    return say_left(member, group, because_of);
  }
  auto& early = early_[group];
  if (early.size() < kMostEarly) early.push_back({member, type, -1, {bytes.begin(), bytes.end()}});
}

void Network::on_left(int member, std::uint64_t group) { heard_left(member, group, -1); }

void Network::heard_left(int member, std::uint64_t group, int because_of) {
  const std::lock_guard lock(listeners_mutex_);
  if (const auto found = listeners_.find(group); found != listeners_.end()) {
    found->second->on_left(member, group, because_of);
  } else if (!over_.contains(group)) {
    early_[group].push_back({member, kLeftNote, because_of, {}});
  }
}

void Network::on_lost(int member, Loss how, const std::string& why) {
  const std::lock_guard lock(listeners_mutex_);
  lost_[member] = {how, why};
  for (const auto& [group, listener] : listeners_) listener->on_lost(member, how, why);
}

// --- Those who connect to us ---------------------------------------------------------------------

void Network::on_events(int fd, std::uint32_t) {
  if (fd == door_.fd()) return serve();
  if (listening_.load()) serve_data();
}

void Network::serve() {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(door_.fd(), events.data(), static_cast<int>(events.size()), 0);
  const auto now = Clock::now();
  for (int i = 0; i < ready; ++i) {
    const std::uint64_t who = events[static_cast<std::size_t>(i)].data.u64;
    if (who < WaitingRoom::kPlaces) {
      auto admitted = waiting_room_->read(who, now);
      if (!admitted) continue;
      if (guests_.size() >= kMostGuests) guests_.erase(guests_.begin());
      const std::uint64_t number = kFirstGuest + next_guest_++;
      auto guest = std::make_unique<Guest>();
      guest->socket = std::move(admitted->socket);
      guest->session = admitted->session;
      guest->since = now;
      watch(door_, EPOLL_CTL_MOD, guest->socket, number, EPOLLIN);
      guests_[number] = std::move(guest);
    } else if (who >= kFirstGuest) {
      const auto found = guests_.find(who);
      if (found != guests_.end() && !read_hello(*found->second)) guests_.erase(found);
    }
  }
  const bool accepted = waiting_room_->accept(listener_, door_, now);
  if (accepted != accepting_) {
    accepting_ = accepted;
    watch(door_, EPOLL_CTL_MOD, listener_, kListener, accepting_ ? EPOLLIN : 0U);
  }
  door_due_ = std::min(door_due_, accepting_ ? now + kLookAtDoor : now);
  reactor_->keep_awake(*this, door_due_);
}

std::optional<Reactor::Time> Network::on_tick(Reactor::Time now) {
  const auto door = tend_door(now), data = tend_data(now);
  return door && data ? std::min(*door, *data) : door ? door : data;
}

std::optional<Reactor::Time> Network::tend_door(Reactor::Time now) {
  if (door_due_ == Reactor::Time::max()) return std::nullopt;
  if (now < door_due_) return door_due_;
  waiting_room_->expire(now);
  std::erase_if(guests_, [&](const auto& g) { return now - g.second->since > kHelloPatience; });
  if (!accepting_) serve();
  const bool empty = guests_.empty() && waiting_room_->next_wake(now) == WaitingRoom::Time::max();
  door_due_ = !accepting_ ? now : empty ? Reactor::Time::max() : now + kLookAtDoor;
  if (accepting_ && empty) return std::nullopt;
  return door_due_;
}

bool Network::read_hello(Guest& guest) {
  switch (read_more(guest.socket, wire::writable_bytes_of(guest.said), guest.got)) {
    case ReadResult::more:
      return true;
    case ReadResult::closed:
      return false;
    case ReadResult::whole:
      break;
  }
  const StreamHello& hello = guest.said.hello;
  if (!guest.said.is_genuine(guest.session) || hello.verdict != StreamHello::asks ||
      hello.to != rank_ || hello.from == rank_ || hello.from < 0 ||
      static_cast<std::size_t>(hello.from) >= peers_.size() ||
      hello.stream >= RemoteRank::kStreams || hello.connection == 0 ||
      !peers_[static_cast<std::size_t>(hello.from)].address.get()) {
    log().warn("network: closed a connection that knows the job's secret, but says nonsense");
    return false;
  }
  epoll_ctl(door_.fd(), EPOLL_CTL_DEL, guest.socket.fd(), nullptr);
  RemoteRank* rank = nullptr;
  {
    const std::lock_guard lock(mutex_);
    rank = find_or_make(hello.from);
  }
  if (rank == nullptr) return false;
  rank->accept(std::move(guest.socket), hello, guest.session);
  return false;
}

}  // namespace tutti
