#include "transport/host/remark.h"

#include <algorithm>
#include <cstring>

namespace tutti {

void Remark::say(std::uint64_t number, std::string_view text) {
  text = text.substr(0, kMostText);
  // Threads of one rank may speak at once; the second one's words are then left out. acquire: these
  // words come after those of the thread that spoke before.
  std::uint64_t version = version_.load(std::memory_order_relaxed);
  if (version % 2 != 0 ||
      !version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire)) {
    return;
  }
  // release: a reader of any of these sees the odd version too.
  number_.store(number, std::memory_order_release);
  for (std::size_t i = 0; i < words_.size(); ++i) {
    std::uint64_t word = 0;
    const std::string_view rest = text.substr(std::min(text.size(), 8 * i), sizeof word);
    std::memcpy(&word, rest.data(), rest.size());
    words_[i].store(word, std::memory_order_release);
  }
  version_.store(version + 2, std::memory_order_release);
}

std::optional<Remark::Said> Remark::read() const {
  const std::uint64_t version = version_.load(std::memory_order_acquire);
  if (version == 0 || version % 2 != 0) return std::nullopt;
  Said said;
  said.number = number_.load(std::memory_order_acquire);
  std::array<std::uint64_t, kMostText / 8> words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = words_[i].load(std::memory_order_acquire);
  }
  if (version_.load(std::memory_order_relaxed) != version) return std::nullopt;
  const char* const text = reinterpret_cast<const char*>(words.data());
  said.text.assign(text, strnlen(text, kMostText));
  return said;
}

}  // namespace tutti
