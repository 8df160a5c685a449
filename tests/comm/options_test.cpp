// What a communicator is told: nonsense is refused by the field's name however one is made, and a
// time-out as long as can be is not over at once.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using test::error_of;
using test::run_thread_ranks;

struct Nonsense {
  std::string says;  // the error does
  std::function<void(Options&)> set;
};

const std::vector<Nonsense>& nonsense() {
  static const std::vector<Nonsense> all = {
      {"Options::timeout is -1 ns; expected at least 0", [](Options& o) { o.timeout = -1ns; }},
      {"Options::report_after is -5000000000 ns; expected at least 0",
       [](Options& o) { o.report_after = -5s; }},
      {"Options::rendezvous_timeout is 0 ns; expected at least 1ms",
       [](Options& o) { o.rendezvous_timeout = 0ns; }},
      {"Options::rendezvous_timeout is -9223372036854775808 ns",
       [](Options& o) { o.rendezvous_timeout = nanoseconds::min(); }},
      {"\"sing\"", [](Options& o) { o.algorithm = "sing"; }},
      {"Options::slots is 1; expected from 2 to 4096, or 0", [](Options& o) { o.slots = 1; }},
      {"Options::slots is 1152921504606846976;",
       [](Options& o) { o.slots = std::size_t{1} << 60; }},
      {"Options::slots is 18446744073709551615;", [](Options& o) { o.slots = SIZE_MAX; }},
      {"Options::slot_bytes is 1; expected from 1K to 1G", [](Options& o) { o.slot_bytes = 1; }},
      {"Options::slot_bytes is 1073741825;",
       [](Options& o) { o.slot_bytes = (std::size_t{1} << 30) + 1; }},
      {"\"magic\"", [](Options& o) { o.cuda_protocols = "ll,magic"; }},
      {"Options::gpu is -2;", [](Options& o) { o.gpu = -2; }},
  };
  return all;
}

/// `make` refuses all of it.
void expect_refused(const std::function<void(const Options&)>& make) {
  for (const Nonsense& n : nonsense()) {
    Options options;
    n.set(options);
    const Error e = error_of([&] { make(options); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << n.says;
    EXPECT_NE(std::string(e.what()).find(n.says), std::string::npos) << e.what();
  }
}

/// What a program may set, and none of it as it is by default.
Options unusual() {
  Options o;
  o.timeout = 7s;
  o.report_after = 3s;
  o.rendezvous_timeout = 11s;
  o.algorithm = "ring";
  o.quorum = true;
  o.slots = 6;
  o.slot_bytes = 8192;
  o.cuda_protocols = "simple";
  o.cuda_blocks = 3;
  return o;
}

void expect_unusual(const Options& found) {
  const Options o = unusual();
  EXPECT_EQ(found.timeout, o.timeout);
  EXPECT_EQ(found.report_after, o.report_after);
  EXPECT_EQ(found.rendezvous_timeout, o.rendezvous_timeout);
  EXPECT_EQ(found.algorithm, o.algorithm);
  EXPECT_EQ(found.quorum, o.quorum);
  EXPECT_EQ(found.slots, o.slots);
  EXPECT_EQ(found.slot_bytes, o.slot_bytes);
  EXPECT_EQ(found.cuda_protocols, o.cuda_protocols);
  EXPECT_EQ(found.cuda_blocks, o.cuda_blocks);
}

TEST(Options, AreThoseOfTheCommunicatorThatANewOneIsMadeOf) {
  std::vector<Communicator> ranks = Communicator::create_local(2, unusual());
  const UniqueId more = make_unique_id();
  const std::vector<std::string> handles{ranks[0].handle(), ranks[1].handle()};
  std::vector<std::thread> threads;
  for (Communicator& c : ranks) {
    threads.emplace_back([&] {
      expect_unusual(c.options());
      Communicator part = c.split(0, c.rank());
      expect_unusual(part.options());
      expect_unusual(part.shrink({}).options());
      const Communicator grown = c.grow(more, 3);
      expect_unusual(grown.options());
      // Unless others are given.
      Options others = c.options();
      others.timeout = 5s;
      EXPECT_EQ(c.split(0, c.rank(), others).options().timeout, 5s);
      EXPECT_EQ(c.shrink({}, others).options().timeout, 5s);
      expect_unusual(c.reconfigure(handles, 1).options());
    });
  }
  Options own;
  own.timeout = 9s;
  const Communicator newcomer = Communicator::create(more, 2, 3, own);
  EXPECT_EQ(newcomer.options().timeout, 9s);
  for (std::thread& t : threads) t.join();
}

TEST(Options, ATimeoutOfTheWorldEndsACallOfItsPart) {
  Options quick;
  quick.timeout = 200ms;
  std::vector<Communicator> ranks = Communicator::create_local(2, quick);
  std::vector<std::thread> threads;
  for (Communicator& c : ranks) {
    threads.emplace_back([&] {
      Communicator part = c.split(0, c.rank());
      if (c.rank() == 1) {
        while (!part.error()) std::this_thread::sleep_for(5ms);
        return;
      }
      EXPECT_EQ(error_of([&] { part.barrier(); }).code(), ErrorCode::timed_out);
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Options, AreCheckedHoweverACommunicatorIsMade) {
  const Environment alone({});
  expect_refused([](const Options& o) { Communicator::from_environment(o); });
  expect_refused([](const Options& o) { Communicator::create(make_unique_id(), 0, 1, o); });
  expect_refused([](const Options& o) { Communicator::create_local(2, o); });
  expect_refused([](const Options& o) { Communicator::create_local({Options(), o}); });
  run_thread_ranks(2, [](Communicator& c) {
    expect_refused([&](const Options& o) { c.split(0, 0, o); });
    expect_refused([&](const Options& o) { c.shrink({}, o); });
    c.barrier();  // nothing has begun
  });
}

TEST(Options, CheckedBeforeTheOtherRanksAreLookedFor) {
  const Environment job({{"TUTTI_RANK", "1"}, {"TUTTI_SIZE", "2"}});
  expect_refused([](const Options& o) { Communicator::from_environment(o); });
}

TEST(Options, ATransportThatDoesNotExistIsRefusedOnOneHostToo) {
  const Environment setting{{{"TUTTI_TRANSPORT", "tpc"}}};
  const Error e = error_of([] { Communicator::create_local(2); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(e.what()).find("TUTTI_TRANSPORT=tpc: it can be "), std::string::npos)
      << e.what();
}

TEST(Options, ASettingThatIsNotUsedIsReadNevertheless) {
  for (const std::string name :
       {"TUTTI_TCP_STREAMS", "TUTTI_VERBS_TIMEOUT", "TUTTI_PEER_TIMEOUT"}) {
    const Environment setting({std::pair(name, std::string("abc"))});
    const Error e = error_of([] { Communicator::create_local(2); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << name;
    EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
  }
}

TEST(Options, TheLongestTimeoutsAreNotOverAtOnce) {
  Options options;
  options.timeout = options.report_after = options.rendezvous_timeout = nanoseconds::max();
  run_thread_ranks(3, options, [&](Communicator& c) {
    c.barrier();
    Communicator part = c.split(0, -c.rank(), options);
    part.barrier();
    c.shrink({}, options).barrier();
  });
  MeetingPlace place;
  place.timeout = nanoseconds::max();
  const UniqueId id = make_unique_id(place);
  Communicator::create(id, 0, 1, options).barrier();
}

TEST(Options, WhoAsksForEncryptionHasItOrIsRefused) {
  for (const int asks : {0, 1}) {
    std::vector<Options> each(2);
    for (std::size_t r = 0; r < each.size(); ++r) each[r].host_id = std::to_string(r);
    each[static_cast<std::size_t>(asks)].encrypt = true;
    if (asks == 0) {  // rank 0's counts
      std::vector<Communicator> comms = Communicator::create_local(each);
      std::jthread other([&] { comms[1].barrier(); });
      comms[0].barrier();
    } else {
      const Error e = error_of([&] { Communicator::create_local(each); });
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(e.what()).find("rank 1 has set TUTTI_ENCRYPT=1, but rank 0"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST(Options, AMeetingPlaceNeedsATimeToo) {
  for (const nanoseconds timeout : {nanoseconds(0), nanoseconds(-1)}) {
    MeetingPlace place;
    place.timeout = timeout;
    const Error e = error_of([&] { make_unique_id(place); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("MeetingPlace::timeout is "), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tutti
