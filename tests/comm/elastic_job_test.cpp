// ElasticJob without its launcher, whose part the test plays: wrong uses, and what a rank hears
// when no round comes about. tests/tools/run_elastic_test.cpp has whole jobs.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <string>

#include "comm/elastic.h"
#include "comm/elastic_message.h"
#include "core/error.h"
#include "tests/support/contains.h"
#include "tests/support/variable.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

class ElasticJobAlone : public testing::Test {
 protected:
  ElasticJobAlone() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    rank_ = FileDescriptor(ends[0]);
    launcher_ = FileDescriptor(ends[1]);
    variable_.emplace(kElasticVariable, std::to_string(rank_.fd()));
  }

  void send(const ElasticMessage& message) const {
    const std::string text = encode(message);
    EXPECT_EQ(::send(launcher_.fd(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
  }
  /// The rank's next offer.
  ElasticMessage offer() const {
    std::string text(kLongestElasticMessage, '\0');
    const ssize_t got = ::recv(launcher_.fd(), text.data(), text.size(), 0);
    if (got <= 0) return {};
    const auto message = decode_elastic(std::string_view(text).substr(0, got));
    return message.value_or(ElasticMessage());
  }
  /// The error of `call`; none: it has not thrown.
  template <class Call>
  static std::optional<Error> error_of(Call&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }

 private:
  FileDescriptor rank_, launcher_;
  std::optional<test::Variable> variable_;
};

TEST_F(ElasticJobAlone, InsideOfAGroupItDoesNothing) {
  ElasticJob job;
  Communicator comm = Communicator::alone();
  std::optional<Error> asked, joined;
  group([&] {
    asked = error_of([&] { job.should_join(comm); });
    joined = error_of([&] { job.join(comm); });
  });
  ASSERT_TRUE(asked && joined);
  EXPECT_EQ(asked->code(), ErrorCode::invalid_usage);
  EXPECT_CONTAINS(asked->what(), "should_join() inside of a group()");
  EXPECT_EQ(joined->code(), ErrorCode::invalid_usage);
  EXPECT_CONTAINS(joined->what(), "join() inside of a group()");
  EXPECT_FALSE(comm.error());
  EXPECT_FALSE(job.should_join(comm));
}

TEST_F(ElasticJobAlone, ATimeoutSaysWhyTheNewestAttemptHasFailed) {
  std::string gone;
  {
    const Communicator other = Communicator::alone();
    gone = other.handle();
  }
  ElasticJob job;
  auto launcher = std::async(std::launch::async, [&] {
    const ElasticMessage first = offer();
    EXPECT_EQ(first.number, 1U);
    send({ElasticMessage::Kind::members, 1, {first.handles.at(0), gone}});
    EXPECT_EQ(offer().number, 2U);  // and no list comes for it
  });
  Communicator comm;
  Options options;
  options.rendezvous_timeout = 1500ms;
  const auto error = error_of([&] { job.join(comm, options); });
  launcher.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::timed_out);
  EXPECT_CONTAINS(error->what(), "the newest of which is number 2: round 1 failed: reconfigure()");
  EXPECT_CONTAINS(error->what(), "is gone");
  EXPECT_EQ(job.joined(), 0U);
}

TEST_F(ElasticJobAlone, ATimeoutWithoutAnAttemptSaysSo) {
  ElasticJob job;
  Communicator comm;
  Options options;
  options.rendezvous_timeout = 50ms;
  const auto error = error_of([&] { job.join(comm, options); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::timed_out);
  EXPECT_CONTAINS(error->what(), "number 1: some rank that is there has not called join()");
}

}  // namespace
}  // namespace tutti
