// A program's locale in which a space stands between thousands, as in French: streams then read
// "12 345" as one number, and write one so.
#pragma once

#include <locale>
#include <string>

namespace tutti::test {

class GroupingLocale {
 public:
  GroupingLocale()
      : before_(std::locale::global(std::locale(std::locale::classic(), new Punctuation))) {}
  ~GroupingLocale() { std::locale::global(before_); }
  GroupingLocale(const GroupingLocale&) = delete;
  GroupingLocale& operator=(const GroupingLocale&) = delete;

 private:
  struct Punctuation : std::numpunct<char> {
    char do_thousands_sep() const override { return ' '; }
    char do_decimal_point() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::locale before_;
};

}  // namespace tutti::test
