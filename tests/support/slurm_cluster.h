// A Slurm of a test's own: its daemons, on the two hosts of launchers.h, with all that they keep in
// a temporary folder.
#pragma once

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/launchers.h"
#include "tests/support/processes.h"

namespace tutti {

class SlurmCluster {
 public:
  explicit SlurmCluster(const LaunchHosts& hosts) : hosts_(hosts) {
    for (const char* const program : {"srun", "slurmctld", "slurmd", "munged"}) {
      if (std::system(fmt::format("command -v {} >/dev/null", program).c_str()) != 0) {
        missing_ = fmt::format("{} is not installed (Debian: slurm-wlm, munge)", program);
        return;
      }
    }
    write_configuration();
    const std::string& here = folder_.path();
    const bool started =
        shell(fmt::format("head -c 128 /dev/urandom > {0}/key && chmod 400 {0}/key && mkdir "
                          "{0}/state {0}/tmp-node0 {0}/tmp-node1 && "
                          "munged --force --key-file={0}/key --socket={0}/munge.socket "
                          "--pid-file={0}/munged.pid --log-file={0}/munged.log "
                          "--seed-file={0}/munged.seed",
                          here)) &&
        shell("slurmctld -f " + configuration(), 0) &&
        shell("slurmd -N node0 -f " + configuration(), 0) &&
        shell("slurmd -N node1 -f " + configuration(), 1);
    const auto idle = [&] { return run_shell(on(0, "sinfo -h -o %t,%D")).has("idle,2"); };
    if (!started || !eventually(idle, std::chrono::seconds(20)))
      missing_ = "Slurm's daemons do not start here:\n" + folder_.read("ctld.log") +
                 folder_.read("node0.log") + folder_.read("node1.log");
  }
  ~SlurmCluster() {
    std::vector<pid_t> daemons;
    for (const char* const name : {"node0", "node1", "ctld", "munged"}) {
      pid_t pid = 0;
      std::ifstream(folder_.path(fmt::format("{}.pid", name))) >> pid;
      if (pid > 1) daemons.push_back(pid);
    }
    for (const pid_t pid : daemons) kill(pid, SIGTERM);
    for (const pid_t pid : daemons) {
      if (!eventually([&] { return kill(pid, 0) != 0; }, std::chrono::seconds(5)))
        kill(pid, SIGKILL);
    }
    // A step's daemon that could not tell the others of its end waits for them.
    const std::string mark = "SLURM_CONF=" + configuration();
    for (const pid_t pid : marked_processes(mark)) kill(pid, SIGKILL);
    eventually([&] { return marked_processes(mark).empty(); });
  }
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// Why there is none; "": there is one.
  const std::string& missing() const { return missing_; }

  /// Two ranks of `program` on each host.
  std::string srun(const std::string& mpi, const std::string& program) const {
    return on(0, fmt::format("srun --mpi={} -N 2 -n 4 {}", mpi, program));
  }
  /// `script` in an allocation of both hosts.
  std::string salloc(const std::string& script) const {
    folder_.write("script", script);
    return on(0, fmt::format("salloc -Q -N 2 -n 4 sh {}", folder_.path("script")));
  }

 private:
  std::string configuration() const { return folder_.path("slurm.conf"); }
  std::string on(int host, const std::string& command) const {
    // `ip netns exec` would hide the control groups, which slurmd wants.
    return fmt::format("SLURM_CONF={} nsenter --net=/run/netns/{} timeout 60 {}", configuration(),
                       hosts_.space(host), command);
  }
  bool shell(const std::string& command, int host = -1) const {
    return std::system(((host < 0 ? command : on(host, command)) + "  >/dev/null 2>&1").c_str()) ==
           0;
  }

  void write_configuration() const {
    std::string name = run_shell("hostname").lines.at(0);
    std::string text = fmt::format(
        "ClusterName=test\nSlurmctldHost={name}({address})\nSlurmctldPort=26817\n"
        "SlurmdPort=26818\nAuthType=auth/munge\nAuthInfo=socket={here}/munge.socket\n"
        "CredType=cred/munge\nSlurmUser=root\nSlurmdUser=root\nStateSaveLocation={here}/state\n"
        "SlurmdSpoolDir={here}/spool-%n\nTmpFS={here}/tmp-%n\nSlurmctldPidFile={here}/ctld.pid\n"
        "SlurmdPidFile={here}/%n.pid\nSlurmctldLogFile={here}/ctld.log\n"
        "SlurmdLogFile={here}/%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSchedulerType=sched/builtin\n"
        "SlurmdParameters=config_overrides\nReturnToService=2\nMpiDefault=none\n"
        "PartitionName=all Nodes=ALL Default=YES State=UP\n",
        fmt::arg("name", name), fmt::arg("address", hosts_.address(0)),
        fmt::arg("here", folder_.path()));
    for (int host = 0; host < 2; ++host) {
      text += fmt::format("NodeName=node{0} NodeHostname={1} NodeAddr={2} Port=26818 CPUs=8\n",
                          host, name, hosts_.address(host));
    }
    folder_.write("slurm.conf", text);
  }

  const LaunchHosts& hosts_;
  const TemporaryFolder folder_;
  std::string missing_;
};

}  // namespace tutti
