#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>

namespace tutti::fuzz {
namespace {

/// Numbers at which parsers go wrong.
constexpr std::array<std::uint64_t, 14> kNumbers{0,
                                                 1,
                                                 2,
                                                 7,
                                                 255,
                                                 256,
                                                 65535,
                                                 65536,
                                                 0x7fffffff,
                                                 0x80000000,
                                                 0xffffffff,
                                                 0x100000000,
                                                 std::numeric_limits<std::int64_t>::max(),
                                                 std::numeric_limits<std::uint64_t>::max()};

class Mutation {
 public:
  Mutation(std::string& text, std::mt19937& random) : text_(text), random_(random) {}

  /// Below `end`, which is not 0. (std::uniform_int_distribution differs by library.)
  std::size_t below(std::size_t end) { return random_() % end; }

  void flip_bit() {
    if (text_.empty()) return;
    char& c = text_[below(text_.size())];
    c = static_cast<char>(static_cast<unsigned char>(c) ^ (1U << below(8)));
  }
  void set_byte() {
    if (!text_.empty()) text_[below(text_.size())] = static_cast<char>(below(256));
  }
  void insert_byte() {
    text_.insert(text_.begin() + static_cast<std::ptrdiff_t>(below(text_.size() + 1)),
                 static_cast<char>(below(256)));
  }
  void cut() {
    if (text_.empty()) return;
    const std::size_t at = below(text_.size());
    text_.erase(at, 1 + below(std::min<std::size_t>(text_.size() - at, 64)));
  }
  void truncate() {
    if (!text_.empty()) text_.resize(below(text_.size()));
  }
  void double_piece() { text_.insert(below(text_.size() + 1), piece_of(text_)); }
  void move_piece() {
    const std::string piece = piece_of(text_);
    if (piece.empty()) return;
    text_.erase(text_.find(piece), piece.size());
    text_.insert(below(text_.size() + 1), piece);
  }
  void splice(std::string_view other) { text_.insert(below(text_.size() + 1), piece_of(other)); }
  void set_number() {
    const std::size_t bytes = std::size_t{1} << below(4);
    if (text_.size() < bytes) return;
    std::uint64_t number = kNumbers[below(kNumbers.size())];
    if (below(2) == 0) number += below(16) - 8;
    std::memcpy(text_.data() + below(text_.size() - bytes + 1), &number, bytes);
  }
  void set_digits() {
    const std::size_t from = below(text_.size() + 1);
    const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
    const auto begin =
        std::find_if(text_.begin() + static_cast<std::ptrdiff_t>(from), text_.end(), is_digit);
    const auto end = std::find_if_not(begin, text_.end(), is_digit);
    if (begin == end) return;
    text_.replace(begin, end, std::to_string(kNumbers[below(kNumbers.size())]));
  }

 private:
  std::string piece_of(std::string_view text) {
    if (text.empty()) return {};
    const std::size_t at = below(text.size());
    return std::string(text.substr(at, 1 + below(64)));
  }

  std::string& text_;
  std::mt19937& random_;
};

}  // namespace

void mutate(std::string& input, std::span<const std::string> others, std::mt19937& random,
            std::size_t most) {
  Mutation m(input, random);
  for (std::size_t left = 1 + m.below(4); left > 0; --left) {
    switch (m.below(10)) {
      case 0:
        m.flip_bit();
        break;
      case 1:
        m.set_byte();
        break;
      case 2:
        m.insert_byte();
        break;
      case 3:
        m.cut();
        break;
      case 4:
        if (m.below(4) == 0) m.truncate();
        break;
      case 5:
        m.double_piece();
        break;
      case 6:
        m.move_piece();
        break;
      case 7:
        if (!others.empty()) m.splice(others[m.below(others.size())]);
        break;
      case 8:
        m.set_number();
        break;
      default:
        m.set_digits();
    }
  }
  if (input.size() > most) input.resize(most);
}

}  // namespace tutti::fuzz
