// The coder of versions: what one rank encodes, another one decodes to the same bits; and whatever
// happens to a message on its way, the other one has these bits or an error.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/reshard/layout.h"
#include "parallel/reshard/plan.h"
#include "parallel/weights/version_coder.h"

namespace tutti::parallel::weights {
namespace {

using CoderBytes = std::vector<std::byte>;

/// Two ranks on two hosts, and tensors of several types that rank 0 has and rank 1 gets.
class VersionCoding : public testing::Test {
 protected:
  VersionCoding() {
    const std::vector<reshard::Tensor> tensors{{"w", DataType::bfloat16, {700, 500}},
                                               {"bias", DataType::float32, {333}},
                                               {"step", DataType::int64, {}},
                                               {"v", DataType::float16, {1000, 100}}};
    for (const reshard::Tensor& t : tensors) {
      add_replicated(from_, t, std::vector<int>{0});
      add_replicated(to_, t, std::vector<int>{1});
    }
    plan_ = make_plan(from_, to_, {.hosts = {0, 1}, .message_bytes = 1 << 20});
    for (const reshard::Message& m : plan_.messages) {
      auto& message = now_.emplace_back(m.bytes);
      for (std::byte& b : message) b = static_cast<std::byte>(random_());
      present_.emplace_back(m.bytes);
    }
  }

  VersionCoder coder(const Ways& ways = {}, Pace link = {}) {
    VersionCoder made(ways, link);
    made.use(plan_, from_, to_);
    return made;
  }
  void change(double part) {
    std::uniform_real_distribution<double> chance(0, 1);
    for (auto& message : now_) {
      for (std::size_t at = 0; at < message.size(); at += 2) {
        if (chance(random_) < part) message[at] ^= std::byte{1};
      }
    }
  }
  static CoderBytes encoded(VersionCoder& coder, std::size_t number, const CoderBytes& plain) {
    CoderBytes coded(coder.most(plain.size()));
    coded.resize(coder.encode(number, plain, coded));
    return coded;
  }
  /// Sends all messages from one coder to the other; returns the bytes on the link.
  std::size_t send(VersionCoder& sender, VersionCoder& receiver) {
    std::size_t bytes = 0;
    for (std::size_t n = 0; n < now_.size(); ++n) {
      const CoderBytes coded = encoded(sender, n, now_[n]);
      receiver.decode(n, coded, present_[n]);
      EXPECT_EQ(present_[n], now_[n]) << n;
      bytes += coded.size();
    }
    return bytes;
  }
  std::size_t plain_bytes() const {
    std::size_t bytes = 0;
    for (const auto& message : now_) bytes += message.size();
    return bytes;
  }

  std::mt19937_64 random_{3};
  reshard::Layout from_{2}, to_{2};
  reshard::Plan plan_;
  std::vector<CoderBytes> now_, present_;  // by message
};

TEST_F(VersionCoding, SendsTheFirstVersionWholeAndThenWhatHasChanged) {
  VersionCoder sender = coder(), receiver = coder();
  for (const bool first : {true, false, false}) {
    change(0.02);
    sender.begin_version(!first);
    receiver.begin_version(!first);
    const std::size_t bytes = send(sender, receiver);
    EXPECT_EQ(bytes > plain_bytes() * 9 / 10, first) << bytes;
    EXPECT_EQ(bytes < plain_bytes() / 8, !first) << bytes;
  }
  EXPECT_EQ(sender.traffic().plain, 3 * plain_bytes());
}

TEST_F(VersionCoding, SendsAVersionWholeAfterALoss) {
  VersionCoder sender = coder(), receiver = coder();
  sender.begin_version(false);
  receiver.begin_version(false);
  send(sender, receiver);
  change(0.02);
  VersionCoder newcomer = coder();
  for (auto& message : present_) std::ranges::fill(message, std::byte{77});
  sender.begin_version(false);
  newcomer.begin_version(false);
  EXPECT_GT(send(sender, newcomer), plain_bytes() * 9 / 10);
}

TEST_F(VersionCoding, OfOtherElementsIsNeverLongerThanTheHeaders) {
  VersionCoder sender = coder(), receiver = coder();
  for (const bool has_last : {false, true}) {
    for (auto& message : now_) {
      for (std::byte& b : message) b = static_cast<std::byte>(random_());
    }
    sender.begin_version(has_last);
    receiver.begin_version(has_last);
    EXPECT_LT(send(sender, receiver), plain_bytes() + 100 * now_.size());
  }
}

TEST_F(VersionCoding, ThatTheLinkOutrunsIsNotUsed) {
  VersionCoder sender = coder({}, Pace(1e-6)), receiver = coder();
  std::size_t last = 0;
  for (int version = 0; version < 4; ++version) {
    change(0.02);
    sender.begin_version(version > 0);
    receiver.begin_version(version > 0);
    last = send(sender, receiver);
  }
  EXPECT_GT(last, plain_bytes() / 2);
}

TEST_F(VersionCoding, OfADamagedMessageIsRefused) {
  std::size_t refused = 0, tried = 0;
  for (const bool has_last : {false, true}) {
    VersionCoder sender = coder(), receiver = coder();
    sender.begin_version(false);
    receiver.begin_version(false);
    send(sender, receiver);
    change(0.02);
    sender.begin_version(has_last);
    receiver.begin_version(has_last);
    const CoderBytes coded = encoded(sender, 0, now_[0]);
    for (int mutant = 0; mutant < 150; ++mutant) {
      CoderBytes damaged = coded, plain = present_[0];
      switch (random_() % 4) {
        case 0:
          damaged.resize(random_() % damaged.size());
          break;
        case 1:
          damaged.resize(damaged.size() + 1 + random_() % 100);
          break;
        case 2:
          damaged[random_() % 64] ^= static_cast<std::byte>(1 + random_() % 255);
          break;
        default:
          damaged[random_() % damaged.size()] ^= static_cast<std::byte>(1 + random_() % 255);
      }
      ++tried;
      try {
        receiver.decode(0, damaged, plain);
        EXPECT_EQ(plain, now_[0]);  // a bit that does not matter
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::mismatch);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, tried * 9 / 10);
}

TEST_F(VersionCoding, OfChangesToAnotherVersionIsRefused) {
  VersionCoder sender = coder(), receiver = coder();
  sender.begin_version(false);
  receiver.begin_version(false);
  send(sender, receiver);
  change(0.02);
  sender.begin_version(true);
  const CoderBytes changes = encoded(sender, 0, now_[0]);
  CoderBytes plain = present_[0];
  EXPECT_THROW(receiver.decode(0, changes, plain), Error);  // it expects a whole one
  receiver.begin_version(true);
  plain[plain.size() - 1] ^= std::byte{1};  // has something else
  EXPECT_THROW(receiver.decode(0, changes, plain), Error);
  EXPECT_THROW(receiver.decode(99, changes, plain), Error);
  CoderBytes shorter(plain.size() - 2);
  EXPECT_THROW(receiver.decode(0, changes, shorter), Error);
}

}  // namespace
}  // namespace tutti::parallel::weights
