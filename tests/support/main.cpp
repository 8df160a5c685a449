// The main() of a room's tests, ROOM_tests. Under the name of one of its files, which is a link to
// it, it runs the cases of this file; under its own name, all. So one program has many tests, each
// of which has a process of its own, is started by its name, and takes all of GoogleTest's options.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>

namespace {

/// `patterns`: as in GoogleTest's filters, with colons between them.
bool matches(const std::string& name, const std::string& patterns) {
  std::istringstream in(patterns);
  for (std::string pattern; std::getline(in, pattern, ':');) {
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

/// Has GoogleTest run those cases of `file` ("chaos_test") alone that it has been asked for. False
/// if the file has no cases.
bool run_only(const std::string& file) {
  const std::string filter = testing::GTEST_FLAG(filter);
  const std::size_t dash = std::min(filter.find('-'), filter.size());  // not those that follow it
  const std::string wanted = dash == 0 ? "*" : filter.substr(0, dash);
  bool found = false;
  std::string cases;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    bool whole = true;
    std::string some;
    for (int i = 0; i < suite.total_test_count(); ++i) {
      const testing::TestInfo& test = *suite.GetTestInfo(i);
      const bool here = std::filesystem::path(test.file()).stem() == file;
      const std::string name = std::string(suite.name()) + "." + test.name();
      found |= here;
      if (here && matches(name, wanted)) {
        some += name + ":";
      } else {
        whole = false;
      }
    }
    cases += whole ? std::string(suite.name()) + ".*:" : some;
  }
  if (cases.empty()) cases = ":";  // none
  testing::GTEST_FLAG(filter) = cases + filter.substr(dash);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string name = std::filesystem::path(argv[0]).filename();
  if (!name.ends_with("_tests") && !run_only(name)) {
    std::fprintf(stderr, "%s: this program has no test of a file %s.cpp\n", argv[0], name.c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}
