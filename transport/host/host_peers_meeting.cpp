// How the ranks of a host meet: they get to know each other's addresses, and share a board. The
// first of them makes the board; each hands it on to kFanOut others, so none makes many sockets for
// that, and none waits for more than one other rank.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/wait.h"
#include "transport/host/host_call.h"
#include "transport/host/host_peers.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::ptrdiff_t kFanOut = 8;
constexpr auto kRefusedFor = 1s;    // after that, a rank that refuses connections has left
constexpr auto kLookAgain = 100ms;  // at the ranks that are to hand the board on

std::ptrdiff_t place_of(std::span<const int> here, int number) {
  return std::ranges::find(here, number) - here.begin();
}

}  // namespace

HostPeerAddress HostPeers::listen() {
  address_.user = own_user();
  HostPeerAddress address = address_;
  protocol::fill_random(protocol::writable_bytes_of(address.socket));
  protocol::fill_random(protocol::writable_bytes_of(address.key));
  auto meeting = std::make_shared<Meeting>();
  meeting->name = address.socket;
  meeting->listener =
      FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress name = socket_address(address.socket);
  if (!meeting->listener || bind(meeting->listener.fd(), name.get(), name.length) != 0 ||
      ::listen(meeting->listener.fd(), 4096) != 0) {
    throw_system_error("cannot listen on a unix socket");
  }
  meeting_ = std::move(meeting);
  return address;
}

std::vector<int> HostPeers::meet(int rank, std::span<const HostPeerAddress> peers, std::uint64_t id,
                                 std::span<const std::byte, 32> session_secret, Deadline deadline,
                                 const std::function<bool(int)>& is_lost) {
  std::ranges::copy(session_secret, meeting_->secret.begin());
  std::vector<int> numbers(peers.size(), -1);
  std::vector<int> here, added;
  here.reserve(peers.size());
  added.reserve(peers.size());
  try {
    take_seats(rank, peers, is_lost, numbers, here, added);
    // Another key than that of the segment which the first rank shares next.
    const auto first = std::ranges::find(numbers, here.front()) - numbers.begin();
    const std::uint64_t key = ~peers[static_cast<std::size_t>(first)].key;
    if (here.size() > 1) share_board(*meeting_, here, key, id, deadline);
  } catch (const Error& e) {
    undo(here, added);
    const auto found = std::ranges::find(numbers, e.rank());
    const int named = found == numbers.end() ? -1 : static_cast<int>(found - numbers.begin());
    throw_with_ranks(e, rank, named);
  } catch (...) {
    undo(here, added);
    throw;
  }
  const std::lock_guard lock(mutex_);
  meeting_.reset();
  find_neighbours();
  return numbers;
}

void HostPeers::take_seats(int rank, std::span<const HostPeerAddress> peers,
                           const std::function<bool(int)>& is_lost, std::vector<int>& numbers,
                           std::vector<int>& here, std::vector<int>& added) {
  const std::lock_guard lock(mutex_);
  settle();
  const bool is_first = number_ < 0;
  std::set<int> kept{number_};
  for (std::size_t r = 0; r < peers.size(); ++r) {
    const int known = number_of(peers[r].identity);
    if (known < 0) continue;
    if (peers[r].host != address_.host && is_lost && is_lost(known)) continue;
    numbers[r] = known;
    kept.insert(known);
  }
  std::vector<int> gone;
  for (const auto& [number, peer] : peers_) {
    if (peer.held == 0 && !kept.contains(number)) gone.push_back(number);
  }
  for (const int number : gone) drop(number);
  bool alone = true;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    const int its_rank = static_cast<int>(r);
    if (numbers[r] < 0) {
      numbers[r] = add(peers[r], is_first ? its_rank : -1);
      added.push_back(numbers[r]);
    }
    if (its_rank == rank) number_ = numbers[r];
    if (peers[r].host != address_.host) continue;
    Peer& peer = at(numbers[r]);
    renew(peer);
    const int place = static_cast<int>(here.size());
    peer.before = std::exchange(peer.now, {meeting_, peers[r].socket, place});
    here.push_back(numbers[r]);
    alone = alone && peer.who->same_process;
  }
  meetings_.push_back(meeting_);
  retire_meetings();
  find_neighbours();
  if (alone) meeting_->listener.reset();
  if (!alone) listen_for(*meeting_);
  meeting_->place = static_cast<int>(place_of(here, number_));
}

void HostPeers::undo(std::span<const int> here, std::span<const int> added) {
  const std::lock_guard lock(mutex_);
  for (const int number : here) go_back(at(number));
  for (const int number : added) drop(number);
  if (std::ranges::find(added, number_) != added.end()) number_ = -1;
  find_neighbours();
  close_listener(meeting_);
}

void HostPeers::renew(Peer& peer) {
  peer.has_ended = false;
  peer.refused_since.reset();
  if (!peer.exchange) return;
  take_all(peer);
  Exchange& exchange = *peer.exchange;
  exchange.in_ended = false;
  if (exchange.out_ended || (exchange.out && has_hung_up(exchange.out.fd()))) tell_again(peer);
}

void HostPeers::go_back(Peer& peer) {
  // The peer closes that listener, maybe before it can know whom to believe there.
  const bool is_doubtful = peer.exchange && peer.exchange->called == peer.now.socket;
  peer.now = std::exchange(peer.before, {});
  if (is_doubtful) tell_again(peer);
}

void HostPeers::settle() {
  std::vector<int> strangers;
  for (auto& [number, peer] : peers_) {
    const Seat& seat = peer.now;
    const bool is_open = number != number_ && seat.board() != nullptr && seat.meeting->life;
    if (!is_open || !seat.board()->life(seat.place).shut_out()) continue;
    go_back(peer);
    if (!peer.now.meeting && peer.held == 0) strangers.push_back(number);
  }
  for (const int number : strangers) drop(number);
}

void HostPeers::retire_meetings() {
  std::erase_if(meetings_, [&](const std::shared_ptr<Meeting>& meeting) {
    const auto goes_by_it = [&](const auto& entry) {
      return entry.second.now.meeting == meeting || entry.second.before.meeting == meeting;
    };
    if (meeting == meeting_ || std::ranges::any_of(peers_, goes_by_it)) return false;
    return close_listener(meeting);
  });
}

// --- Memory for all of them ----------------------------------------------------------------------

int HostPeers::pass_from(std::span<const int> here) const {
  const std::ptrdiff_t place = place_of(here, number_);
  return place == 0 ? -1 : here[static_cast<std::size_t>((place - 1) / kFanOut)];
}

void HostPeers::pass_on(std::span<const int> here, std::uint64_t key,
                        const std::shared_ptr<SharedMemory>& memory) {
  share_within_process(key, memory);
  const auto ranks = static_cast<std::ptrdiff_t>(here.size());
  const std::ptrdiff_t first = place_of(here, number_) * kFanOut + 1;
  for (std::ptrdiff_t p = first; p < std::min(first + kFanOut, ranks); ++p) {
    send(here[static_cast<std::size_t>(p)], key, memory);
  }
}

void HostPeers::share_board(Meeting& meeting, std::span<const int> here, std::uint64_t key,
                            std::uint64_t id, Deadline deadline) {
  const std::size_t bytes = HostBoard::bytes(here.size());
  const int from = pass_from(here);
  std::shared_ptr<SharedMemory> memory;
  if (from < 0) memory = SharedMemory::create(HostBoard::kLabel, bytes);
  const auto look_again = among(here.size(), kLookAgain);
  auto refused_since = Clock::time_point::max();
  while (memory == nullptr) {
    const auto now = Clock::now();
    try {
      memory = receive(from, key, bytes, bytes, std::min(deadline, now + look_again));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::timed_out) throw;
      look_at_givers(here, refused_since);
      if (now < deadline) continue;
      throw Error(ErrorCode::timed_out,
                  fmt::format("process {} of this host did not hand on the memory that the ranks "
                              "share in time",
                              peer(from)->pid),
                  from);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    meeting.board.emplace(memory, here.size());
  }
  pass_on(here, key, memory);
  if (!meeting.listener) return;  // all are threads of this process
  // From here on this rank has met the others: nothing may fail any more.
  const std::lock_guard lock(mutex_);
  meeting.life.emplace(meeting.board->life(meeting.place), memory);
  if (!meeting.life->is_held()) throw_shut_out(*meeting.board, here.size(), id);
}

void HostPeers::throw_shut_out(const HostBoard& board, std::size_t places, std::uint64_t id) {
  int because_of = -1;
  for (std::size_t place = 0; place < places && because_of < 0; ++place) {
    because_of = number_of(board.refusal(static_cast<int>(place), id).value_or(0));
  }
  const auto lost = peers_.find(because_of);
  throw Error(ErrorCode::peer_lost,
              fmt::format("the others of this host gave up before this rank had met them{}",
                          lost == peers_.end()
                              ? ""
                              : fmt::format(", because process {} is gone", lost->second.who->pid)),
              because_of);
}

void HostPeers::look_at_givers(std::span<const int> here, Clock::time_point& refused_since) {
  const std::lock_guard lock(mutex_);
  const auto throw_lost = [&](const Peer& peer, int number, std::string_view problem,
                              std::string_view why) {
    throw Error(ErrorCode::peer_lost,
                fmt::format("cannot connect to process {}: {}; {}", peer.who->pid, problem, why),
                number);
  };
  for (std::ptrdiff_t p = place_of(here, number_); p > 0;) {
    p = (p - 1) / kFanOut;
    const int number = here[static_cast<std::size_t>(p)];
    const Peer& peer = at(number);
    if (peer.in_another_process() && peer.who->pid > 0 &&
        process_has_ended(peer.who->pid, peer.started)) {
      throw_lost(peer, number, "its process has ended", "its own output may say why");
    }
  }
  // A rank that lives, and has given up, listens no more.
  const int from = pass_from(here);
  const Peer& giver = at(from);
  if (!giver.in_another_process()) return;
  const auto now = Clock::now();
  if (!refuses_calls(giver.now.socket)) {
    refused_since = Clock::time_point::max();
  } else {
    refused_since = std::min(refused_since, now);
    if (now - refused_since >= kRefusedFor) {
      throw_lost(giver, from, "nothing listens there any more", "it has died, or has given up");
    }
  }
}

}  // namespace tutti
