// `tutti demo`: it measures what it says, with and without other libraries, and leaves nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "tests/support/contains.h"
#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

class Demo : public TuttiCommand {
 protected:
  /// A Python that is none: it answers to -c, if `answer` says so, as that one would.
  std::string python(const std::string& answer) {
    folder.write("python", fmt::format("#!/bin/sh\n{}\n", answer));
    std::filesystem::permissions(folder.path() + "/python", std::filesystem::perms::owner_all);
    return " --python " + folder.path() + "/python";
  }
};

TEST_F(Demo, MeasuresRanksInBothKindsOfMemory) {
  ASSERT_EQ(tutti("demo --no-peers -n 3"), 0) << err;
  EXPECT_CONTAINS(out, "all_reduce of float32 by 3 ranks");
  for (const char* name : {"Tutti, tutti::Allocator", "Tutti, malloc()"}) {
    std::istringstream text(out.substr(out.find(name) + std::string(name).size()));
    double smallest = 0;
    for (int size = 0; size < 5; ++size) {
      double time = 0;
      ASSERT_TRUE(text >> time) << out;
      EXPECT_GT(time, 0) << out;
      if (size == 0) smallest = time;
      if (size == 4) {
        EXPECT_GT(time, smallest) << "8 MiB takes longer than 8 B:\n" << out;
      }
    }
  }
  EXPECT_EQ(out.find("Not measured"), std::string::npos);
}

TEST_F(Demo, SaysWhyALibraryIsNotThere) {
  ASSERT_EQ(tutti("demo -n 2" + python("echo no module torch >&2; exit 1")), 0) << err;
  EXPECT_CONTAINS(out, "Not measured: Gloo in PyTorch: no module torch");
  ASSERT_EQ(tutti("demo -n 2 --python /nowhere/python"), 0) << err;
  EXPECT_CONTAINS(out, "Not measured: Gloo in PyTorch: /nowhere/python is not there");
}

TEST_F(Demo, ShowsWhatAnotherLibraryMeasured) {
  ASSERT_EQ(
      tutti("demo -n 2" + python("printf 'Gloo, PyTorch 9.9\\n1.5\\n2.5\\n3.5\\n450\\n5500\\n'")),
      0)
      << err;
  EXPECT_CONTAINS(
      out,
      "Gloo, PyTorch 9.9                       1.50      2.50      3.50       450      5500\n");
  // Half an answer is none.
  ASSERT_EQ(tutti("demo -n 2" + python("printf 'Gloo, PyTorch 9.9\\n1.5\\n'")), 0) << err;
  EXPECT_CONTAINS(out, "Not measured: Gloo in PyTorch");
}

TEST_F(Demo, RefusesWhatIsNoNumberOfRanks) {
  EXPECT_EQ(tutti("demo -n 0"), 2);
  EXPECT_EQ(tutti("demo -n 65"), 2);
}

}  // namespace
}  // namespace tutti
