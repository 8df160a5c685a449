// Starting programs in network namespaces; see compare_hosts.h.
#include "laboratory/compare/compare_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "laboratory/compare/compare_programs.h"

namespace tutti::compare {

Hosts::Hosts(int ranks, int megabits)
    : ranks_(ranks), hosts_(ranks, false, Namespaces::Joined::directly) {
  if (!hosts_.missing().empty()) {
    throw Error(ErrorCode::system, "--hosts: " + hosts_.missing());
  }
  for (int h = 0; megabits > 0 && h < ranks; ++h) {
    if (!hosts_.limit(h, megabits)) {
      throw Error(ErrorCode::system, "--rate: `tc qdisc add ... tbf` does not work here");
    }
  }
  // Some of MPICH's ranks find no device in the first moments of a new link.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  folder_ = std::filesystem::temp_directory_path().string() + "/tutti-hosts-XXXXXX";
  if (mkdtemp(folder_.data()) == nullptr) throw_system_error("cannot make a folder " + folder_);
  // Launchers of MPI call it as they would call ssh: options, the host, a command. Hosts have names
  // of their own, or MPI would have its ranks share memory.
  const std::string script = folder_ + "/on_host";
  std::ofstream out(script);
  out << "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n"
      << "case $host in\n";
  for (int h = 0; h < ranks; ++h) {
    out << hosts_.address(h) << ") space=" << hosts_.space(h) << " ;;\n";
  }
  out << "*) exit 1 ;;\nesac\n"
      << "exec ip netns exec $space unshare -u sh -c \"hostname $space; $*\"\n";
  out.close();
  if (!out) throw_system_error("cannot write " + script);
  chmod(script.c_str(), 0700);
}

Hosts::~Hosts() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Hosts::addresses(const char* behind) const {
  std::vector<std::string> all;
  for (int h = 0; h < ranks_; ++h) all.push_back(hosts_.address(h) + behind);
  return fmt::format("{}", fmt::join(all, ","));
}

std::vector<std::string> Hosts::on_first_host(std::vector<std::string> command) const {
  std::vector<std::string> whole = hosts_.prefix(0);
  whole.insert(whole.begin(), "/usr/bin/env");
  whole.push_back("env");
  whole.insert(whole.end(), command.begin(), command.end());
  return whole;
}

std::vector<std::string> Hosts::open_mpi(const std::string& launcher,
                                         const std::string& program) const {
  // Each host's daemon believes that it has all cores for itself; programs bind themselves.
  // Release 5 has other names than release 4 for what starts the daemons; each ignores the other's.
  return on_first_host({"OMPI_ALLOW_RUN_AS_ROOT=1",
                        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                        "PRTE_ALLOW_RUN_AS_ROOT=1",
                        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                        "PRTE_MCA_plm_ssh_agent=" + folder_ + "/on_host",
                        "PRTE_MCA_prte_if_include=eth0",
                        launcher,
                        "--bind-to",
                        "none",
                        "--mca",
                        "plm_rsh_agent",
                        folder_ + "/on_host",
                        "--mca",
                        "pml",
                        "ob1",
                        "--mca",
                        "btl",
                        "tcp,self",
                        "--mca",
                        "btl_tcp_if_include",
                        "eth0",
                        "--mca",
                        "oob_tcp_if_include",
                        "eth0",
                        "-H",
                        addresses(":1"),
                        "-np",
                        std::to_string(ranks_),
                        program});
}

std::vector<std::string> Hosts::hydra(const std::string& launcher,
                                      const std::string& program) const {
  // Without UCX_TLS, UCX would find that the hosts are one machine.
  return on_first_host({"UCX_TLS=tcp,self", "UCX_NET_DEVICES=eth0", "I_MPI_FABRICS=shm:ofi",
                        "I_MPI_OFI_PROVIDER=tcp", "FI_TCP_IFACE=eth0", launcher, "-launcher", "ssh",
                        "-launcher-exec", folder_ + "/on_host", "-iface", "eth0", "-hosts",
                        addresses(""), "-ppn", "1", "-n", std::to_string(ranks_), program});
}

void Hosts::place(Program& program) const {
  const std::string path = program.command.back();
  if (program.launch == Launch::open_mpi) {
    program.command = open_mpi(program.launcher, path);
  } else if (program.launch == Launch::hydra) {
    program.command = hydra(program.launcher, path);
  } else {
    // What `tutti run` starts looks for its own place, and for the others through a file.
    const std::string shell = fmt::format(
        "space={}$TUTTI_RANK; unset TUTTI_UNIQUE_ID; "
        "export GLOO_SOCKET_IFNAME=eth0 TUTTI_ID_FILE={}/id-$PPID; "
        "exec ip netns exec $space \"$0\" \"$@\"",
        hosts_.spaces(), folder_);
    program.command.back() = "sh";
    program.command.insert(program.command.end(), {"-c", shell, path});
  }
}

}  // namespace tutti::compare
