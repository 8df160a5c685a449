// What descriptors of the simulated processes stand for: sockets, event counters, epoll sets.
#pragma once

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/simulator/world.h"

namespace tutti::simulator {

/// Lower ones are the real kernel's.
inline constexpr int kFirstFile = 1000;

struct Epoll;

struct Object {
  enum class Kind : std::uint8_t { tcp, local, datagram, counter, epoll, process };
  Object(Kind its_kind, Process& its_process) : kind(its_kind), process(&its_process) {}
  virtual ~Object() = default;
  /// What epoll says of it.
  virtual std::uint32_t ready() = 0;
  /// No descriptor stands for it any more.
  virtual void end() {}
  /// Something has happened to it: those that wait look again.
  void changed() {
    ++changes;
    world().look_again(*process);
  }

  const Kind kind;
  Process* process;
  int references = 0;
  bool blocks = true;
  std::uint64_t changes = 0;
  std::vector<Epoll*> sets;  // that watch it
};

struct Counter : Object {
  explicit Counter(Process& its) : Object(Kind::counter, its) {}
  std::uint32_t ready() override { return (value > 0 ? EPOLLIN : 0U) | EPOLLOUT; }
  std::uint64_t value = 0;
};

/// pidfd_open().
struct ProcessFile : Object {
  ProcessFile(Process& its, Process& whose) : Object(Kind::process, its), about(&whose) {}
  std::uint32_t ready() override { return about->alive ? 0U : EPOLLIN; }
  Process* about;
};

struct Epoll : Object {
  explicit Epoll(Process& its) : Object(Kind::epoll, its) {}
  struct Watch {
    Object* object;
    epoll_event event;
    std::uint64_t said = ~std::uint64_t{0};  // its changes when it was last reported
    bool off = false;                        // it has been reported once (EPOLLONESHOT)
  };
  std::uint32_t ready() override;
  void end() override;
  /// What is ready of `watch` now.
  static std::uint32_t ready_of(const Watch& watch);
  std::map<int, Watch> watches;
};

struct Address {
  std::uint32_t ip = 0;
  std::uint16_t port = 0;
  auto operator<=>(const Address&) const = default;
};

struct Datagram : Object {  // it knows its address, as if it were connected; nothing else
  explicit Datagram(Process& its) : Object(Kind::datagram, its) {}
  std::uint32_t ready() override { return EPOLLOUT; }
  Address local;
};

struct Tcp : Object {
  explicit Tcp(Process& its) : Object(Kind::tcp, its) {}
  enum class State : std::uint8_t { idle, listening, connecting, connected, closed };
  std::uint32_t ready() override;
  void end() override;
  std::size_t unread() const { return in.size() - in_begin; }
  std::size_t room() const;

  State state = State::idle;
  bool bound = false;
  Address local, remote;
  int host = 0;
  Tcp* peer = nullptr;  // also when that has been closed
  std::string in;
  std::size_t in_begin = 0;
  std::size_t under_way = 0;  // bytes that the peer's kernel has not got yet
  std::size_t capacity = 0;   // of what is under way or unread
  Time last_arrival = 0;      // of what has been sent
  Time waits_since = kNever;  // what is under way was held up by a cut way
  bool fin_sent = false, fin_came = false, gone = false;
  bool is_reset = false;
  int error = 0;
  std::deque<Tcp*> backlog;
  bool keepalive = false;
  Time user_timeout = 0;
  int syn_retries = 6;
};

/// A socket between processes of a host that keeps packets apart.
struct Local : Object {
  explicit Local(Process& its) : Object(Kind::local, its) {}
  struct Packet {
    std::string data;
    std::vector<Object*> objects;
    std::vector<int> real_files;
  };
  std::uint32_t ready() override;
  void end() override;
  std::string name;
  bool listens = false, connected = false, fin_came = false, fin_sent = false;
  Local* peer = nullptr;
  std::deque<Packet> packets;
  std::deque<Local*> backlog;
};

// --- a process's descriptors ---

int add_file(Process& process, Object& object);
Object* file(Process& process, int fd);
void close_file(Process& process, int fd);
/// What the kernel does when a process ends.
void close_all(Process& process);
/// Of a descriptor of the real kernel.
std::string name_of_real_file(int fd);
/// "5 (tcp 10.0.0.1:4000 - 10.0.0.2:4001), ...": those that are open.
std::string open_files(const Process& process);

// --- the network ---

Address address_of_host(int host);
std::string text_of(const Address& address);

int tcp_bind(Tcp& socket, Address address);  // these return 0, or an errno
int tcp_listen(Tcp& socket);
int tcp_connect(Tcp& socket, Address address);
long tcp_send(Tcp& socket, const iovec* parts, std::size_t count);  // or minus an errno
long tcp_receive(Tcp& socket, const iovec* parts, std::size_t count, bool peek);
void tcp_shutdown(Tcp& socket, int how);
Tcp* tcp_accept(Tcp& listener);

/// How the network behaves.
struct Weather {
  Time least_delay = 20 * kMicrosecond, most_delay = 120 * kMicrosecond;
  std::uint64_t lost_once_in = 0;  // packets, which TCP sends again after 0.2 s; 0: none is
  std::uint64_t least_buffer = 16 << 10, most_buffer = 1 << 20;
  std::uint64_t short_once_in = 4;  // how often send() and recv() do less than they could
  bool operator==(const Weather&) const = default;
};
Weather& weather();

/// Between the hosts nothing comes through any more, in this direction or both, until then.
void cut(int from, int to, Time until, bool both);
/// Resets one of the connections between the two hosts, as a box in between may. False: there is
/// none.
bool reset_connection(int host, int other);

int local_bind(Local& socket, const std::string& name);
int local_connect(Local& socket, const std::string& name);

}  // namespace tutti::simulator
