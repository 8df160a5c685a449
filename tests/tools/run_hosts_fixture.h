// A `tutti run -H` under test, by a launcher of the tests' own: a script that runs an agent of
// "another host" on this one.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/processes.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"

namespace tutti {

class RunOnHosts : public testing::Test {
 protected:
  RunOnHosts() { launcher(""); }

  /// The launcher: it has the host in $host, and writes its process's number to a file; then come
  /// these lines, and then it becomes the agent.
  void launcher(const std::string& lines) const {
    folder.write("launcher", fmt::format("#!/bin/sh\nhost=$1; shift\necho $$ >{}/pid.$host\n{}\n"
                                         "exec \"$@\"\n",
                                         folder.path(), lines));
    chmod(folder.path("launcher").c_str(), 0755);
  }
  std::vector<std::string> on(const std::string& hosts, std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"-H", hosts, "--launcher", folder.path("launcher")});
    return rest;
  }
  std::vector<std::string> shell_on(const std::string& hosts, const std::string& script) const {
    return on(hosts, std::vector<std::string>{"sh", "-c", script});
  }
  pid_t agent_of(const std::string& host) const { return std::stoi(folder.read("pid." + host)); }
  bool is_ready(const Job& job, std::size_t ranks) const {
    return eventually([&] { return lines(job.out()).size() == ranks; });
  }

  const TemporaryFolder folder;
};

}  // namespace tutti
