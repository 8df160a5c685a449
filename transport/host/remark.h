// A sentence that one rank leaves in shared memory for the messages of the others. It may be
// rewritten while it is read, and the reader then finds none: it explains, and decides nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

class alignas(64) Remark {
 public:
  struct Said {
    std::uint64_t number = 0;  // what it is about
    std::string text;
  };
  static constexpr std::size_t kMostText = 480;  // bytes; the rest is left out

  /// `number` is not 0.
  void say(std::uint64_t number, std::string_view text);
  std::optional<Said> read() const;

 private:
  std::atomic<std::uint64_t> version_;  // odd while it is being written; 0: nothing was said
  std::atomic<std::uint64_t> number_;
  std::array<std::atomic<std::uint64_t>, kMostText / 8> words_;  // the text, filled up with zeros
};

}  // namespace tutti
