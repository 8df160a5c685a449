// How `tutti` hands over to the programs `tutti X`, lists them, and says what builds those that are
// missing; and that each program that is built is `tutti X`.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/contains.h"
#include "tests/tools/tutti_command.h"
#include "tools/command_line/programs.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

/// A tree as an installation has it: bin/tutti, a copy, and in libexec/tutti what a test puts
/// there.
class HandOver : public TuttiCommand {
 protected:
  HandOver() {
    fs::create_directories(folder.path("bin"));
    fs::create_directories(folder.path("libexec/tutti"));
    fs::copy_file(TUTTI_COMMAND, folder.path("bin/tutti"));
  }

  void put_script(const std::string& name, const std::string& text) {
    const std::string file = "libexec/tutti/" + name;
    folder.write(file, "#!/bin/sh\n" + text);
    fs::permissions(folder.path(file), fs::perms::owner_all);
  }

  /// Runs a line of shell in the folder. Returns its exit status.
  int sh(const std::string& line) { return shell("{ " + line + "; } >stdout 2>stderr"); }
};

TEST_F(HandOver, AProgramGetsTheWordsAndItsStatusIsTheCommands) {
  put_script("tutti-probe", "for word; do echo \"<$word>\"; done\necho $VARIABLE\ncat\nexit 77\n");
  EXPECT_EQ(sh("echo input | VARIABLE=v bin/tutti probe 'a b' '' --help '[1,2]' -n4"), 77);
  EXPECT_EQ(out, "<a b>\n<>\n<--help>\n<[1,2]>\n<-n4>\nv\ninput\n");
  EXPECT_EQ(err, "");
}

TEST_F(HandOver, HelpOfACommandIsThatOfItsProgram) {
  put_script("tutti-probe", "echo \"$*\"\n");
  for (const char* line : {"help probe show", "probe show --help", "--help probe show"}) {
    EXPECT_EQ(sh(std::string("bin/tutti ") + line), 0);
    EXPECT_EQ(out, "show --help\n") << line;
  }
  EXPECT_EQ(sh("bin/tutti help run"), 0);
  EXPECT_CONTAINS(out, "--keep-going");
  EXPECT_EQ(sh("bin/tutti help"), 0);
  EXPECT_CONTAINS(out, "'tutti help COMMAND' says more");
}

TEST_F(HandOver, ASignalThatEndsAProgramEndsTheCommand) {
  put_script("tutti-probe", "kill -KILL $$\n");
  EXPECT_EQ(sh("bin/tutti probe"), 128 + 9);
}

TEST_F(HandOver, ASignalToTheCommandReachesTheProgram) {
  put_script("tutti-probe",
             "trap 'echo term; exit 5' TERM\ntouch ready\n"
             "for i in $(seq 600); do sleep 0.05; done\nexit 1\n");
  EXPECT_EQ(sh("bin/tutti probe & pid=$!; for i in $(seq 600); do [ -e ready ] && break; sleep "
               "0.05; done; kill -TERM $pid; wait $pid"),
            5);
  EXPECT_EQ(out, "term\n");
}

TEST_F(HandOver, TheListHasWhatIsThere) {
  put_script("tutti-probe", "exit 0\n");
  put_script("tutti-plan", "exit 0\n");
  put_script("tutti-run", "exit 9\n");  // `tutti run` is built in
  put_script("tutti-bad name", "exit 0\n");
  folder.write("libexec/tutti/tutti-data", "no program\n");
  ASSERT_EQ(sh("bin/tutti --help"), 0);
  const auto missing = out.find("Not built here");
  ASSERT_NE(missing, std::string::npos) << out;
  for (const char* there : {"\n  run ", "\n  plan ", "\n  probe ", "\n  version "}) {
    EXPECT_LT(out.find(there), missing) << there << out;
  }
  for (const char* not_there : {"\n  explain ", "\n  compare ", "\n  settings "}) {
    EXPECT_GT(out.find(not_there), missing) << not_there << out;
    EXPECT_NE(out.find(not_there), std::string::npos) << not_there << out;
  }
  EXPECT_EQ(out.find("data"), std::string::npos) << out;
  EXPECT_EQ(out.find("run-agent"), std::string::npos) << out;
  EXPECT_EQ(sh("bin/tutti run -n 1 true"), 0) << err;
}

TEST_F(HandOver, AMissingPartSaysWhatBuildsIt) {
  EXPECT_EQ(sh("bin/tutti explain all_reduce"), 1);
  EXPECT_EQ(err,
            "tutti: 'tutti explain' is not part of this installation (" +
                folder.path("libexec/tutti/tutti-explain") +
                " is missing): build Tutti, whose target tutti-explain it is, and install it\n");
  EXPECT_EQ(sh("bin/tutti help compare"), 1);
  EXPECT_CONTAINS(err, "build Tutti with -DTUTTI_LABORATORY=ON, whose target tutti-compare it is");
  folder.write("CMakeCache.txt", "");  // a build folder
  EXPECT_EQ(sh("bin/tutti explain all_reduce"), 1);
  EXPECT_EQ(err, "tutti: 'tutti explain' is not built yet: cmake --build " + folder.path() +
                     " --target tutti-explain\n");
  EXPECT_EQ(sh("bin/tutti compare"), 1);
  EXPECT_EQ(err, "tutti: 'tutti compare' is not built yet: cmake -DTUTTI_LABORATORY=ON " +
                     folder.path() + " && cmake --build " + folder.path() +
                     " --target tutti-compare\n");
  EXPECT_EQ(out, "");
}

TEST_F(HandOver, AnUnknownCommandIsRefused) {
  put_script("tutti-probe", "exit 0\n");
  const std::pair<const char*, const char*> lines[] = {
      {"explian", "tutti: there is no command 'explian' (did you mean 'explain'?)\n"},
      {"prob", "tutti: there is no command 'prob' (did you mean 'probe'?)\n"},
      {"rnu -n 2 true", "tutti: there is no command 'rnu' (did you mean 'run'?)\n"},
      {"help explian", "tutti: there is no command 'explian' (did you mean 'explain'?)\n"},
      {"../tutti-probe", "tutti: there is no command '../tutti-probe'"},
      {"--verson", "tutti: there is no option '--verson' (did you mean '--version'?)\n"},
  };
  for (const auto& [line, said] : lines) {
    EXPECT_EQ(sh(std::string("bin/tutti ") + line), 2) << line;
    EXPECT_EQ(err.rfind(said, 0), 0U) << line << ": " << err;
    EXPECT_CONTAINS(err, "tutti: see 'tutti --help'\n");
  }
  EXPECT_EQ(sh("bin/tutti"), 2);
  EXPECT_EQ(err.rfind("tutti: name a command\n\n", 0), 0U) << err;
}

TEST_F(HandOver, AProgramThatCannotStartSaysWhy) {
  put_script("tutti-probe", "");
  folder.write("libexec/tutti/tutti-probe", "#!/no/such/interpreter\n");
  EXPECT_EQ(sh("bin/tutti probe"), 1);
  EXPECT_CONTAINS(err, "tutti: cannot start " + folder.path("libexec/tutti/tutti-probe"));
  EXPECT_CONTAINS(err, "No such file or directory");
}

// `tutti top -H` starts `tutti` on other hosts: that of its own tree, not itself.
TEST_F(HandOver, AToolKnowsTheCommandThatItBelongsTo) {
  fs::copy_file(fs::path(TUTTI_COMMAND).parent_path().parent_path() / "libexec/tutti/tutti-top",
                folder.path("libexec/tutti/tutti-top"));
  put_script("launch", "echo \"$*\" >>launched\nexit 3\n");
  EXPECT_EQ(sh("bin/tutti top --once -H far --launcher libexec/tutti/launch"), 0) << err;
  EXPECT_EQ(folder.read("launched"), "far " + folder.path("bin/tutti") + " top --json\n");
}

class EachTool : public TuttiCommand {};

TEST_F(EachTool, IsTheCommandOfItsName) {
  for (const ToolProgram& tool : kToolPrograms) {
#ifndef TUTTI_LABORATORY
    if (tool.option == "TUTTI_LABORATORY") continue;
#endif
    const std::string name(tool.name);
    ASSERT_EQ(tutti(name + " --help"), 0) << err;
    EXPECT_EQ(out.rfind(std::string(tool.summary) + "\nUsage: tutti " + name, 0), 0U) << out;
    EXPECT_EQ(tutti(name + " --no-such-option"), 2);
    EXPECT_CONTAINS(err, "tutti: there is no option '--no-such-option'");
    EXPECT_CONTAINS(err, "tutti: see 'tutti " + name + " --help'\n");
  }
}

// A program that somebody adds has its place in the table, and so in the list.
TEST_F(EachTool, IsInTheTable) {
  const fs::path folder_of_tools =
      fs::path(TUTTI_COMMAND).parent_path().parent_path() / "libexec" / "tutti";
  std::size_t tools = 0;
  for (const auto& entry : fs::directory_iterator(folder_of_tools)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("tutti-")) continue;
    ++tools;
    EXPECT_NE(find_tool(name.substr(6)), nullptr) << name;
  }
  EXPECT_GE(tools, 9U);
}

}  // namespace
}  // namespace tutti
