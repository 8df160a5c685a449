// How the ranks of a host meet: they get to know each other's addresses, and share a board. The
// first of them makes the board; each hands it on to kFanOut others, so none makes many sockets for
// that, and none waits for more than one other rank.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

std::vector<int> HostPeers::meet(int rank, std::span<const HostPeerAddress> peers,
                                 std::span<const std::byte, 32> session_secret, Deadline deadline,
                                 const std::function<bool(int)>& is_lost) {
  const std::shared_ptr<Meeting> meeting = std::move(meeting_);
  std::vector<int> numbers(peers.size(), -1);
  std::vector<int> here, added;
  std::vector<std::pair<int, Seat>> former;  // than `before`, by number
  std::uint64_t key = 0;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::copy(session_secret, meeting->secret.begin());
    const bool is_first = number_ < 0;
    std::set<int> kept{number_};
    for (std::size_t r = 0; r < peers.size(); ++r) {
      const int known = number_of(peers[r].identity);
      if (known < 0 || !is_known(known, peers[r], is_lost)) continue;
      numbers[r] = known;
      kept.insert(known);
    }
    std::vector<int> gone;
    for (const auto& [number, peer] : peers_) {
      if (peer.held == 0 && !kept.contains(number)) gone.push_back(number);
    }
    for (const int number : gone) drop(number);
    find_neighbours();
    bool alone = true;
    for (std::size_t r = 0; r < peers.size(); ++r) {
      const int its_rank = static_cast<int>(r);
      if (numbers[r] < 0) {
        numbers[r] = add(peers[r], is_first ? its_rank : -1);
        added.push_back(numbers[r]);
      }
      if (its_rank == rank) number_ = numbers[r];
      if (peers[r].host != address_.host) continue;
      // Another one than that of the segment which the first rank shares next.
      if (here.empty()) key = ~peers[r].key;
      Peer& peer = at(numbers[r]);
      former.emplace_back(numbers[r], std::exchange(peer.before, std::move(peer.now)));
      peer.now = {meeting, peers[r].socket, static_cast<int>(here.size())};
      here.push_back(numbers[r]);
      alone = alone && peer.who->same_process;
    }
    std::erase_if(meetings_, [](const auto& m) { return m.expired(); });
    meetings_.push_back(meeting);
    if (alone) meeting->listener.reset();
    if (!alone) listen_for(*meeting);
    meeting->place = static_cast<int>(place_of(here, number_));
  }
  const auto go_back = [&] {
    const std::lock_guard lock(mutex_);
    for (auto& [number, seat] : former) {
      Peer& peer = at(number);
      peer.now = std::exchange(peer.before, std::move(seat));
    }
    for (const int number : added) drop(number);
    if (std::ranges::find(added, number_) != added.end()) number_ = -1;
    meeting->listener.reset();
    // Others may go by its board already, where the end of this rank's word would be its own.
    if (meeting->board) failed_.push_back(meeting);
    find_neighbours();
  };
  try {
    if (here.size() > 1) share_board(*meeting, here, key, deadline);
  } catch (const Error& e) {
    go_back();
    const auto found = std::ranges::find(numbers, e.rank());
    const int named = found == numbers.end() ? -1 : static_cast<int>(found - numbers.begin());
    throw_with_ranks(e, rank, named);
  } catch (...) {
    go_back();
    throw;
  }
  const std::lock_guard lock(mutex_);
  failed_.clear();
  find_neighbours();
  return numbers;
}

bool HostPeers::is_known(int number, const HostPeerAddress& address,
                         const std::function<bool(int)>& is_lost) const {
  const Peer& peer = peers_.at(number);
  if (peer.who->same_process) return true;
  if (address.host != address_.host) return !is_lost || !is_lost(number);
  if (peer.is_gone()) return false;
  const Exchange* const e = peer.exchange.get();
  if (e == nullptr) return true;
  const auto stands = [](const FileDescriptor& socket) {
    return !socket || !has_hung_up(socket.fd());
  };
  return !e->closed && stands(e->in) && stands(e->out);
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
                            Deadline deadline) {
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
    if (meeting.listener) meeting.life.emplace(meeting.board->life(meeting.place), memory);
  }
  pass_on(here, key, memory);
}

void HostPeers::look_at_givers(std::span<const int> here, Clock::time_point& refused_since) {
  const std::lock_guard lock(mutex_);
  const auto throw_lost = [&](const Peer& peer, int number, std::string_view problem) {
    throw Error(ErrorCode::peer_lost,
                fmt::format("cannot connect to process {}: {}; it has probably died", peer.who->pid,
                            problem),
                number);
  };
  for (std::ptrdiff_t p = place_of(here, number_); p > 0;) {
    p = (p - 1) / kFanOut;
    const int number = here[static_cast<std::size_t>(p)];
    const Peer& peer = at(number);
    if (peer.in_another_process() && peer.who->pid > 0 &&
        process_has_ended(peer.who->pid, peer.started)) {
      throw_lost(peer, number, "its process has ended");
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
      throw_lost(giver, from, "nothing listens there any more");
    }
  }
}

}  // namespace tutti
