// Whether a rank is there, as other processes see it: it is killed, it leaves, its threads end, it
// forks.
#include "transport/host/life_word.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>

namespace tutti {
namespace {

using State = LifeWord::State;

class LifeOf : public testing::Test {
 protected:
  static constexpr std::size_t kWords = 4;
  LifeWord& word(std::size_t i = 0) { return reinterpret_cast<LifeWord*>(memory_->data())[i]; }
  /// A process that does this, and waits until it is killed.
  pid_t process(const std::function<void()>& body) {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      body();
      if (write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char c = 0;
    EXPECT_EQ(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return child;
  }
  static void end(pid_t child, int signal = SIGKILL) {
    kill(child, signal);
    waitpid(child, nullptr, 0);
  }

  std::shared_ptr<SharedMemory> memory_ =
      SharedMemory::create("life_word_test", kWords * sizeof(LifeWord));
};

TEST_F(LifeOf, AProcessEndsHoweverItEnds) {
  for (const int signal : {SIGKILL, SIGTERM, SIGABRT}) {
    SCOPED_TRACE(signal);
    memory_ = SharedMemory::create("life_word_test", kWords * sizeof(LifeWord));
    EXPECT_EQ(word().state(), State::unborn);
    const pid_t child = process([&] { new Life(word(), memory_); });
    EXPECT_EQ(word().state(), State::alive);
    end(child, signal);
    EXPECT_EQ(word().state(), State::ended);
    EXPECT_TRUE(is_gone(word().state()));
  }
}

TEST_F(LifeOf, ARankThatLeavesHasNotEnded) {
  const pid_t child = process([&] {
    new Life(word(0), memory_);
    auto first = std::make_unique<Life>(word(1), memory_);
    auto second = std::make_unique<Life>(word(2), memory_);
    new Life(word(3), memory_);
    first.reset();
    second.reset();
  });
  const auto states = [&] {
    return std::array{word(0).state(), word(1).state(), word(2).state(), word(3).state()};
  };
  EXPECT_EQ(states(), (std::array{State::alive, State::left, State::left, State::alive}));
  end(child);
  EXPECT_EQ(states(), (std::array{State::ended, State::left, State::left, State::ended}));
}

TEST_F(LifeOf, AThreadThatEndsIsNoProcessThatEnds) {
  std::unique_ptr<Life> life;
  std::thread([&] { life = std::make_unique<Life>(word(), memory_); }).join();
  EXPECT_EQ(word().state(), State::alive);
  life.reset();
  EXPECT_EQ(word().state(), State::left);
}

TEST_F(LifeOf, AForkIsNotTheRankAndHasALifeOfItsOwn) {
  const Life life(word(0), memory_);
  auto copied = std::make_unique<Life>(word(1), memory_);
  const pid_t child = process([&] {
    copied.reset();  // the parent has not left
    new Life(word(2), memory_);
  });
  EXPECT_EQ(word(1).state(), State::alive);
  EXPECT_EQ(word(2).state(), State::alive);
  end(child);
  EXPECT_EQ(word(0).state(), State::alive);
  EXPECT_EQ(word(1).state(), State::alive);
  EXPECT_EQ(word(2).state(), State::ended);
}

}  // namespace
}  // namespace tutti
