// The launchers of this machine, and commands with which they start ranks on two hosts, which are
// network namespaces (namespaces.h).
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tools/namespaces.h"

namespace tutti {

/// What a command has said, in sorted lines, and its status.
struct Said {
  int status = -1;
  std::vector<std::string> lines;
  std::string all() const {
    std::string text = fmt::format("status {}\n", status);
    for (const std::string& line : lines) text += line + '\n';
    return text;
  }
  bool has(const std::string& text) const {
    return std::ranges::any_of(
        lines, [&](const auto& line) { return line.find(text) != std::string::npos; });
  }
};

inline Said run_shell(const std::string& command) {
  Said said;
  // The shell of popen() has no such option; nothing shall wait for a lost rank for ever.
  FILE* const pipe = popen(fmt::format("( {} ) 2>&1", command).c_str(), "r");
  std::array<char, 8192> line;
  while (fgets(line.data(), line.size(), pipe) != nullptr) {
    std::string text = line.data();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    said.lines.push_back(text);
  }
  const int status = pclose(pipe);
  said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  std::ranges::sort(said.lines);
  return said;
}

/// The first of `names` whose `--version` says `version`: in PATH, or in the folders that
/// TUTTI_LAUNCHERS (CMake) lists. "": there is none.
inline std::string find_launcher_program(const std::vector<std::string>& names,
                                         const std::string& version) {
  std::vector<std::string> candidates = names;
  std::istringstream folders(TUTTI_LAUNCHERS);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const std::string& name : names) candidates.push_back(folder + "/" + name);
  }
  for (const std::string& program : candidates) {
    const Said said =
        run_shell(fmt::format("command -v {0} >/dev/null && {0} --version </dev/null", program));
    if (said.status == 0 && said.has(version)) return program;
  }
  return "";
}

/// Two hosts, and how a launcher starts something on them.
class LaunchHosts {
 public:
  LaunchHosts() {
    if (!missing().empty()) return;
    // As `ssh [option...] HOST command...`; launchers tell hosts apart by their names, too.
    folder_.write("agent",
                  fmt::format("#!/bin/sh\n"
                              "while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n"
                              "case $1 in {}) h={};; {}) h={};; *) exit 9;; esac; shift\n"
                              "exec ip netns exec $h unshare -u sh -c \"hostname $h; $*\"\n",
                              address(0), space(0), address(1), space(1)));
    std::filesystem::permissions(agent(), std::filesystem::perms::owner_all);
  }

  const std::string& missing() const { return hosts_.missing(); }
  std::string address(int host) const { return hosts_.address(host); }
  std::string space(int host) const { return hosts_.space(host); }
  std::string agent() const { return folder_.path("agent"); }
  const TemporaryFolder& folder() const { return folder_; }
  /// What runs `command` on a host; a minute at most.
  std::string on(int host, const std::string& command) const {
    return fmt::format("ip netns exec {0} unshare -u sh -c 'hostname {0}; exec timeout 60 {1}'",
                       space(host), command);
  }

  // The command that starts two ranks of `program` on each host.

  std::string open_mpi(const std::string& mpirun, const std::string& program) const {
    const bool five = run_shell(mpirun + " --version").has("(Open MPI) 5");
    const std::string options =
        five ? fmt::format(
                   "--prtemca plm_ssh_agent {} --prtemca prte_if_include eth0 "
                   "--prtemca prte_tmpdir_base {}",
                   agent(), folder_.path())
             : fmt::format(
                   "--mca plm_rsh_agent {} --mca oob_tcp_if_include eth0 "
                   "--mca orte_tmpdir_base {}",
                   agent(), folder_.path());
    return on(0, fmt::format("{} --allow-run-as-root --bind-to none {} -H {}:2,{}:2 -n 4 {}",
                             mpirun, options, address(0), address(1), program));
  }

  std::string hydra(const std::string& mpiexec, const std::string& program,
                    const std::string& options = "-launcher ssh -iface eth0") const {
    return on(0, fmt::format("{} {} -launcher-exec {} -hosts {},{} -ppn 2 -n 4 {}", mpiexec,
                             options, agent(), address(0), address(1), program));
  }

  /// Two agents of torchrun, one on each host, which look for names in vain. Its `options` may
  /// contain {0}, the agent's number, {1}, its address, and {2}, whether it is the first.
  std::string torchrun(const std::string& torchrun, const std::string& options,
                       const std::string& program) const {
    std::string both;
    for (int host = 0; host < 2; ++host) {
      both += fmt::format(
          "ip netns exec {} timeout 60 env 'RES_OPTIONS=timeout:1 attempts:1' {} --nnodes 2 "
          "--nproc-per-node 2 --local-addr {} {} "
          "--no-python {} & ",
          space(host), torchrun, address(host),
          fmt::format(fmt::runtime(options), host, address(host), host == 0), program);
    }
    return both + "wait";
  }

 private:
  const Namespaces hosts_{2};
  const TemporaryFolder folder_;
};

}  // namespace tutti
