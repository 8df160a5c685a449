// Answers that one rank of a host finds for all of them: which algorithm is the fastest for a call,
// say. If all of many ranks on few cores searched, the search would take as many times longer. The
// first rank that asks a question finds the answer. The others wait for it, in shared memory, and
// find it themselves if that takes long. So a question must be one to which all ranks find the same
// answer.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/background.h"

namespace tutti {

class Findings {
 public:
  /// The answer, from 1 on, to `question` (not 0); 0: this rank is to find it, and to say() it. So
  /// many `ranks` may ask at once.
  std::uint8_t ask(std::uint64_t question, std::size_t ranks) {
    using Clock = std::chrono::steady_clock;
    const auto patience = among(ranks, std::chrono::milliseconds(500));
    std::atomic<std::uint64_t>* const place = place_of(question);
    if (place == nullptr) return 0;
    std::uint64_t found = 0;
    if (place->compare_exchange_strong(found, stored(question, 0), std::memory_order_relaxed)) {
      return 0;
    }
    // Nothing but the answer itself is read, so no order is needed.
    for (const auto begun = Clock::now();
         ((found = place->load(std::memory_order_relaxed)) & kAnswer) == 0 &&
         Clock::now() - begun < patience;) {
      pause_in_wait(begun, ranks);
    }
    return static_cast<std::uint8_t>(found & kAnswer);
  }
  void say(std::uint64_t question, std::uint8_t answer) {
    if (auto* const place = place_of(question)) {
      place->store(stored(question, answer), std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::size_t kPlaces = 64;
  static constexpr std::uint64_t kAnswer = 0xff;
  static std::uint64_t stored(std::uint64_t question, std::uint8_t answer) {
    return question << 8 | answer;
  }

  /// The one that has the question, or a free one; null: there is none.
  std::atomic<std::uint64_t>* place_of(std::uint64_t question) {
    for (std::size_t i = 0; i < kPlaces; ++i) {
      auto& word = words_[(question + i) % kPlaces];
      const std::uint64_t found = word.load(std::memory_order_relaxed);
      if (found == 0 || found >> 8 == stored(question, 0) >> 8) return &word;
    }
    return nullptr;
  }

  // A question (its lower 56 bits) and its answer; 0: free.
  std::array<std::atomic<std::uint64_t>, kPlaces> words_;
};

}  // namespace tutti
