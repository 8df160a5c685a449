// The bytes of a rank of another host on the one, two or three TCP connections of a wire, in pieces
// and in any order between connections: the wire goes on or ends, and every message lies in its
// ring.
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "tests/fuzz/target.h"
#include "tests/transport/wire_ends.h"
#include "transport/network/wire_choice.h"

namespace tutti::fuzz::tcp_wire {
namespace {

using test::End;

constexpr ConnectionShape kShape{4, 131072, 2};

/// The two ends of a connection: the wire's, and what its peer has.
std::pair<Stream, FileDescriptor> connection() {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
          "there are sockets");
  return {Stream(FileDescriptor(ends[0]), Protection::none, {}, true), FileDescriptor(ends[1])};
}

struct Connected {
  explicit Connected(std::size_t streams)
      : end([](Endpoint::Sink& sink) { return make_tcp_endpoints()->make(sink, 1, -1); }) {
    auto first = connection();
    peer[0] = std::move(first.second);
    if (streams > 1) {
      auto second = connection();
      peer[1] = std::move(second.second);
      end.wire.attach(std::move(first.first), std::move(second.first), false);
    } else {
      end.wire.attach(std::move(first.first), Stream(), false);
    }
    if (streams > 2) {
      auto stripe = connection();
      peer[2] = std::move(stripe.second);
      end.wire.add_stripe(std::move(stripe.first));
    }
  }
  End end;
  std::array<FileDescriptor, 3> peer;
};

void read_all(InLink& link) {
  Receiver& receiver = link.receiver();
  while (receiver.ready()) {
    const std::uint32_t bytes = receiver.bytes();
    require(bytes <= kShape.slot_bytes, "a message fits into its slot");
    const std::byte* const at = receiver.slot(bytes);
    unsigned sum = 0;
    for (std::size_t b = 0; b < bytes; ++b) sum += static_cast<unsigned>(at[b]);
    require(sum != 1U << 31, "it can be read");
    receiver.free();
    link.rung();
  }
}

/// streams; then, again and again: a stream, a length, and bytes.
void run(std::string_view input) {
  Input in(input);
  const std::size_t streams = 1 + in.byte() % 3;
  Connected wire(streams);
  InLink* link = nullptr;
  for (int i = 0; i < 64 && !in.empty() && !wire.end.is_closed; ++i) {
    const unsigned what = in.byte();
    const std::string_view bytes = in.take(in.value<std::uint16_t>());
    if (::send(wire.peer[what % streams].fd(), bytes.data(), bytes.size(),
               MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
      break;
    // The peer may want a ring for which there is no memory.
    if (!accepts(ErrorCode::system, [&] { wire.end.wire.poll_and_tell(); })) return;
    if ((what & 16) == 0) continue;
    try {
      if (link == nullptr && !wire.end.is_closed) link = &wire.end.in(0, kShape);
    } catch (const Error& error) {
      require(error.code() == ErrorCode::mismatch, "the peer has a link of another shape");
      return;
    }
    if (link != nullptr) read_all(*link);
  }
  for (FileDescriptor& peer : wire.peer) peer.reset();
  for (int i = 0; i < 100 && !wire.end.is_closed; ++i) wire.end.wire.poll_and_tell();
  if (link != nullptr) read_all(*link);
}

/// What a wire sends of messages of these lengths, on its streams.
std::string sent(std::size_t streams, std::initializer_list<std::size_t> lengths) {
  Connected wire(streams);
  OutLink& out = wire.end.out(0, kShape);
  std::uint64_t number = 0;
  std::string all(1, static_cast<char>(streams - 1));
  const auto collect = [&] {
    wire.end.wire.poll_and_tell();
    for (std::size_t s = 0; s < streams; ++s) {
      std::string piece(65535, '\0');
      for (ssize_t got = 0; (got = ::read(wire.peer[s].fd(), piece.data(), piece.size())) > 0;) {
        all += static_cast<char>(16 + s);
        all += text_of_bytes(static_cast<std::uint16_t>(got));
        all.append(piece, 0, static_cast<std::size_t>(got));
        wire.end.wire.poll_and_tell();
      }
    }
  };
  for (const std::size_t bytes : lengths) {
    require(test::try_send(out, number++, bytes), "there is room");
    collect();
  }
  wire.end.wire.say_bye();
  collect();
  return all;
}

std::vector<std::string> seeds() {
  return {sent(1, {8, 100, 4000}), sent(2, {8, 40000, 8}), sent(3, {70000, 8})};
}

const Registered target({"tcp_wire", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::tcp_wire
