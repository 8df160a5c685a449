// Formulas as `tutti schedule list` prints them: "(p-1)max(I-W+|F-W|,0)". Factors may stand beside
// each other, letters are numbers that are given, and what follows " if" is no part of them.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti::test {

class Formula {
 public:
  Formula(std::string_view text, std::map<char, double> numbers)
      : rest_(text.substr(0, text.find(" if"))), numbers_(std::move(numbers)) {}

  double value() {
    const double result = sum();
    if (!rest_.empty()) fail();
    return result;
  }

 private:
  [[noreturn]] void fail() const { throw std::runtime_error("no formula: " + std::string(rest_)); }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail();
  }

  double sum() {
    double result = product();
    while (true) {
      if (take("+")) {
        result += product();
      } else if (take("-")) {
        result -= product();
      } else {
        return result;
      }
    }
  }
  double product() {
    double result = factor();
    while (true) {
      if (take("/")) {
        result /= factor();
      } else if (!rest_.empty() && !inside_ && rest_[0] == '|') {
        result *= factor();
      } else if (!rest_.empty() && (std::isalnum(rest_[0]) != 0 || rest_[0] == '(')) {
        result *= factor();
      } else {
        return result;
      }
    }
  }
  double factor() {
    if (take("max(")) {
      const double first = sum();
      expect(",");
      const double second = sum();
      expect(")");
      return std::max(first, second);
    }
    if (take("(")) {
      const double result = sum();
      expect(")");
      return result;
    }
    if (take("|")) {
      inside_ = true;
      const double result = std::abs(sum());
      inside_ = false;
      expect("|");
      return result;
    }
    if (rest_.empty()) fail();
    const char c = rest_[0];
    rest_.remove_prefix(1);
    if (std::isdigit(c) != 0) return c - '0';
    const auto number = numbers_.find(c);
    if (number == numbers_.end()) fail();
    return number->second;
  }

  std::string_view rest_;
  const std::map<char, double> numbers_;
  bool inside_ = false;  // of a pair of bars
};

}  // namespace tutti::test
