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

}  // namespace tutti::test

#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(tutti::test::contains(text, part))
