// Modules beside the program that opens them: the right one, one of another build, and what is
// none (module_test/*.cpp).
#include "core/module.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "tests/support/contains.h"

namespace tutti {
namespace {

const char here = 0;

std::string refusal(std::string_view name) {
  try {
    open_module({name, "1-abc", &here, "a test"});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    return error.what();
  }
  return "none";
}

TEST(Modules, AreFoundInTheFolderBesideTheProgram) {
  const void* const functions = open_module({"fitting", "1-abc", &here, "a test"});
  EXPECT_EQ(*static_cast<const int*>(functions), 42);
  EXPECT_EQ(open_module({"fitting", "1-abc", &here, "a test"}), functions);
}

TEST(Modules, OfAnotherBuildAreRefused) {
  EXPECT_CONTAINS(refusal("other"),
                  "/tests/tutti/libtutti_other.so, but that is of another build of Tutti (1-def) "
                  "than the library that opens it (1-abc): install both from one build");
}

TEST(Modules, ThatAreMissingAreNamedWithTheirPlace) {
  EXPECT_CONTAINS(refusal("missing"),
                  "a test needs libtutti_missing.so, a part of Tutti that is not in ");
  EXPECT_CONTAINS(refusal("missing"), "/tests/tutti, nor where the loader looks");
}

TEST(Modules, ThatAreNoneAreRefused) {
  EXPECT_CONTAINS(refusal("nothing"), "libtutti_nothing.so, which is no module of Tutti");
}

TEST(Modules, ThatCannotBeLoadedSayWhy) {
  std::ofstream(MODULES "/libtutti_text.so") << "no shared object\n";
  EXPECT_CONTAINS(refusal("text"), "libtutti_text.so, which cannot be loaded: ");
}

}  // namespace
}  // namespace tutti
