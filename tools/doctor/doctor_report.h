// The output of `tutti doctor`: sections of findings, with marks on problems.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tools/terminal.h"

namespace tutti {

class DoctorReport {
 public:
  void section(std::string_view name) { fmt::print("{}{}\n", sections_++ == 0 ? "" : "\n", name); }
  void good(std::string_view what, const std::string& how) {
    print_wrapped(fmt::format("  {:<22} ", what), how);
  }
  /// `advice`: what to do about it; "": `how` says it.
  void bad(std::string_view what, const std::string& how, const std::string& advice = "") {
    ++troubles_;
    print_wrapped(fmt::format("! {:<22} ", what), how);
    if (!advice.empty()) print_wrapped(fmt::format("  {:<22} -> ", ""), advice);
  }
  int troubles() const { return troubles_; }

 private:
  int sections_ = 0, troubles_ = 0;
};

}  // namespace tutti
