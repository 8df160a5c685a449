// Expects that a text has a part: a message, or the output of a program.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace tutti::test {

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in:\n" << text;
}
inline testing::AssertionResult contains(const Error& error, const std::string& part) {
  return contains(std::string(error.what()), part);
}

/// How often it has `what`.
inline std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

}  // namespace tutti::test

#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(tutti::test::contains(text, part))
