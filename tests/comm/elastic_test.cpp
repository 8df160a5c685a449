// Communicators of processes that die and are replaced, over and over: at random points of calls,
// between them, and while the ranks form the next communicator. Survivors never wait for ever, all
// hear of the same rank, the next communicator has right data, and a rank that has lived through
// many of them has no more descriptors, threads and memory than at first.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/elastic_process.h"
#include "tests/support/leftovers.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using tutti::test::number_from;
using tutti::test::RankProcess;

struct Answer {
  std::string what, code, text;  // "DONE", "FAILED", "LOST" or "RIGHT"; the error's
  int rank = -1;                 // the error's
  long microseconds = 0;         // that it took: of DONE
  std::chrono::milliseconds after{};
};
Answer answer_in(const std::string& line) {
  Answer answer;
  std::istringstream words(line);
  words >> answer.what;
  if (answer.what == "DONE") {
    int number = 0, rank = 0, size = 0;
    words >> number >> rank >> size >> answer.microseconds;
  } else if (answer.what == "FAILED" || answer.what == "LOST") {
    words >> answer.code >> answer.rank;
    std::getline(words, answer.text);
  }
  return answer;
}

struct Usage {
  long descriptors = 0, threads = 0, maps = 0, kilobytes = 0;
};

class Elastic : public testing::Test {
 protected:
  using Ranks = std::vector<std::shared_ptr<RankProcess>>;

  static std::shared_ptr<RankProcess> start() { return std::make_shared<RankProcess>(); }
  static Ranks start(int count) {
    Ranks ranks;
    for (int r = 0; r < count; ++r) ranks.push_back(start());
    return ranks;
  }
  static std::size_t hosts_are_apart() {
    return number_from("TUTTI_TEST_RANKS_PER_HOST", 0) > 0 ? 1 : 0;
  }

  /// "number ms handle...", for these ranks.
  std::string call_for(const Ranks& ranks, std::chrono::milliseconds limit) {
    std::string call = fmt::format("reconfigure {} {}", ++number_, limit.count());
    for (const auto& rank : ranks) {
      const std::string said = rank->ask("handle");
      EXPECT_TRUE(said.starts_with("HANDLE ")) << said;
      call += " " + said.substr(std::min<std::size_t>(said.size(), 7));
    }
    return call;
  }
  static void tell(const Ranks& ranks, const std::string& line) {
    for (const auto& rank : ranks) rank->say(line);
  }
  static std::vector<Answer> answers(const Ranks& ranks, Clock::time_point begun) {
    std::vector<Answer> all;
    for (const auto& rank : ranks) {
      const std::string line = rank->hear();
      if (line.empty()) ADD_FAILURE() << "rank process " << rank->pid() << " hangs, or has ended";
      all.push_back(answer_in(line));
      all.back().after =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
      if (all.back().what == "WRONG") ADD_FAILURE() << line;
    }
    return all;
  }

  /// They form the next communicator, which has right data.
  void form(const Ranks& ranks) {
    const std::string call = call_for(ranks, 20s);
    tell(ranks, call);
    const auto done = answers(ranks, Clock::now());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ASSERT_EQ(done[r].what, "DONE")
          << "number " << number_ << ", rank " << r << " of " << ranks.size() << ": "
          << done[r].code << " " << done[r].rank << done[r].text;
      slowest_ = std::max(slowest_, done[r].microseconds);
      usual_ = done[r].microseconds;
    }
    expect_right(ranks);
  }
  void expect_right(const Ranks& ranks) {
    tell(ranks, fmt::format("check {}", number_));
    const auto right = answers(ranks, Clock::now());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ASSERT_EQ(right[r].what, "RIGHT") << "number " << number_ << ", rank " << r << ": "
                                        << right[r].code << " " << right[r].rank << right[r].text;
    }
  }

  /// Rank `lost` of `ranks` has died while they formed a communicator. Each of the others has
  /// failed, or hears of it in the first call.
  void expect_lost(const Ranks& ranks, std::size_t lost, Clock::time_point begun) {
    Ranks others = without(ranks, lost), have_it;
    const auto said = answers(others, begun);
    for (std::size_t r = 0; r < others.size(); ++r) {
      slowest_failure_ = std::max(slowest_failure_, said[r].after);
      EXPECT_LT(said[r].after, 5s) << said[r].what;
      if (said[r].what == "DONE") {
        have_it.push_back(others[r]);
      } else {
        expect_names(said[r], lost);
      }
    }
    if (!have_it.empty() && have_it.size() < others.size()) ++mixed_;
    tell(have_it, "check 1");
    const auto asked = Clock::now();
    for (const Answer& answer : answers(have_it, asked)) {
      EXPECT_EQ(answer.what, "LOST");
      EXPECT_LT(answer.after, 5s) << answer.what;
      expect_names(answer, lost);
    }
  }
  void expect_names(const Answer& answer, std::size_t lost) {
    ++codes_[answer.what + " " + answer.code];
    // A rank that waits for the others hears of those that have given up, perhaps before it sees
    // why; and the first rank may die before all have heard which rank is which.
    const bool right = (answer.code == "peer_lost" &&
                        (answer.rank == static_cast<int>(lost) || lost == 0 || answer.rank < 0)) ||
                       (lost == 0 && answer.code == "system");
    EXPECT_TRUE(right) << "rank " << lost << " died, but: " << answer.what << " " << answer.code
                       << " " << answer.rank << answer.text;
  }

  static Ranks without(Ranks ranks, std::size_t gone) {
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(gone));
    return ranks;
  }
  std::chrono::microseconds any_moment(long limit) {
    return std::chrono::microseconds(
        std::uniform_int_distribution<long>(0, std::max(limit, 1L))(random_));
  }
  std::size_t one_of(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }
  static Usage usage_of(RankProcess& rank) {
    Usage usage;
    std::string word;
    std::istringstream(rank.ask("usage")) >> word >> usage.descriptors >> usage.threads >>
        usage.maps >> usage.kilobytes;
    return usage;
  }

  void cycle(Ranks& ranks, const RankProcess* elder);
  void kill_in_a_call(const Ranks& ranks, std::size_t victim);
  void kill_in_reconfigure(const Ranks& ranks, std::size_t victim);
  void stop_in_reconfigure(const Ranks& ranks, std::size_t stopped);

  std::uint64_t number_ = 0;
  std::mt19937 random_{static_cast<unsigned>(number_from("TUTTI_TEST_SEED", 1))};
  long usual_ = 2000, slowest_ = 0;  // of reconfigure(), in microseconds
  std::chrono::milliseconds slowest_failure_{};
  int mixed_ = 0;  // times that some ranks had it and others did not
  std::map<std::string, int> codes_;
};

void Elastic::kill_in_a_call(const Ranks& ranks, std::size_t victim) {
  tell(ranks, "calls");
  for (const auto& rank : ranks) ASSERT_EQ(rank->hear(), "CALLING");
  std::this_thread::sleep_for(any_moment(3000));
  ranks[victim]->die();
  const auto died = Clock::now();
  for (const Answer& answer : answers(without(ranks, victim), died)) {
    EXPECT_EQ(answer.what, "LOST");
    EXPECT_LT(answer.after, 3s);
    expect_names(answer, victim);
  }
}

void Elastic::kill_in_reconfigure(const Ranks& ranks, std::size_t victim) {
  const std::string call = call_for(ranks, 20s);
  tell(ranks, call);
  std::this_thread::sleep_for(any_moment(usual_ * 5 / 4));
  ranks[victim]->die();
  expect_lost(ranks, victim, Clock::now());
}

void Elastic::stop_in_reconfigure(const Ranks& ranks, std::size_t stopped) {
  const std::string call = call_for(ranks, 700ms);
  const Ranks others = without(ranks, stopped);
  tell(ranks, call);
  const auto begun = Clock::now();
  std::this_thread::sleep_for(any_moment(usual_));
  kill(ranks[stopped]->pid(), SIGSTOP);
  const auto said = answers(others, begun);
  kill(ranks[stopped]->pid(), SIGCONT);
  const auto its_own = answers({ranks[stopped]}, Clock::now());
  for (const Answer& answer : said) {
    EXPECT_LT(answer.after, 5s);
    if (answer.what == "DONE") continue;
    ++codes_["stopped: " + answer.what + " " + answer.code];
    EXPECT_EQ(answer.what, "FAILED");
    // The others give up when the first of them does.
    EXPECT_TRUE(answer.code == "timed_out" || answer.code == "peer_lost") << answer.text;
  }
  // Nobody is left in a communicator on which others have given up. (Hosts decide for themselves
  // when the time is up; then the first call fails.)
  Ranks have_it;
  for (std::size_t r = 0; r < others.size(); ++r) {
    if (said[r].what == "DONE") have_it.push_back(others[r]);
  }
  if (its_own.front().what == "DONE") have_it.push_back(ranks[stopped]);
  if (!have_it.empty() && have_it.size() < ranks.size()) {
    EXPECT_EQ(hosts_are_apart(), 1U) << its_own.front().what << its_own.front().text;
    tell(have_it, "check 1");
    for (const Answer& answer : answers(have_it, Clock::now())) EXPECT_EQ(answer.what, "LOST");
  }
  EXPECT_TRUE(its_own.front().what == "DONE" || its_own.front().what == "FAILED");
}

/// One rank dies, the others go on, and a new one comes.
void Elastic::cycle(Ranks& ranks, const RankProcess* elder) {
  std::size_t victim = 0;
  do {
    victim = one_of(ranks.size());
  } while (ranks[victim].get() == elder);
  const std::size_t kind = one_of(10);
  SCOPED_TRACE(fmt::format("number {}, kind {}, victim {}", number_, kind, victim));
  if (kind < 3) {
    kill_in_a_call(ranks, victim);
  } else if (kind < 4) {
    ranks[victim]->die();
  } else if (kind < 6) {
    tell(ranks, "start");
    for (const auto& rank : ranks) ASSERT_EQ(rank->hear(), "STARTED");
    std::this_thread::sleep_for(any_moment(1000));
    ranks[victim]->die();
  } else {
    if (kind > 7) {
      tell(ranks, "start");
      for (const auto& rank : ranks) ASSERT_EQ(rank->hear(), "STARTED");
    }
    Ranks next = ranks;
    std::shuffle(next.begin(), next.end(), random_);
    const auto its_place = std::find(next.begin(), next.end(), ranks[victim]) - next.begin();
    kill_in_reconfigure(next, static_cast<std::size_t>(its_place));
  }
  if (HasFailure()) return;
  ranks = without(ranks, victim);
  std::shuffle(ranks.begin(), ranks.end(), random_);
  form(ranks);
  if (HasFailure()) return;
  if (one_of(5) == 0) {  // a newcomer that dies at once
    Ranks more = ranks;
    const auto place = one_of(more.size() + 1);
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(place), start());
    kill_in_reconfigure(more, place);
    if (HasFailure()) return;
  }
  ranks.insert(ranks.begin() + static_cast<std::ptrdiff_t>(one_of(ranks.size() + 1)), start());
  if (one_of(20) == 0) stop_in_reconfigure(ranks, one_of(ranks.size()));
  if (HasFailure()) return;
  if (one_of(2) == 0) {
    tell(ranks, "start");
    for (const auto& rank : ranks) ASSERT_EQ(rank->hear(), "STARTED");
  }
  form(ranks);
}

TEST_F(Elastic, TheFirstRankOfTheListDiesWhileTheyMeet) {
  Ranks ranks = start(3);
  form(ranks);
  for (int i = 0; i < 5; ++i) {
    kill_in_reconfigure(ranks, 0);
    ranks = without(ranks, 0);
    form(ranks);
    ranks.push_back(start());
    form(ranks);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(Elastic, ANewcomerThatDiesAtOnceIsNamed) {
  Ranks ranks = start(2);
  form(ranks);
  for (const long late : {0L, 500L, 2000L}) {
    for (const std::size_t place : {0UL, 1UL, 2UL}) {
      Ranks more = ranks;
      more.insert(more.begin() + static_cast<std::ptrdiff_t>(place), start());
      usual_ = late;
      kill_in_reconfigure(more, place);
      form(ranks);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_F(Elastic, OneOfStrangersDiesWhileTheyMeet) {
  for (int i = 0; i < 8; ++i) {
    const Ranks ranks = start(4);
    const auto victim = one_of(4);
    SCOPED_TRACE(fmt::format("round {}, victim {}", i, victim));
    usual_ = 6000;
    kill_in_reconfigure(ranks, victim);
    form(without(ranks, victim));
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(Elastic, ARankThatIsStoppedIsWaitedForUntilTheTimeIsUp) {
  Ranks ranks = start(3);
  form(ranks);
  for (const std::size_t stopped : {0UL, 2UL}) {
    const std::string call = call_for(ranks, 700ms);
    kill(ranks[stopped]->pid(), SIGSTOP);
    tell(ranks, call);
    const auto said = answers(without(ranks, stopped), Clock::now());
    for (const Answer& answer : said) {
      EXPECT_EQ(answer.code, "timed_out") << answer.what << answer.text;
      EXPECT_GE(answer.after, 500ms);
      EXPECT_LT(answer.after, 4s);
    }
    kill(ranks[stopped]->pid(), SIGCONT);
    EXPECT_EQ(answers({ranks[stopped]}, Clock::now()).front().what, "FAILED");
    expect_right(ranks);  // the old one stands
    form(ranks);
    stop_in_reconfigure(ranks, stopped);
    form(ranks);
  }
}

TEST_F(Elastic, RanksComeAndGoAndLeaveNothingBehind) {
  const int cycles = number_from("TUTTI_TEST_CYCLES", 25);
  const std::size_t before = tutti::test::leftovers();
  {
    Ranks ranks = start(4);
    const auto elder = ranks.front();
    form(ranks);
    Usage first;
    const int settled = std::min(10, cycles / 2);
    for (int i = 0; i < cycles; ++i) {
      cycle(ranks, elder.get());
      ASSERT_FALSE(HasFailure()) << "cycle " << i << " of seed "
                                 << number_from("TUTTI_TEST_SEED", 1);
      if (i == settled) first = usage_of(*elder);
    }
    const Usage last = usage_of(*elder);
    fmt::print(
        "{} cycles, {} reconfigurations, slowest {} ms, slowest failure {} ms, {} had it and "
        "others not; descriptors {} -> {}, threads {} -> {}, maps {} -> {}, memory {} -> {} KB\n",
        cycles, number_, slowest_ / 1000, slowest_failure_.count(), mixed_, first.descriptors,
        last.descriptors, first.threads, last.threads, first.maps, last.maps, first.kilobytes,
        last.kilobytes);
    for (const auto& [what, times] : codes_) fmt::print("  {} times {}\n", times, what);
    EXPECT_LE(last.descriptors, first.descriptors + 6);
    EXPECT_LE(last.threads, first.threads + 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
    EXPECT_LE(last.maps, first.maps + 30);
    EXPECT_LE(last.kilobytes, first.kilobytes + 8192 + 8 * cycles);
#endif
  }
  EXPECT_TRUE(tutti::test::nothing_is_left(before));
}

}  // namespace
