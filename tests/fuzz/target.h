// A fuzz target: a parser of what others wrote, what is fed to it, and what holds whatever comes.
// Each target is a file of targets/. Two programs run them: fuzz_test, a part of the default tests,
// with the target's own seeds and some thousand mutants of them (mutate.h); and fuzz_NAME under
// libFuzzer
// (`make fuzz`), instrumented, for as long as one likes. Sanitizers see wrong accesses; what a
// target itself requires is beyond that.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace tutti::fuzz {

struct Target {
  std::string_view name;
  /// One input. Throws where something does not hold.
  void (*run)(std::string_view input);
  /// Inputs to begin with, as Tutti's own writers make them. The first ones are right.
  std::vector<std::string> (*seeds)();
};

/// All that this program has, by name.
std::vector<Target> targets();

/// Adds a target. One in a file.
struct Registered {
  explicit Registered(const Target& target);
};

/// Throws unless `holds`; `what` says what has to.
inline void require(bool holds, std::string_view what) {
  if (!holds) throw std::logic_error("does not hold: " + std::string(what));
}

/// Whether `parse()` accepts its input. It may refuse it with this code, and in no other way.
template <std::invocable Parse>
bool accepts(ErrorCode refusal, Parse&& parse) {
  try {
    parse();
    return true;
  } catch (const Error& error) {
    require(error.code() == refusal, std::string("it is refused as it may be: ") + error.what());
    require(*error.what() != 0, "an error says something");
    return false;
  }
}

/// Takes an input apart. What is missing at its end counts as zeros.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  std::string_view take(std::size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  template <typename T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T result{};
    const std::string_view bytes = take(sizeof result);
    if (!bytes.empty()) std::memcpy(static_cast<void*>(&result), bytes.data(), bytes.size());
    return result;
  }
  unsigned byte() { return value<unsigned char>(); }

 private:
  std::string_view rest_;
};

template <typename T>
requires(std::is_trivially_copyable_v<T> &&
         !std::convertible_to<const T&, std::span<const std::byte>>) std::string
    text_of_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string text_of_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace tutti::fuzz
