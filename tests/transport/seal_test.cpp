// Seals of what goes to other hosts: whatever bit is altered, is left out or comes twice, nothing
// is opened that is not as it was sent.
#include "transport/sockets/seal.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "transport/sockets/crc32c.h"
#include "transport/sockets/stream.h"

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;

Bytes some_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32c, IsThatOfTheStandard) {
  constexpr std::string_view kDigits = "123456789";  // RFC 3720 and its successors
  EXPECT_EQ(crc32c(std::as_bytes(std::span(kDigits))), 0xE3069283U);
  EXPECT_EQ(crc32c(Bytes(32)), 0x8A9136AAU);
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0xFF})), 0x62A8AB43U);
}

TEST(Crc32c, IsTheSameByTableAndInPieces) {
  const Bytes bytes = some_bytes(300, 1);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t count = 0; count + begin <= bytes.size(); count += 7) {
      const auto part = std::span(bytes).subspan(begin, count);
      const std::uint32_t whole = crc32c(part, 17);
      EXPECT_EQ(whole, crc32c_by_table(part, 17));
      EXPECT_EQ(whole, crc32c(part.subspan(count / 3), crc32c(part.first(count / 3), 17)));
    }
  }
}

class Seals : public testing::TestWithParam<Protection> {
 protected:
  Seals() { protocol::fill_random(key_); }
  Seal make() const { return {GetParam(), key_}; }
  protocol::Bytes32 key_{};
};
INSTANTIATE_TEST_SUITE_P(By, Seals, testing::Values(Protection::checksum, Protection::encryption),
                         [](const auto& by) {
                           return by.param == Protection::checksum ? "Checksum" : "Encryption";
                         });

TEST_P(Seals, OpenWhatIsAsItWas) {
  Seal to = make(), from = make();
  for (const std::size_t count : {1, 32, 1000, 16384}) {
    const Bytes sent = some_bytes(count, static_cast<unsigned>(count));
    Bytes travels = sent;
    const Seal::Header header = to.close(travels);
    EXPECT_TRUE(Seal::is_right(header));
    EXPECT_EQ(header.bytes, count);
    EXPECT_EQ(travels == sent, GetParam() == Protection::checksum);
    ASSERT_TRUE(from.open(header, travels));
    EXPECT_EQ(travels, sent);
  }
}

TEST_P(Seals, FindEveryBit) {
  const Bytes sent = some_bytes(40, 3);
  Bytes sealed = sent;
  const Seal::Header header = make().close(sealed);
  Bytes record(sizeof header + sealed.size());
  std::memcpy(record.data(), &header, sizeof header);
  std::copy(sealed.begin(), sealed.end(), record.begin() + sizeof header);
  for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
    Bytes altered = record;
    altered[bit / 8] ^= std::byte{1} << bit % 8;
    Seal::Header h;
    std::memcpy(&h, altered.data(), sizeof h);
    const bool opened = Seal::is_right(h) && make().open(h, std::span(altered).subspan(sizeof h));
    EXPECT_FALSE(opened) << "bit " << bit;
  }
}

TEST_P(Seals, FindWhatIsLeftOutOrComesTwice) {
  Seal to = make();
  Bytes first = some_bytes(100, 4), second = some_bytes(100, 5);
  const Seal::Header of_first = to.close(first), of_second = to.close(second);
  Bytes travels = second;
  EXPECT_FALSE(make().open(of_second, travels));
  Seal from = make();
  travels = first;
  EXPECT_TRUE(from.open(of_first, travels));
  travels = first;
  EXPECT_FALSE(from.open(of_first, travels));
}

TEST(Seals, OfOtherKeysAreNotOpened) {
  protocol::Bytes32 a{}, b{};
  protocol::fill_random(a);
  protocol::fill_random(b);
  Bytes bytes = some_bytes(64, 6);
  const Seal::Header header = Seal(Protection::encryption, a).close(bytes);
  EXPECT_FALSE(Seal(Protection::encryption, b).open(header, bytes));
}

/// Both ends of a connection.
class Streams : public testing::TestWithParam<Protection> {
 protected:
  Streams() {
    protocol::Bytes32 secret{}, one{}, other{};
    for (protocol::Bytes32* const b : {&secret, &one, &other}) protocol::fill_random(*b);
    const protocol::Session session(secret, one, other);
    std::array<int, 2> fds{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    left_ = Stream(FileDescriptor(fds[0]), GetParam(), session, true);
    right_ = Stream(FileDescriptor(fds[1]), GetParam(), session, false);
  }
  Stream left_, right_;
};
INSTANTIATE_TEST_SUITE_P(By, Streams,
                         testing::Values(Protection::none, Protection::checksum,
                                         Protection::encryption),
                         [](const auto& by) {
                           return std::string(by.param == Protection::none       ? "Nothing"
                                              : by.param == Protection::checksum ? "Checksum"
                                                                                 : "Encryption");
                         });

// In parts and pieces of all sizes, in both directions, further than the socket has room for.
TEST_P(Streams, CarryBytes) {
  std::mt19937 random(7);
  std::array<Bytes, 2> said{some_bytes(3'000'000, 8), some_bytes(2'000'000, 9)};
  std::array<Bytes, 2> heard{Bytes(said[0].size()), Bytes(said[1].size())};
  std::array<std::size_t, 2> sent{}, got{};
  const std::array<Stream*, 2> from{&left_, &right_}, to{&right_, &left_};
  const auto parts_of = [&](Bytes& bytes, std::size_t at) {
    std::vector<iovec> parts;
    while (parts.size() < 5 && at < bytes.size()) {
      const std::size_t most = random() % 2 == 0 ? 100 : 100'000;
      const std::size_t count = std::min(1 + random() % most, bytes.size() - at);
      parts.push_back({bytes.data() + at, count});
      at += count;
    }
    return parts;
  };
  for (int turn = 0; got[0] < said[0].size() || got[1] < said[1].size(); ++turn) {
    ASSERT_LT(turn, 1'000'000);
    const std::size_t d = random() % 2;
    if (sent[d] < said[d].size() && random() % 2 == 0) {
      const ssize_t n = from[d]->send(parts_of(said[d], sent[d]));
      if (n > 0) sent[d] += static_cast<std::size_t>(n);
      ASSERT_TRUE(n > 0 || errno == EAGAIN);
    } else {
      from[d]->flush();
    }
    if (got[d] == heard[d].size()) continue;
    const ssize_t n = to[d]->receive(parts_of(heard[d], got[d]));
    if (n > 0) got[d] += static_cast<std::size_t>(n);
    ASSERT_TRUE(n > 0 || errno == EAGAIN);
  }
  EXPECT_EQ(heard[0], said[0]);
  EXPECT_EQ(heard[1], said[1]);
  EXPECT_FALSE(left_.has_unsent() || right_.has_unsent());
}

}  // namespace
}  // namespace tutti
