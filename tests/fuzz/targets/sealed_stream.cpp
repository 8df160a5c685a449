// A stream under seals (checksums, encryption), of which somebody between the hosts has altered,
// dropped, doubled or moved bytes: what is handed out is the beginning of what was sent, byte for
// byte, and then comes an error.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"
#include "transport/sockets/stream.h"

namespace tutti::fuzz::sealed_stream {
namespace {

using namespace protocol;

std::pair<FileDescriptor, FileDescriptor> sockets() {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
          "there are sockets");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

const Session& session() {
  static const Session of_both(Bytes32{std::byte{1}}, Bytes32{}, Bytes32{});
  return of_both;
}

/// The records of messages of `lengths`, as they travel, and what they say.
struct Sent {
  std::string records, said;
};
Sent sent(Protection protection, std::string_view lengths) {
  Sent result;
  auto [here, there] = sockets();
  Stream stream(std::move(here), protection, session(), true);
  for (const char length : lengths) {
    std::string message(1 + static_cast<unsigned char>(length), '\0');
    for (std::size_t i = 0; i < message.size(); ++i)
      message[i] = static_cast<char>(result.said.size() + i * 7);
    const iovec part{message.data(), message.size()};
    require(stream.send({&part, 1}) == static_cast<ssize_t>(message.size()), "it is sent");
    result.said += message;
  }
  char bytes[65536];
  for (ssize_t got = 0; (got = ::read(there.fd(), bytes, sizeof bytes)) > 0;)
    result.records.append(bytes, static_cast<std::size_t>(got));
  return result;
}

/// protection, a seed for changes, lengths of messages; then what else comes.
void run(std::string_view input) {
  Input in(input);
  const auto protection = in.byte() % 2 == 0 ? Protection::checksum : Protection::encryption;
  const auto seed = in.value<std::uint16_t>();
  const std::string_view lengths = in.take(in.byte() % 8);
  const Sent good = sent(protection, lengths);
  std::string records = good.records;
  std::mt19937 random(seed);
  const std::vector<std::string> others{good.records, std::string(in.rest().substr(0, 4096))};
  if (seed != 0) mutate(records, others, random);
  if (seed % 3 == 0) records += others[1];
  auto [here, there] = sockets();
  Stream stream(std::move(here), protection, session(), false);
  require(
      ::write(there.fd(), records.data(), records.size()) == static_cast<ssize_t>(records.size()) ||
          records.empty(),
      "it comes");
  there.reset();
  std::string heard;
  char bytes[100];
  const iovec room{bytes, sizeof bytes};
  ssize_t got = 0;
  while ((got = stream.receive({&room, 1})) > 0) heard.append(bytes, static_cast<std::size_t>(got));
  require(got == 0 || errno == EBADMSG, "it ends, or is altered");
  require(good.said.starts_with(heard), "what is handed out is what was sent");
  if (records == good.records) require(heard == good.said && got == 0, "what is not altered comes");
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (char protection = 0; protection < 2; ++protection) {
    for (const std::uint16_t seed : {0, 1, 3, 77}) {
      all.push_back(std::string(1, protection) + text_of_bytes(seed) + "\3abc" +
                    std::string(30, '\1'));
    }
  }
  return all;
}

const Registered target({"sealed_stream", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::sealed_stream
