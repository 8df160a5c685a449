// Both sides of the handshake with somebody who does not know the secret, and says anything, in
// pieces: no side believes it. And what a member says behind the handshake of a stream to another
// host: it is believed only word for word.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "tests/fuzz/target.h"
#include "transport/sockets/introduction.h"
#include "transport/sockets/stream_candidate.h"
#include "transport/sockets/waiting_room.h"

namespace tutti::fuzz::handshake {
namespace {

using namespace protocol;

struct Pair {
  Pair() {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
            "there are sockets");
    here = FileDescriptor(ends[0]);
    there = FileDescriptor(ends[1]);
  }
  void say(std::string_view bytes) const {
    require(::send(there.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                    static_cast<ssize_t>(bytes.size()) ||
                errno == EPIPE,
            "it is said");
  }
  FileDescriptor here, there;
};

constexpr Bytes32 kSecret{std::byte{1}};

/// A connector, whom anybody answers.
void connector(Input in, std::size_t piece) {
  Pair pair;
  Introduction attempt(std::move(pair.here), kSecret);
  while (!in.empty() && !attempt.ended()) {
    pair.say(in.take(piece));
    attempt.step();
  }
  pair.there.reset();
  attempt.step();
  require(attempt.state() == Introduction::State::failed, "nobody is believed without the secret");
  require(attempt.reason() != Introduction::Reason::none, "there is a reason");
}

/// An acceptor, to whom anybody comes.
void acceptor(Input in, std::size_t piece) {
  static const std::string name = "tutti-fuzz-" + std::to_string(::getpid());
  static const SocketAddress address = abstract_address(name);
  static const FileDescriptor listener = listen_at(address);
  static const FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  WaitingRoom room("fuzz", kSecret);
  const FileDescriptor visitor = connect_to(address, deadline_after(std::chrono::seconds(5)));
  require(static_cast<bool>(visitor), "it comes");
  const auto now = std::chrono::steady_clock::now();
  room.accept(listener, epoll, now);
  while (!in.empty()) {
    const std::string_view bytes = in.take(piece);
    if (::send(visitor.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0)
      break;  // it was sent away
    require(!room.read(0, now).has_value(), "nobody is let in without the secret");
  }
}

/// A stream's hello of a member, who knows the secret.
void member(Input in) {
  Pair pair;
  StreamHello mine{
      .from = 7, .to = 9, .stream = 1, .verdict = StreamHello::accepted, .connection = 3};
  const bool hears_choice = in.byte() % 2 == 1;
  const Session session(kSecret, Bytes32{}, Bytes32{});
  StreamCandidate candidate(std::move(pair.here), session, mine, hears_choice);
  StreamHello said = {
      .from = 9, .to = 7, .stream = 1, .verdict = StreamHello::chosen, .connection = 3};
  const StreamHello right = said;
  for (std::byte& byte : writable_bytes_of(said)) byte ^= static_cast<std::byte>(in.byte());
  SignedStreamHello all = SignedStreamHello::of(said, session);
  const bool genuine = in.byte() == 0;
  if (!genuine) all.mac[in.byte() % 32] ^= std::byte{1};
  pair.say(text_of_bytes(all));
  const auto state = candidate.step();
  const bool word_for_word = text_of_bytes(said) == text_of_bytes(right) && genuine;
  if (hears_choice) {
    require((state == StreamCandidate::State::chosen) == word_for_word,
            "a choice is believed word for word");
  } else {
    require(state == StreamCandidate::State::ready, "nobody listens for a choice");
  }
}

void run(std::string_view input) {
  Input in(input);
  const unsigned side = in.byte() % 3;
  const std::size_t piece = 1 + in.byte();
  if (side == 0) connector(in, piece);
  if (side == 1) acceptor(in, piece);
  if (side == 2) member(in);
}

std::vector<std::string> seeds() {
  Greeting older;
  older.version = kVersion - 1;
  const std::string zeros(sizeof(StreamHello), '\0');
  return {std::string("\0\xff", 2) + text_of_bytes(Greeting{}) + std::string(32, '\0'),
          std::string("\0\7", 2) + text_of_bytes(older),
          std::string("\0\xff", 2) + "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n",
          std::string("\1\xff", 2) + text_of_bytes(Proof{}),
          std::string("\2\0\1", 3) + zeros + std::string(2, '\0'),
          std::string("\2\0\1", 3) + zeros + "\1\5"};
}

const Registered target({"handshake", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::handshake
