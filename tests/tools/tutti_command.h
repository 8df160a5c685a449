// The `tutti` command as its users see it: what it prints, where, and its exit status. Runs the
// program that was built, TUTTI_COMMAND.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"

namespace tutti {

class TuttiCommand : public testing::Test {
 protected:
  /// Runs `tutti arguments` in the test's folder; a shell reads the arguments. Returns the exit
  /// status.
  int tutti(const std::string& arguments) {
    return shell("'" TUTTI_COMMAND "' >stdout 2>stderr " + arguments);
  }
  /// Runs a line of shell in the folder, which writes `stdout` and `stderr` there. Returns its exit
  /// status.
  int shell(const std::string& line) {
    const std::string command = "cd '" + folder.path() + "' && " + line;
    const int status = std::system(command.c_str());
    out = folder.read("stdout");
    err = folder.read("stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const TemporaryFolder folder;
  std::string out;
  std::string err;
};

}  // namespace tutti
