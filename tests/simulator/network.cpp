// TCP between the simulated hosts: see files.h.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/simulator/files.h"

namespace tutti::simulator {
namespace {

struct Packet {
  enum class Kind : std::uint8_t { data, fin, reset, syn, syn_ack, refusal };
  Kind kind;
  Tcp* from;
  Tcp* to;
  int from_host, to_host;
  std::string data;
  Time sent;
};

constexpr std::uint32_t kFirstIp = 0x0a000001;  // 10.0.0.1
constexpr std::uint16_t kFirstPort = 32768;
constexpr std::size_t kMostHosts = 32;

struct Network {
  Weather weather;
  std::map<std::pair<int, std::uint16_t>, Tcp*> listeners;
  std::map<int, std::uint16_t> next_port;
  Time cut_until[kMostHosts][kMostHosts] = {};
  std::vector<Tcp*> connections;
};

Network& network() {
  static auto* const instance = new Network;
  return *instance;
}

bool is_loopback(Address a) { return (a.ip >> 24) == 127; }

/// -1: there is no such host.
int host_of(const Process& process, Address a) {
  if (is_loopback(a)) return process.host;
  const auto host = static_cast<int>(a.ip - kFirstIp);
  for (const auto& p : world().processes) {
    if (p->host == host) return host;
  }
  return -1;
}

Time delay(int from, int to) {
  World& w = world();
  const Weather& how = network().weather;
  if (from == to) return 5 * kMicrosecond;
  Time time = w.network_random.between(how.least_delay, how.most_delay);
  if (how.lost_once_in > 0 && w.network_random.once_in(how.lost_once_in)) {
    time += 200 * kMillisecond;
    if (w.network_random.once_in(4)) time += 400 * kMillisecond;
  }
  return time;
}

Time way_is_cut_until(int from, int to) { return network().cut_until[from][to]; }

void tell_of(const Tcp& socket, const char* what) {
  if (!world().tells) return;
  world().tell("rank %d's connection %s to %s %s", socket.process->number,
               text_of(socket.local).c_str(), text_of(socket.remote).c_str(), what);
}

void break_off(Tcp& socket, int error) {
  if (socket.state == Tcp::State::closed) return;
  tell_of(socket, strerrorname_np(error));
  world().trace(10, static_cast<std::uint64_t>(error), socket.local.port);
  socket.state = Tcp::State::closed;
  socket.error = error;
  socket.is_reset = true;
  socket.fin_came = true;
  socket.changed();
}

void arrive(void* what, std::uint64_t);

void post(Packet* packet) {
  packet->sent = world().now();
  Tcp& from = *packet->from;
  const Time at = world().now() + delay(packet->from_host, packet->to_host);
  from.last_arrival = std::max(from.last_arrival, at);
  world().plan(from.last_arrival, arrive, packet);
}

void post(Packet::Kind kind, Tcp& from, Tcp& to, std::string data = {}) {
  post(new Packet{kind, &from, &to, from.host, to.host, std::move(data), 0});
}

/// Gives up where the answer to what it has sent is too late.
void on_user_timeout(void* socket, std::uint64_t since) {
  Tcp& its = *static_cast<Tcp*>(socket);
  if (its.waits_since != since) return;
  break_off(its, ETIMEDOUT);
}

/// The packet waits for its way. False: it is lost, as the way is never free again.
void hold_up(Packet* packet, Time until) {
  Tcp& from = *packet->from;
  const bool is_syn = packet->kind == Packet::Kind::syn;
  if ((packet->kind == Packet::Kind::data || is_syn || packet->kind == Packet::Kind::fin) &&
      from.waits_since == kNever) {
    from.waits_since = packet->sent;
    Time patience = from.user_timeout;
    if (patience == 0 && is_syn) patience = ((Time{2} << from.syn_retries) - 1) * kSecond;
    if (patience > 0) world().plan(packet->sent + patience, on_user_timeout, &from, packet->sent);
  }
  if (until == kNever) return;
  // TCP tries again once a second, at most; in order.
  from.last_arrival =
      std::max(from.last_arrival, until + world().network_random.between(0, kSecond));
  world().plan(from.last_arrival, arrive, packet);
}

void connect_arrives(const Packet& packet) {
  Tcp& client = *packet.from;
  const auto found = network().listeners.find({packet.to_host, client.remote.port});
  if (found == network().listeners.end() || client.state != Tcp::State::connecting) {
    if (client.state == Tcp::State::connecting) {
      world().plan(
          world().now() + delay(packet.to_host, packet.from_host),
          [](void* its, std::uint64_t) {
            Tcp& refused = *static_cast<Tcp*>(its);
            if (refused.state == Tcp::State::connecting) break_off(refused, ECONNREFUSED);
          },
          &client);
    }
    return;
  }
  Tcp& listener = *found->second;
  auto* const server = new Tcp(*listener.process);
  server->host = listener.host;
  server->state = Tcp::State::connected;
  server->local = client.remote;
  server->remote = client.local;
  server->capacity = client.capacity;
  server->peer = &client;
  network().connections.push_back(server);
  listener.backlog.push_back(server);
  listener.changed();
  post(Packet::Kind::syn_ack, *server, client);
}

void arrive(void* what, std::uint64_t) {
  auto* const packet = static_cast<Packet*>(what);
  if (const Time until = way_is_cut_until(packet->from_host, packet->to_host);
      until > world().now()) {
    return hold_up(packet, until);
  }
  const std::unique_ptr<Packet> arrived(packet);
  Tcp& from = *packet->from;
  from.waits_since = kNever;
  world().trace(11, static_cast<std::uint64_t>(packet->kind), packet->data.size());
  if (packet->kind == Packet::Kind::syn) return connect_arrives(*packet);
  Tcp& to = *packet->to;
  switch (packet->kind) {
    case Packet::Kind::syn_ack:
      if (to.state != Tcp::State::connecting) {  // it has given up
        post(Packet::Kind::reset, to, from);
        return;
      }
      to.state = Tcp::State::connected;
      to.peer = &from;
      tell_of(to, "comes about");
      network().connections.push_back(&to);
      return to.changed();
    case Packet::Kind::data:
      from.under_way -= packet->data.size();
      if (to.gone || to.state == Tcp::State::closed) {
        post(Packet::Kind::reset, to, from);
        return;
      }
      to.in.append(packet->data);
      to.changed();
      return from.changed();
    case Packet::Kind::fin:
      if (to.gone && to.state != Tcp::State::closed) to.state = Tcp::State::closed;
      tell_of(to, "has come to its end");
      to.fin_came = true;
      return to.changed();
    case Packet::Kind::reset:
      if (!to.gone) break_off(to, ECONNRESET);
      return;
    default:
      return;
  }
}

std::uint16_t free_port(int host) {
  auto& next = network().next_port.try_emplace(host, kFirstPort).first->second;
  return next++;
}

std::size_t some(std::size_t bytes) {
  const std::uint64_t often = network().weather.short_once_in;
  if (bytes > 1 && often > 0 && world().network_random.once_in(often)) {
    return world().network_random.between(1, bytes);
  }
  return bytes;
}

}  // namespace

Weather& weather() { return network().weather; }

Address address_of_host(int host) { return {kFirstIp + static_cast<std::uint32_t>(host), 0}; }

std::string text_of(const Address& a) {
  char text[64];
  std::snprintf(text, sizeof text, "%u.%u.%u.%u:%u", a.ip >> 24, (a.ip >> 16) & 255,
                (a.ip >> 8) & 255, a.ip & 255, a.port);
  return text;
}

std::size_t Tcp::room() const {
  if (peer == nullptr) return 0;
  const std::size_t used = under_way + peer->unread();
  return used >= capacity ? 0 : capacity - used;
}

std::uint32_t Tcp::ready() {
  switch (state) {
    case State::idle:
      return EPOLLOUT | EPOLLHUP;
    case State::listening:
      return backlog.empty() ? 0U : EPOLLIN;
    case State::connecting:
      return 0;
    case State::closed:
      return EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | (error != 0 ? EPOLLERR : 0U);
    case State::connected:
      break;
  }
  std::uint32_t is = 0;
  if (unread() > 0 || fin_came) is |= EPOLLIN;
  if (fin_came) is |= EPOLLRDHUP;
  if (fin_came && fin_sent) is |= EPOLLHUP;
  if (fin_sent || room() > capacity / 3) is |= EPOLLOUT;
  return is;
}

void Tcp::end() {
  gone = true;
  if (state == State::listening) {
    network().listeners.erase({host, local.port});
    for (Tcp* const waiting : backlog) {
      waiting->gone = true;
      post(Packet::Kind::reset, *waiting, *waiting->peer);
      waiting->state = State::closed;
    }
    backlog.clear();
  } else if (state == State::connected) {
    if (unread() > 0) {
      post(Packet::Kind::reset, *this, *peer);
      state = State::closed;
    } else if (!fin_sent) {
      post(Packet::Kind::fin, *this, *peer);
      fin_sent = true;
    }
  }
  if (state == State::connecting) state = State::closed;
}

int tcp_bind(Tcp& socket, Address address) {
  if (address.ip != 0 && !is_loopback(address) &&
      address.ip != address_of_host(socket.process->host).ip) {
    return EADDRNOTAVAIL;
  }
  socket.host = socket.process->host;
  socket.local = address;
  if (address.port != 0 && network().listeners.contains({socket.host, address.port})) {
    return EADDRINUSE;
  }
  if (address.port == 0) socket.local.port = free_port(socket.host);
  socket.bound = true;
  return 0;
}

int tcp_listen(Tcp& socket) {
  if (!socket.bound) tcp_bind(socket, {});
  if (!network().listeners.try_emplace({socket.host, socket.local.port}, &socket).second) {
    return EADDRINUSE;
  }
  socket.state = Tcp::State::listening;
  return 0;
}

int tcp_connect(Tcp& socket, Address address) {
  if (socket.state == Tcp::State::connecting) return EALREADY;
  if (socket.state != Tcp::State::idle) return EISCONN;
  const int host = host_of(*socket.process, address);
  if (host < 0) return ENETUNREACH;
  if (!socket.bound) {
    tcp_bind(socket,
             is_loopback(address) ? Address{0x7f000001, 0} : address_of_host(socket.process->host));
  }
  const Weather& how = network().weather;
  socket.remote = address;
  socket.state = Tcp::State::connecting;
  socket.capacity = world().network_random.between(how.least_buffer, how.most_buffer);
  post(new Packet{Packet::Kind::syn, &socket, nullptr, socket.host, host, {}, 0});
  return EINPROGRESS;
}

long tcp_send(Tcp& socket, const iovec* parts, std::size_t count) {
  if (socket.error != 0) return -std::exchange(socket.error, 0);
  if (socket.state == Tcp::State::connecting) return -EAGAIN;
  if (socket.state == Tcp::State::closed || socket.fin_sent) return -EPIPE;
  if (socket.state != Tcp::State::connected) return -ENOTCONN;
  std::size_t wanted = 0;
  for (std::size_t p = 0; p < count; ++p) wanted += parts[p].iov_len;
  std::size_t left = std::min(wanted, socket.room());
  if (left == 0) return wanted == 0 ? 0 : -EAGAIN;
  left = some(left);
  std::string data;
  data.reserve(left);
  for (std::size_t p = 0; p < count && data.size() < left; ++p) {
    data.append(static_cast<const char*>(parts[p].iov_base),
                std::min(parts[p].iov_len, left - data.size()));
  }
  socket.under_way += left;
  post(Packet::Kind::data, socket, *socket.peer, std::move(data));
  return static_cast<long>(left);
}

long tcp_receive(Tcp& socket, const iovec* parts, std::size_t count, bool peek) {
  if (socket.state == Tcp::State::connecting) return -EAGAIN;
  if (socket.state == Tcp::State::idle || socket.state == Tcp::State::listening) return -ENOTCONN;
  if (socket.unread() == 0) {
    if (socket.error != 0) return -std::exchange(socket.error, 0);
    return socket.fin_came ? 0 : -EAGAIN;
  }
  std::size_t wanted = 0;
  for (std::size_t p = 0; p < count; ++p) wanted += parts[p].iov_len;
  std::size_t left = std::min(wanted, socket.unread());
  if (!peek) left = some(left);
  std::size_t done = 0;
  for (std::size_t p = 0; p < count && done < left; ++p) {
    const std::size_t here = std::min(parts[p].iov_len, left - done);
    std::memcpy(parts[p].iov_base, socket.in.data() + socket.in_begin + done, here);
    done += here;
  }
  if (peek) return static_cast<long>(done);
  socket.in_begin += done;
  if (socket.unread() == 0) {
    socket.in.clear();
    socket.in_begin = 0;
  }
  // The sender hears that there is room again.
  if (socket.peer != nullptr && socket.peer->state == Tcp::State::connected && !socket.peer->gone) {
    world().plan(
        world().now() + 20 * kMicrosecond,
        [](void* its, std::uint64_t) { static_cast<Tcp*>(its)->changed(); }, socket.peer);
  }
  return static_cast<long>(done);
}

void tcp_shutdown(Tcp& socket, int how) {
  if (socket.state == Tcp::State::listening) {
    network().listeners.erase({socket.host, socket.local.port});
    for (Tcp* const waiting : socket.backlog) {
      waiting->gone = true;
      post(Packet::Kind::reset, *waiting, *waiting->peer);
      waiting->state = Tcp::State::closed;
    }
    socket.backlog.clear();
    socket.state = Tcp::State::closed;
    return socket.changed();
  }
  if (socket.state != Tcp::State::connected) return;
  if (how != SHUT_RD && !socket.fin_sent) {
    socket.fin_sent = true;
    post(Packet::Kind::fin, socket, *socket.peer);
  }
  if (how != SHUT_WR) socket.fin_came = true;
  socket.changed();
}

Tcp* tcp_accept(Tcp& listener) {
  if (listener.backlog.empty()) return nullptr;
  Tcp* const first = listener.backlog.front();
  listener.backlog.pop_front();
  return first;
}

// --- faults --------------------------------------------------------------------------------------

void cut(int from, int to, Time until, bool both) {
  network().cut_until[from][to] = std::max(network().cut_until[from][to], until);
  if (both) network().cut_until[to][from] = std::max(network().cut_until[to][from], until);
  // An idle connection that asks once a second gets no answer.
  for (Tcp* const c : network().connections) {
    const int other = c->peer->host;
    const bool concerned = (c->host == from && other == to) || (c->host == to && other == from);
    if (!concerned || c->state != Tcp::State::connected || c->gone || c->host == other) continue;
    if (!c->keepalive || c->user_timeout == 0) continue;
    const Time patience = c->user_timeout + world().network_random.between(0, kSecond);
    world().plan(
        world().now() + patience,
        [](void* its, std::uint64_t) {
          Tcp& idle = *static_cast<Tcp*>(its);
          const Time now = world().now();
          const bool is_cut = way_is_cut_until(idle.host, idle.peer->host) > now ||
                              way_is_cut_until(idle.peer->host, idle.host) > now;
          if (is_cut && idle.keepalive && idle.user_timeout > 0 && !idle.gone) {
            break_off(idle, ETIMEDOUT);
          }
        },
        c);
  }
}

bool reset_connection(int host, int other) {
  std::vector<Tcp*> there;
  for (Tcp* const c : network().connections) {
    if (c->state == Tcp::State::connected && !c->gone && c->host == host &&
        c->peer->host == other && c->peer->state == Tcp::State::connected && !c->peer->gone) {
      there.push_back(c);
    }
  }
  if (there.empty()) return false;
  Tcp& chosen = *there[world().network_random.below(there.size())];
  world().tell("the connection %s - %s is reset", text_of(chosen.local).c_str(),
               text_of(chosen.remote).c_str());
  post(Packet::Kind::reset, *chosen.peer, chosen);
  post(Packet::Kind::reset, chosen, *chosen.peer);
  return true;
}

}  // namespace tutti::simulator
