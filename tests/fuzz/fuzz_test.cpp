// Every fuzz target (target.h) with its seeds and with mutants of them, in seconds: the same ones
// in each run. TUTTI_TEST_FUZZ: how many mutants of each target (2,000).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <set>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"
#include "tests/support/variable.h"

namespace tutti::fuzz {
namespace {

/// As C++ reads it.
std::string quoted(std::string_view input) {
  std::string text;
  for (const char c : input) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 32 && byte < 127 && c != '"' && c != '\\';
    text += plain ? std::string(1, c) : fmt::format("\\{:03o}", byte);
  }
  return '"' + text + '"';
}

class Parsers : public testing::TestWithParam<Target> {
 protected:
  static testing::AssertionResult holds(std::string_view input) {
    // A copy of its own: a sanitizer sees what reads past the end.
    const std::vector<char> bytes(input.begin(), input.end());
    try {
      GetParam().run({bytes.data(), bytes.size()});
      return testing::AssertionSuccess();
    } catch (const std::exception& error) {
      return testing::AssertionFailure() << error.what() << "\nof " << quoted(input);
    }
  }
};

TEST_P(Parsers, KeepToTheirWordOnTheirOwnSeeds) {
  const auto seeds = GetParam().seeds();
  ASSERT_FALSE(seeds.empty());
  for (const std::string& seed : seeds) ASSERT_TRUE(holds(seed));
  ASSERT_TRUE(holds(""));
}

TEST_P(Parsers, KeepToTheirWordOnEveryBeginningOfASeed) {
  for (const std::string& seed : GetParam().seeds()) {
    const std::size_t step = 1 + seed.size() / 200;
    for (std::size_t end = 0; end < seed.size(); end += step)
      ASSERT_TRUE(holds(seed.substr(0, end)));
  }
}

TEST_P(Parsers, KeepToTheirWordOnMutants) {
  const int mutants = test::number_from("TUTTI_TEST_FUZZ", 2000);
  std::mt19937 random(1);
  const auto seeds = GetParam().seeds();
  std::vector<std::string> kept = seeds;  // some go on to be changed further
  for (int i = 0; i < mutants; ++i) {
    std::string input = kept[random() % kept.size()];
    mutate(input, seeds, random);
    ASSERT_TRUE(holds(input));
    if (i % 8 == 0) kept.push_back(std::move(input));
    if (kept.size() > seeds.size() + 64) kept.resize(seeds.size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Parsers, testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(target.param.name); });

TEST(Mutants, AreTheSameForTheSameSeed) {
  const std::vector<std::string> others{"other"};
  for (const unsigned seed : {1U, 2U}) {
    std::mt19937 a(seed), b(seed);
    std::string one = "rank 12 of 34", two = one;
    for (int i = 0; i < 100; ++i) {
      mutate(one, others, a);
      mutate(two, others, b);
      ASSERT_EQ(one, two);
    }
  }
}

TEST(Mutants, ChangeEveryByteAndTheLengthAndTheNumbers) {
  const std::string seed = "ab 12 cd";
  std::set<std::size_t> changed, lengths;
  bool largest = false, spliced = false;
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string input = seed;
    mutate(input, std::vector<std::string>{"XYZ"}, random, 40);
    lengths.insert(input.size());
    for (std::size_t at = 0; at < std::min(seed.size(), input.size()); ++at) {
      if (input[at] != seed[at]) changed.insert(at);
    }
    largest = largest || input.find("18446744073709551615") != std::string::npos;
    spliced = spliced || input.find("XYZ") != std::string::npos;
    ASSERT_LE(input.size(), 40U);
  }
  EXPECT_EQ(changed.size(), seed.size());
  EXPECT_GT(lengths.size(), 20U);
  EXPECT_TRUE(lengths.contains(0) || lengths.contains(1));
  EXPECT_TRUE(largest);
  EXPECT_TRUE(spliced);
}

// What a target requires is heard of, and what it refuses in a way that it may not.
TEST(Targets, AreHeardOfWhereSomethingDoesNotHold) {
  EXPECT_NO_THROW(require(true, "nothing"));
  EXPECT_THROW(require(false, "something"), std::logic_error);
  const auto refuse = [](ErrorCode code) { return [code] { throw Error(code, "no"); }; };
  EXPECT_TRUE(accepts(ErrorCode::mismatch, [] {}));
  EXPECT_FALSE(accepts(ErrorCode::mismatch, refuse(ErrorCode::mismatch)));
  EXPECT_THROW(accepts(ErrorCode::mismatch, refuse(ErrorCode::internal)), std::logic_error);
  EXPECT_THROW(accepts(ErrorCode::mismatch, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

}  // namespace
}  // namespace tutti::fuzz
