// The frames of the rendezvous, in pieces as they come: a stranger's bytes are never a frame; a
// genuine frame has the type and the payload that were sent, and its payload is read as what its
// type says: failures, rosters, endpoints.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "bootstrap/rendezvous_protocol.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::rendezvous_frames {
namespace {

using namespace protocol;

const Session& session() {
  static const Session of_all(Bytes32{std::byte{1}}, Bytes32{std::byte{2}}, Bytes32{std::byte{3}});
  return of_all;
}

/// What a peer sends, in pieces of so many bytes, before it hangs up.
FrameResult read_frame(std::string_view bytes, std::size_t piece, FrameReader& reader) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
          "there are sockets");
  const FileDescriptor here(ends[0]);
  FileDescriptor there(ends[1]);
  FrameResult result = FrameResult::more;
  while (!bytes.empty() && result == FrameResult::more) {
    const std::string_view part = bytes.substr(0, piece);
    require(::write(there.fd(), part.data(), part.size()) == static_cast<ssize_t>(part.size()),
            "it is sent");
    bytes.remove_prefix(part.size());
    result = reader.read(here, session());
  }
  there.reset();
  return result == FrameResult::more ? reader.read(here, session()) : result;
}

void read_payload(FrameType type, std::span<const std::byte> payload) {
  constexpr int kRanks = 4;
  if (type == FrameType::failed || type == FrameType::trouble) {
    const auto failure = failure_in(payload, kRanks);
    if (!failure) return;
    require(failure->rank() >= -1 && failure->rank() < kRanks, "a culprit is a rank");
    require(
        failure->code() >= ErrorCode::invalid_argument && failure->code() <= ErrorCode::internal,
        "a failure has a code");
    require(std::string_view(failure->what()).size() <= kMaxErrorText, "its text is short");
    number_in(payload);
  } else {
    for (const int size : {1, kRanks}) {
      const auto roster = Roster::from({payload.begin(), payload.end()}, size);
      if (!roster) continue;
      std::size_t bytes = 0;
      for (int r = 0; r < size; ++r) bytes += roster->card(r).size();
      require(bytes + static_cast<std::size_t>(size) * 2 == payload.size(),
              "a roster is its cards");
    }
    protocol::Endpoint endpoint;
    std::memcpy(static_cast<void*>(&endpoint), payload.data(),
                std::min(payload.size(), sizeof endpoint));
    if (const auto address = address_of(endpoint))
      require(!to_string(*address).empty(), "an address has a text");
  }
}

/// piece, form; then what a stranger sends, or a type and a payload that a member does.
void run(std::string_view input) {
  Input in(input);
  const std::size_t piece = 1 + in.byte();
  const bool genuine = in.byte() % 2 == 1;
  FrameReader reader;
  if (!genuine) {
    require(read_frame(in.rest(), piece, reader) != FrameResult::whole,
            "a stranger's bytes are no frame");
    return;
  }
  const auto type = in.value<FrameType>();
  const auto payload = bytes_in(in.rest().substr(0, kMaxPayload));
  const Buffer sent = frame(session(), type, {payload});
  require(read_frame(text_of_bytes(*sent), piece, reader) == FrameResult::whole, "a frame comes");
  require(reader.type() == type && std::ranges::equal(reader.payload(), payload),
          "it is what was sent");
  read_payload(type, reader.payload());
  // Whatever byte is altered, it is none.
  std::string altered = text_of_bytes(*sent);
  altered[(payload.size() * 7 + piece) % altered.size()] ^= 1;
  FrameReader other;
  require(read_frame(altered, piece, other) != FrameResult::whole, "an altered frame is none");
}

std::vector<std::string> seeds() {
  const auto genuine = [](FrameType type, std::string_view payload) {
    return std::string("\xff\1", 2).append(text_of_bytes(type)).append(payload);
  };
  const protocol::Failure failure{static_cast<std::uint32_t>(ErrorCode::mismatch), 2, 7};
  const std::vector<std::byte> cards[] = {
      {std::byte{1}, std::byte{2}}, {}, {std::byte{3}}, {std::byte{4}}};
  protocol::Endpoint endpoint = endpoint_of(*parse_address("127.0.0.1", 4711));
  const Buffer frame_of_another =
      frame(Session(Bytes32{}, Bytes32{}, Bytes32{}), FrameType::go, {bytes_of(endpoint)});
  return {genuine(FrameType::failed, text_of_bytes(failure) + "rank 2 has died"),
          genuine(FrameType::have, text_of_bytes(roster_bytes(cards))),
          genuine(FrameType::hello, text_of_bytes(endpoint)), genuine(FrameType::go, ""),
          std::string("\7\0", 2) + text_of_bytes(*frame_of_another)};
}

const Registered target({"rendezvous_frames", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::rendezvous_frames
