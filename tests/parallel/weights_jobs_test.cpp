// Weights from one job to another, with ranks that are threads: versions, layouts, types, jobs
// that come and go, and what is refused. weights_kill_test has jobs that die.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "parallel/weights/local_layout.h"
#include "parallel/weights/receiver.h"
#include "parallel/weights/sender.h"
#include "tests/parallel/weights_model.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"

namespace tutti::parallel::weights {
namespace {

constexpr std::uint64_t kRows = 96;

/// Runs body(its communicator) for each rank of a job, on a host of its own. The first error.
std::optional<Error> run_job(int ranks, const std::string& host,
                             const std::function<void(Communicator&)>& body) {
  Options options;
  options.host_id = host;
  options.timeout = std::chrono::seconds(20);
  std::vector<Communicator> comms = Communicator::create_local(ranks, options);
  std::vector<std::optional<Error>> errors(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(comms[r]);
      } catch (const Error& e) {
        errors[r] = e;
        comms[r].abort(e.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& e : errors) {
    if (e) return e;
  }
  return std::nullopt;
}

class WeightJobs : public testing::Test {
 protected:
  std::shared_ptr<Place> place() const { return folder_place(folder_.path("place")); }

  WeightsOptions options(bool always = true) const {
    WeightsOptions o;
    o.always = always;
    o.message_bytes = 64 << 10;
    o.patience = std::chrono::seconds(10);
    o.meeting = std::chrono::seconds(5);
    return o;
  }

  /// Sends versions `first` to `last`, each until somebody has it.
  void send(Communicator& job, std::uint64_t first, std::uint64_t last, const WeightsOptions& o,
            std::vector<Sent>* sent = nullptr) const {
    const reshard::Layout layout = test::senders_layout(job.size(), kRows);
    reshard::Buffers buffers(layout, job.rank());
    Sender sender(job, layout, place(), o);
    for (std::uint64_t v = first; v <= last; ++v) {
      test::fill_version(layout, job.rank(), buffers.pointers(), v);
      Sent one;
      for (int i = 0; one.receivers == 0 && i < 2000; ++i) {
        one = sender.send(v, buffers.sources());
        if (one.receivers == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (sent != nullptr && job.rank() == 0) sent->push_back(one);
    }
  }

  /// Receives `count` versions, the first of which is `first`.
  void receive(Communicator& job, std::uint64_t first, std::uint64_t count) const {
    const reshard::Layout layout = test::receivers_layout(job.size(), kRows);
    Receiver receiver(job, layout, place(), options());
    EXPECT_EQ(receiver.version(), 0U);
    for (std::uint64_t v = first; v < first + count; ++v) {
      EXPECT_EQ(receiver.receive(), v);
      EXPECT_EQ(receiver.version(), v);
      EXPECT_EQ(test::wrong_elements(layout, job.rank(), receiver.pointers(), v), 0U);
    }
  }

  /// Both jobs, side by side; no error of either.
  void exchange(int senders, int receivers, const WeightsOptions& o, std::vector<Sent>* sent,
                const std::string& receivers_host = "b") const {
    std::optional<Error> error;
    std::thread sending([&] {
      error = run_job(senders, "a", [&](Communicator& job) { send(job, 7, 12, o, sent); });
    });
    const auto other =
        run_job(receivers, receivers_host, [&](Communicator& job) { receive(job, 7, 6); });
    sending.join();
    EXPECT_FALSE(error) << error->what();
    EXPECT_FALSE(other) << other->what();
  }

  TemporaryFolder folder_;
};

TEST_F(WeightJobs, OfAnyNumbersOfRanksHaveTheSameWeights) {
  for (const auto& [senders, receivers] :
       std::vector<std::pair<int, int>>{{1, 1}, {2, 3}, {3, 2}, {4, 1}}) {
    std::vector<Sent> sent;
    exchange(senders, receivers, options(), &sent);
    ASSERT_EQ(sent.size(), 6U);
    for (const Sent& s : sent) EXPECT_EQ(s.receivers, receivers);
    // The first goes whole; then 2 % changes.
    EXPECT_GT(sent[0].coded, sent[0].plain / 2);
    EXPECT_LT(sent[5].coded, sent[5].plain / 8);
  }
}

TEST_F(WeightJobs, OnOneHostOrWithoutCodingHaveThemToo) {
  WeightsOptions plain = options(false);
  plain.ways = {.changes = false, .planes = false};
  for (const auto& [o, host] : std::vector<std::pair<WeightsOptions, std::string>>{
           {plain, "b"}, {options(), "a"}, {options(false), "b"}}) {
    exchange(2, 2, o, nullptr, host);
  }
}

TEST_F(WeightJobs, MayBeOfOtherTypes) {
  const reshard::Tensor wide{"w", DataType::float32, {64, 33}};
  const reshard::Tensor narrow{"w", DataType::bfloat16, {64, 33}};
  std::optional<Error> error;
  std::thread sending([&] {
    error = run_job(2, "a", [&](Communicator& job) {
      reshard::Layout layout(2);
      add_sharded(layout, wide, {.mesh = {2}, .placements = {reshard::shard(1)}});
      reshard::Buffers buffers(layout, job.rank());
      auto* const mine = static_cast<float*>(buffers.pointers()[0]);
      Sender sender(job, layout, place(), options());
      for (std::uint64_t v = 1; v <= 3; ++v) {
        std::fill_n(mine, layout.bytes_of(job.rank())[0] / 4, 1.0F + static_cast<float>(v));
        while (sender.send(v, buffers.sources()).receivers == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
    });
  });
  const auto other = run_job(1, "b", [&](Communicator& job) {
    reshard::Layout layout(1);
    add_replicated(layout, narrow, std::vector<int>{0});
    Receiver receiver(job, layout, place(), options());
    for (const std::uint16_t bits : {0x4000, 0x4040, 0x4080}) {  // 2, 3, 4
      receiver.receive();
      const auto* const got = static_cast<const std::uint16_t*>(receiver.pointers()[0]);
      for (std::size_t i = 0; i < 64 * 33; ++i) ASSERT_EQ(got[i], bits);
    }
  });
  sending.join();
  EXPECT_FALSE(error) << error->what();
  EXPECT_FALSE(other) << other->what();
}

// The program's memory is one of the two sets, and the same at every version.
TEST_F(WeightJobs, MayReceiveIntoMemoryOfTheProgram) {
  for (const bool coded : {true, false}) {
    std::optional<Error> error;
    std::thread sending([&] {
      error = run_job(2, "a", [&](Communicator& job) { send(job, 1, 5, options(coded)); });
    });
    const auto other = run_job(2, "b", [&](Communicator& job) {
      const reshard::Layout layout = test::receivers_layout(2, kRows);
      reshard::Buffers mine(layout, job.rank());
      Receiver receiver(job, layout, place(), mine.pointers(), options());
      EXPECT_EQ(receiver.pointers()[0], mine.pointers()[0]);
      for (std::uint64_t v = 1; v <= 5; ++v) {
        EXPECT_EQ(test::wrong_elements(layout, job.rank(), mine.pointers(), v - 1), 0U);
        EXPECT_EQ(receiver.receive(), v);
        EXPECT_EQ(receiver.version(), v);
        EXPECT_EQ(test::wrong_elements(layout, job.rank(), mine.pointers(), v), 0U);
      }
      EXPECT_EQ(receiver.resume(job), 5U);  // nobody has died: the same
      EXPECT_EQ(test::wrong_elements(layout, job.rank(), mine.pointers(), 5), 0U);
    });
    sending.join();
    EXPECT_FALSE(error) << error->what();
    EXPECT_FALSE(other) << other->what();
  }
  const auto refused = run_job(2, "b", [&](Communicator& job) {
    const reshard::Layout layout = test::receivers_layout(2, kRows);
    reshard::Buffers mine(layout, job.rank());
    std::vector<void*> targets(mine.pointers().begin(), mine.pointers().end());
    if (job.rank() == 1) targets[2] = nullptr;
    Receiver receiver(job, layout, place(), targets, options());
  });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::invalid_argument);
  EXPECT_CONTAINS(*refused, "receiver: w2 is null");
}

TEST_F(WeightJobs, DoNotWaitForReceiversThatAreNotThere) {
  const auto error = run_job(2, "a", [&](Communicator& job) {
    const reshard::Layout layout = test::senders_layout(2, kRows);
    reshard::Buffers buffers(layout, job.rank());
    Sender sender(job, layout, place(), options());
    EXPECT_EQ(sender.send(1, buffers.sources()).receivers, 0);
    EXPECT_THROW(sender.send(0, buffers.sources()), Error);
  });
  EXPECT_FALSE(error) << error->what();
}

TEST_F(WeightJobs, WaitForSendersUntilTheirPatienceEnds) {
  WeightsOptions o = options();
  o.patience = std::chrono::milliseconds(200);
  const auto error = run_job(2, "b", [&](Communicator& job) {
    Receiver receiver(job, test::receivers_layout(2, kRows), place(), o);
    receiver.receive();
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::timed_out);
  EXPECT_CONTAINS(*error, "no sending job has answered");
}

TEST_F(WeightJobs, GoOnWithTheNextSenders) {
  std::thread sending([&] {
    for (const std::uint64_t first : {1, 4}) {
      run_job(2, "a", [&](Communicator& job) { send(job, first, first + 2, options()); });
    }
  });
  const auto error = run_job(2, "b", [&](Communicator& job) { receive(job, 1, 6); });
  sending.join();
  EXPECT_FALSE(error) << error->what();
}

TEST_F(WeightJobs, DoNotMindWhatADeadJobHasLeftAtThePlace) {
  place()->write("answer", "tutti-weights-1 17 1\nnobody\n");
  for (const char* const left : {"", "nonsense", "tutti-weights-1 99 1\nno-handle\n",
                                 "tutti-weights-1 18446744073709551616 1\nx\n"}) {
    place()->write("ask", left);
    exchange(2, 1, options(), nullptr);
  }
}

TEST_F(WeightJobs, WhoseTensorsDifferHearOfIt) {
  std::optional<Error> error;
  std::thread sending(
      [&] { error = run_job(1, "a", [&](Communicator& job) { send(job, 1, 1, options()); }); });
  const auto other = run_job(2, "b", [&](Communicator& job) {
    reshard::Layout layout(2);
    add_replicated(layout, {"other", DataType::float32, {4}}, std::vector<int>{0, 1});
    Receiver(job, layout, place(), options()).receive();
  });
  sending.join();
  for (const auto& e : {error, other}) {
    ASSERT_TRUE(e);
    EXPECT_EQ(e->code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(*e, "'other'");
  }
}

TEST(MeetingCards, AreWhatTheyWereAndNothingElse) {
  const MeetingCard card{77, {"tutti2/a/1/0/x/y", "tutti2/b/2/0/x/y"}};
  const auto back = MeetingCard::from(card.text());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->number, 77U);
  EXPECT_EQ(back->handles, card.handles);
  for (const char* const text :
       {"", "tutti-weights-1", "tutti-weights-1 0 1 h", "tutti-weights-1 1 0",
        "tutti-weights-1 1 2 h", "tutti-weights-1 1 1 h h", "tutti-weights-2 1 1 h",
        "tutti-weights-1 -1 1 h", "tutti-weights-1 1 99999999999 h"}) {
    EXPECT_FALSE(MeetingCard::from(text)) << text;
  }
}

TEST(LocalLayouts, AreTheSameOnAllRanks) {
  const auto error = run_job(3, "a", [](Communicator& comm) {
    const auto rank = static_cast<std::uint64_t>(comm.rank());
    std::vector<LocalPiece> mine{
        {{"a name\nof two lines", DataType::bfloat16, {9, 4}}, {3 * rank, 0}, {3, 4}}};
    if (rank == 2) mine.push_back({{"", DataType::int64, {}}, {}, {}});
    const reshard::Layout layout = gather_layout(comm, mine);
    ASSERT_EQ(layout.tensors.size(), 2U);
    EXPECT_EQ(layout.ranks, 3);
    EXPECT_EQ(layout.tensors[0].name, "a name\nof two lines");
    ASSERT_EQ(layout.tensors[0].pieces.size(), 3U);
    EXPECT_EQ(layout.tensors[0].pieces[1].box, (reshard::Box{{3, 6}, {0, 4}}));
    EXPECT_EQ(layout.bytes_of(2), (std::vector<std::uint64_t>{24, 8}));
    EXPECT_EQ(layout.bytes_of(0), (std::vector<std::uint64_t>{24, 0}));
  });
  EXPECT_FALSE(error) << error->what();
}

TEST(LocalLayouts, OfDifferentShapesAreRefusedOnAllRanks) {
  const auto error = run_job(2, "a", [](Communicator& comm) {
    const auto rank = static_cast<std::uint64_t>(comm.rank());
    const std::vector<LocalPiece> mine{{{"w", DataType::float32, {9 + rank}}, {0}, {9}}};
    EXPECT_THROW(gather_layout(comm, mine), Error);
    const std::vector<LocalPiece> wrong{{{"w", DataType::float32, {9}}, {0}, {9, 9}}};
    EXPECT_THROW(gather_layout(comm, rank == 1 ? wrong : std::vector<LocalPiece>{}), Error);
  });
  EXPECT_FALSE(error) << error->what();
}

}  // namespace
}  // namespace tutti::parallel::weights
