// Hosts with an sshd each, for tests of what starts programs over ssh: network namespaces of this
// machine, with keys that are made for the test. One more namespace is the host from which the test
// starts things. Needs root, iproute2 and Debian's openssh-server.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/processes.h"
#include "tests/support/temporary_folder.h"
#include "tools/namespaces.h"

namespace tutti {

class SshHosts {
 public:
  explicit SshHosts(int hosts) : hosts_(hosts), spaces_(hosts + 1) {
    missing_ = spaces_.missing();
    if (!missing_.empty()) return;
    if (!run("command -v sshd || test -x /usr/sbin/sshd")) {
      missing_ = "there is no sshd (Debian's openssh-server; `make test-ssh` installs it)";
      return;
    }
    mkdir("/run/sshd", 0755);
    const std::string& at = folder_.path();
    if (!run(fmt::format("ssh-keygen -q -t ed25519 -N '' -f {0}/host && "
                         "ssh-keygen -q -t ed25519 -N '' -f {0}/user",
                         at))) {
      missing_ = "ssh-keygen does not work here";
      return;
    }
    folder_.write("sshd", fmt::format("HostKey {0}/host\nAuthorizedKeysFile {0}/user.pub\n"
                                      "StrictModes no\nUsePAM no\nPidFile none\n"
                                      "PermitRootLogin yes\nMaxStartups 100\nPrintMotd no\n",
                                      at));
    folder_.write("client", fmt::format("IdentityFile {0}/user\nUserKnownHostsFile {0}/known\n"
                                        "StrictHostKeyChecking yes\nLogLevel ERROR\n",
                                        at));
    std::string known;
    for (int h = 0; h < hosts; ++h) known += address(h) + " " + folder_.read("host.pub");
    folder_.write("known", known);
    // `ssh` of the started programs is this one, with that configuration.
    mkdir(bin().c_str(), 0755);
    folder_.write("bin/ssh", fmt::format("#!/bin/sh\nexec /usr/bin/ssh -F {}/client \"$@\"\n", at));
    chmod((bin() + "/ssh").c_str(), 0755);
    for (int h = 0; h < hosts; ++h) start_sshd(h);
    const bool all_listen = eventually([&] {
      for (int h = 0; h < hosts; ++h) {
        if (!run(fmt::format("ip netns exec {} cat /proc/net/tcp | grep -q ' 0A '",
                             spaces_.space(h)))) {
          return false;
        }
      }
      return true;
    });
    if (!all_listen) missing_ = "sshd does not start here";
  }
  ~SshHosts() {
    for (const pid_t pid : daemons_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;

  /// Why there are none; "": there are.
  const std::string& missing() const { return missing_; }
  std::string address(int host) const { return spaces_.address(host); }
  const Namespaces& spaces() const { return spaces_; }

  /// In a child: moves it to a host, `hosts` for the one from which things are started.
  void enter(int host) const {
    const std::string path = "/run/netns/" + spaces_.space(host);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) _exit(98);
    setenv("PATH", fmt::format("{}:{}", bin(), std::getenv("PATH")).c_str(), 1);
  }
  void enter() const { enter(hosts_); }

  /// The processes that are there, except for the sshd that waits for connections.
  std::vector<pid_t> processes(int host) const {
    FILE* const pipe = popen(("ip netns pids " + spaces_.space(host)).c_str(), "r");
    std::vector<pid_t> result;
    for (int pid = 0; fscanf(pipe, "%d", &pid) == 1;) {
      const auto d = static_cast<std::size_t>(host);
      if (d >= daemons_.size() || daemons_[d] != pid) result.push_back(pid);
    }
    pclose(pipe);
    return result;
  }
  /// Kills a process there whose command line has this regular expression; false: there is none.
  bool kill_one(int host, const std::string& command) const {
    for (const pid_t pid : processes(host)) {
      if (!run(fmt::format("tr '\\0' ' ' </proc/{}/cmdline | grep -q '{}'", pid, command)))
        continue;
      return kill(pid, SIGKILL) == 0;
    }
    return false;
  }
  /// Whether nothing is left on any of them, soon.
  bool are_empty() const {
    return eventually([&] {
      for (int h = 0; h <= hosts_; ++h) {
        if (!processes(h).empty()) return false;
      }
      return true;
    });
  }

 private:
  std::string bin() const { return folder_.path() + "/bin"; }
  static bool run(const std::string& command) {
    return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
  }
  void start_sshd(int host) {
    const std::string config = folder_.path() + "/sshd";
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      enter(host);
      execl("/usr/sbin/sshd", "/usr/sbin/sshd", "-D", "-f", config.c_str(), nullptr);
      _exit(97);
    }
    daemons_.push_back(pid);
  }

  TemporaryFolder folder_;
  int hosts_;
  Namespaces spaces_;
  std::vector<pid_t> daemons_;
  std::string missing_;
};

}  // namespace tutti
