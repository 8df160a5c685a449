#include "tools/doctor.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "collectives/model/machine.h"
#include "core/error.h"
#include "core/host.h"
#include "core/settings.h"
#include "transport/cma.h"
#include "transport/gpu_memory.h"
#include "transport/shared_memory.h"
#include "transport/tcp_socket.h"
#include "transport/wire_choice.h"

namespace tutti {
namespace {

class Report {
 public:
  void section(std::string_view name) { fmt::print("{}{}\n", sections_++ == 0 ? "" : "\n", name); }
  void good(std::string_view what, const std::string& how) {
    fmt::print("  {:<22} {}\n", what, how);
  }
  /// `advice`: what to do about it.
  void bad(std::string_view what, const std::string& how, const std::string& advice) {
    ++troubles_;
    fmt::print("! {:<22} {}\n  {:<22} -> {}\n", what, how, "", advice);
  }
  int troubles() const { return troubles_; }

 private:
  int sections_ = 0, troubles_ = 0;
};

std::string line_of(const std::string& path) {
  std::string text;
  std::ifstream file(path);
  std::getline(file, text);
  return text;
}

std::string limit_text(rlim_t limit, bool bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return bytes ? fmt::format("{} KiB", limit / 1024) : fmt::format("{}", limit);
}

void show_machine(Report& report) {
  report.section("Machine");
  utsname system{};
  uname(&system);
  const Host& h = host();
  report.good("host", fmt::format("{}, {} {}", system.nodename, system.sysname, system.release));
  report.good("processor", fmt::format("{}, {} cores, {} last-level cache(s)", h.cpu, h.cores,
                                       h.domains.size()));
  const auto allowed = allowed_cores().count();
  if (allowed < static_cast<std::size_t>(h.cores)) {
    report.good("this process may use", fmt::format("{} of the cores", allowed));
  }
  report.good("costs", used_machine().origin);
}

/// Whether a child of this process can be read as other ranks' memory is.
std::string copy_trouble() {
  std::uint64_t word = 0x7475747469;
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const bool works = child > 0 && cma_probe(child, reinterpret_cast<std::uint64_t>(&word), word);
  const int error = errno;
  if (child > 0) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return works ? "" : std::strerror(error);
}

void show_inside(Report& report) {
  report.section("Between ranks of this host: shared memory");
  try {
    SharedMemory::create("tutti-doctor", 1 << 20);
    report.good("memfd", "works");
  } catch (const Error& e) {
    report.bad("memfd", e.what(), "ranks cannot share memory; a sandbox may forbid memfd_create");
  }
  const std::string trouble = copy_trouble();
  const std::string scope = line_of("/proc/sys/kernel/yama/ptrace_scope");
  if (trouble.empty()) {
    report.good(
        "copies by the kernel",
        fmt::format("work between processes of this user{}",
                    scope.empty() || scope == "0" ? "" : " that are related (ptrace_scope)"));
  } else {
    report.bad("copies by the kernel", trouble,
               "large calls on memory that is not from tutti::allocate() are slower; allow "
               "process_vm_readv (sysctl kernel.yama.ptrace_scope=0; in containers "
               "--cap-add=SYS_PTRACE)");
  }
  rlimit files{}, locked{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  if (files.rlim_cur < 4096) {
    report.bad(
        "open files (ulimit -n)", limit_text(files.rlim_cur, false),
        "a rank needs two for each process of its host and four for each rank of another one "
        "that it talks to: raise it for many ranks");
  } else {
    report.good("open files (ulimit -n)", limit_text(files.rlim_cur, false));
  }
  report.good("locked (ulimit -l)", limit_text(locked.rlim_cur, true));
}

void show_network(Report& report) {
  report.section("Between hosts: TCP");
  const auto all = network_interfaces();
  for (const auto& i : all) {
    report.good(i.name, fmt::format("{}{}{}", host_text(i.address), i.speed,
                                    i.loopback ? ", this host only" : ""));
  }
  try {
    const SocketAddress own = address_for_others();
    const std::string chosen = fmt::format("{} ({})", host_text(own), interface_of(own));
    if (is_loopback(own)) {
      report.bad(
          "would be used", chosen,
          "other hosts cannot reach this one: there is no other interface that is up with an "
          "address");
    } else {
      report.good("would be used", fmt::format("{}{}", chosen,
                                               setting_text("TUTTI_SOCKET_IFNAME").empty()
                                                   ? "; TUTTI_SOCKET_IFNAME chooses another"
                                                   : ", by TUTTI_SOCKET_IFNAME"));
    }
  } catch (const Error& e) {
    report.bad("would be used", "nothing", e.what());
  }
  const std::string usual = line_of("/proc/sys/net/ipv4/tcp_congestion_control");
  const std::string used = congestion_control_in_use();
  report.good("congestion control", fmt::format("{} (the system's default is {})", used, usual));
}

void show_rdma(Report& report) {
  report.section("Between hosts: RDMA");
  try {
    const VerbsState state = verbs_state();
    for (const VerbsState::Port& port : state.ports) {
      report.good(port.usable ? "port" : "port, not used", port.text);
    }
    if (state.why_not.empty()) {
      report.good("would be used", "instead of TCP, with hosts that have such ports, too");
    } else if (state.ports.empty()) {
      report.good("would be used", "no: " + state.why_not);
    } else {
      report.bad("would be used", "no: " + state.why_not,
                 state.advice.empty() ? "look at `ip link`, `rdma link` and `ibv_devinfo -v`"
                                      : state.advice);
    }
  } catch (const Error& e) {
    report.bad("would be used", "no", e.what());
  }
}

void show_gpus(Report& report) {
  report.section("GPUs");
  std::string why;
  const int count = gpu_count(&why);
  if (count > 0) {
    report.good("GPUs", fmt::format("{}", count));
  } else {
    report.good("GPUs", why.empty() ? "none" : "none: " + why);
  }
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  auto* command = app.add_subcommand(
      "doctor", "What this machine offers to ranks, and what to do about what is missing");
  command->footer(
      "Lines that begin with ! are worth a look; the exit status is 1 if there are any.\n"
      "Which rank is connected to which, and how, a job says itself with TUTTI_LOG=debug.");
  command->callback([] {
    Report report;
    show_machine(report);
    show_inside(report);
    show_network(report);
    show_rdma(report);
    show_gpus(report);
    if (report.troubles() > 0) throw CLI::RuntimeError(1);
  });
}

}  // namespace tutti
