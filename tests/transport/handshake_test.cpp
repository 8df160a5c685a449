// The keys of connections, by the checklist of docs/security.md: one for each purpose, role and
// direction, and no nonce twice under one.
#include "transport/sockets/handshake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "transport/sockets/stream.h"

namespace tutti {
namespace {

using namespace protocol;

Bytes32 filled_with(int value) {
  Bytes32 bytes;
  bytes.fill(static_cast<std::byte>(value));
  return bytes;
}

std::array<FileDescriptor, 2> sockets() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// What `text` becomes on the way from the side that connected, or accepted.
std::vector<std::string> records_of(const Session& session, bool connector, int times) {
  auto [here, there] = sockets();
  Stream stream(std::move(here), Protection::encryption, session, connector);
  std::vector<std::string> all;
  for (int i = 0; i < times; ++i) {
    std::string text = "the same text";
    const iovec part{text.data(), text.size()};
    EXPECT_EQ(stream.send({&part, 1}), static_cast<ssize_t>(text.size()));
    std::string bytes(200, '\0');
    const ssize_t got = ::read(there.fd(), bytes.data(), bytes.size());
    EXPECT_GT(got, 0);
    all.push_back(bytes.substr(0, static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
  }
  return all;
}

TEST(Keys, OfEachPurposeDiffer) {
  const Bytes32 secret = filled_with(1);
  const Session session(secret, filled_with(2), filled_with(3));
  const std::vector<Bytes32> all{secret,
                                 tree_secret(secret),
                                 session_secret(secret, filled_with(2)),
                                 hash(secret, "network key", {filled_with(2)}),
                                 session.connector_proof(),
                                 session.acceptor_proof(),
                                 session.mac("seal of the connector", {}),
                                 session.mac("seal of the acceptor", {}),
                                 session.mac("frame", {}),
                                 session.mac("stream", {})};
  EXPECT_EQ(std::set<Bytes32>(all.begin(), all.end()).size(), all.size());
}

TEST(Keys, OfOneSecretDifferByBothNonces) {
  const Bytes32 secret = filled_with(1), a = filled_with(2), b = filled_with(3);
  const std::set<Bytes32> proofs{
      Session(secret, a, b).connector_proof(), Session(secret, b, a).connector_proof(),
      Session(secret, a, a).connector_proof(), Session(secret, b, b).connector_proof()};
  EXPECT_EQ(proofs.size(), 4U);
}

TEST(Hashes, DoNotTakeTheEndOfAPurposeForWhatFollows) {
  const auto of = [](std::string_view purpose, std::string_view text) {
    return hash(filled_with(1), purpose, {std::as_bytes(std::span(text))});
  };
  EXPECT_NE(of("ab", "c"), of("a", "bc"));
  EXPECT_NE(of("1:a", ""), of("1", ":a"));
}

TEST(Macs, AreEqualOnlyWhereAllBitsAre) {
  const Bytes32 one = filled_with(1);
  EXPECT_TRUE(equal(one, filled_with(1)));
  for (std::size_t bit = 0; bit < 8 * one.size(); ++bit) {
    Bytes32 other = one;
    other[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_FALSE(equal(one, other)) << bit;
  }
}

TEST(EncryptedStreams, HaveNoRecordTwice) {
  const Bytes32 secret = filled_with(1);
  std::set<std::string> all;
  for (const int nonce : {1, 2}) {
    const Session session(secret, filled_with(nonce), filled_with(9));
    for (const bool connector : {true, false}) {
      for (const std::string& record : records_of(session, connector, 50)) all.insert(record);
    }
  }
  EXPECT_EQ(all.size(), 200U);
}

TEST(EncryptedStreams, ShowNothingOfWhatTheySay) {
  const Session session(filled_with(1), filled_with(2), filled_with(3));
  for (const std::string& record : records_of(session, true, 20)) {
    for (const char* const word : {"the", "same", "text"}) {
      EXPECT_EQ(record.find(word), std::string::npos);
    }
  }
}

TEST(EncryptedStreams, DoNotTakeBackWhatTheySaid) {
  const Session session(filled_with(1), filled_with(2), filled_with(3));
  for (const bool connector : {true, false}) {
    auto [here, there] = sockets();
    Stream stream(std::move(here), Protection::encryption, session, connector);
    const std::string record = records_of(session, connector, 1).front();
    ASSERT_EQ(::write(there.fd(), record.data(), record.size()),
              static_cast<ssize_t>(record.size()));
    std::array<char, 100> bytes{};
    const iovec room{bytes.data(), bytes.size()};
    EXPECT_EQ(stream.receive({&room, 1}), -1);
    EXPECT_EQ(errno, EBADMSG);
  }
}

}  // namespace
}  // namespace tutti
