// Walking through a text line by line and word by word, for the parsers of plans and of pipeline
// schedules. Errors give the place, the expected text and the actual one. The text may come from a
// stranger: every number has bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

/// Whether this is one word, as names of algorithms and schedules are: up to 64 letters, digits,
/// '_', '-' and '.'.
bool is_word(std::string_view text);

/// The rest of one line. Refers to the text.
class Line {
 public:
  /// `text` is the name of the text in errors: "plan text".
  Line(std::string_view content, std::size_t number, std::string_view text)
      : rest_(content), number_(number), text_(text) {
    skip_space();
  }

  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  /// Takes `token` if it comes next.
  bool take(std::string_view token);
  void expect(std::string_view token);
  /// The letters, digits and marks that come next; may be empty.
  std::string_view word();
  std::uint32_t number(std::string_view what, std::uint64_t least, std::uint64_t most) {
    return static_cast<std::uint32_t>(wide_number(what, least, most));
  }
  std::uint64_t wide_number(std::string_view what, std::uint64_t least, std::uint64_t most);
  void expect_end();

  // These throw Error(invalid_argument).
  [[noreturn]] void fail(std::string_view expected) const { fail_at(expected, rest_); }
  [[noreturn]] void fail_at(std::string_view expected, std::string_view found) const;
  [[noreturn]] void complain(std::string_view what) const;

 private:
  void skip_space();

  std::string_view rest_;
  std::size_t number_;
  std::string_view text_;
};

/// The lines of a text that have more than a comment, which begins with #.
class Lines {
 public:
  Lines(std::string_view content, std::string_view text) : content_(content), text_(text) {}

  std::optional<Line> next();
  /// Throws Error(invalid_argument) if there is none.
  Line expect_next(std::string_view expected);
  /// The line after the last one, for errors about missing lines.
  Line at_end() const { return {"", number_ + 1, text_}; }

 private:
  std::string_view content_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t number_ = 0;
};

}  // namespace tutti
