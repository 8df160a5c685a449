// Texts for the width of a terminal.
#include "tools/terminal.h"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

TEST(Wrapped, LinesGoOnBelowTheText) {
  const std::string text = "one two three four five six seven";
  EXPECT_EQ(wrapped("name  ", text, 0), "name  one two three four five six seven\n");
  EXPECT_EQ(wrapped("name  ", text, 39), "name  one two three four five six seven\n");
  EXPECT_EQ(wrapped("name  ", text, 38), "name  one two three four five six\n      seven\n");
  EXPECT_EQ(wrapped("name  ", text, 26), "name  one two three four\n      five six seven\n");
  // Too narrow for the text.
  EXPECT_EQ(wrapped("name  ", text, 25), "name  one two three four five six seven\n");
  EXPECT_EQ(wrapped("name  ", "", 80), "name  \n");
}

TEST(Wrapped, WordsStayWhole) {
  const std::string word(50, 'x');
  EXPECT_EQ(wrapped("a ", word, 30), "a " + word + "\n");
  EXPECT_EQ(wrapped("a ", word + " y " + word, 30), "a " + word + "\n  y\n  " + word + "\n");
}

}  // namespace
}  // namespace tutti
