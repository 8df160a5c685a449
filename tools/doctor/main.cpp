// `tutti doctor`: what this machine offers to ranks, and how to get what is missing.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/model/machine.h"
#include "core/error.h"
#include "core/host.h"
#include "tools/command_line/command.h"
#include "tools/command_line/number_in.h"
#include "tools/doctor/doctor_container.h"
#include "tools/doctor/doctor_mpi.h"
#include "tools/doctor/doctor_nccl.h"
#include "tools/doctor/doctor_network.h"
#include "tools/doctor/doctor_report.h"
#include "tools/doctor/doctor_versions.h"
#include "tools/doctor/doctor_way.h"
#include "transport/gpu/cuda_module.h"
#include "transport/host/cma.h"
#include "transport/host/shared_memory.h"

namespace tutti {
namespace {

std::string limit_text(rlim_t limit, bool bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return bytes ? fmt::format("{} KiB", limit / 1024) : fmt::format("{}", limit);
}

void show_machine(DoctorReport& report) {
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

void show_inside(DoctorReport& report) {
  report.section("Between ranks of this host: shared memory");
  try {
    SharedMemory::create("tutti-doctor", 1 << 20);
    report.good("memfd", "works");
  } catch (const Error& e) {
    report.bad("memfd", e.what(), "ranks cannot share memory; a sandbox may forbid memfd_create");
  }
  const std::string trouble = copy_trouble();
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
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
  if (files.rlim_cur < 1024) {
    report.bad(
        "open files (ulimit -n)", limit_text(files.rlim_cur, false),
        "a rank needs two for each process of its host that it passes memory to, and four for each "
        "rank of another host that it talks to: raise it for many ranks");
  } else {
    report.good("open files (ulimit -n)", limit_text(files.rlim_cur, false));
  }
  report.good("locked (ulimit -l)", limit_text(locked.rlim_cur, true));
}

void show_gpus(DoctorReport& report) {
  report.section("GPUs");
  std::string why;
  const int count = gpu_count(&why);
  if (count > 0) {
    report.good("GPUs", fmt::format("{}", count));
  } else {
    report.good("GPUs", why.empty() ? "none" : "none: " + why);
  }
}

/// The options, and the work.
void define(CLI::App& command) {
  struct Arguments {
    std::string to;
    int port = 0;
    double wait = 600;
    std::vector<std::string> clients, programs;
    std::string python = "python3";
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* to = command
                 .add_option("--to", arguments->to,
                             "Test the way to another host, where `tutti doctor --listen` runs")
                 ->type_name("HOST[:PORT]");
  auto* listen = command
                     .add_option("--listen", arguments->port,
                                 "Wait for `tutti doctor --to` on another host, and test with it")
                     ->type_name("PORT")
                     ->expected(0, 1)
                     ->check(CLI::Range(1, 65535).description(""))
                     ->excludes(to);
  command.add_option("--wait", arguments->wait, "With --listen: how long to wait [600]")
      ->type_name("SECONDS")
      ->check(number_in(0.1, 1e6))
      ->needs(listen);
  auto* clients = command
                      .add_option("--nccl-client", arguments->clients,
                                  "Which functions of NCCL these programs and libraries need, and "
                                  "which of them Tutti's libnccl.so.2 lacks or refuses")
                      ->type_name("FILE")
                      ->excludes(to)
                      ->excludes(listen);
  command
      .add_option("--python", arguments->python,
                  "The Python whose packages are looked at [python3]")
      ->type_name("PROGRAM")
      ->excludes(to)
      ->excludes(listen);
  auto* programs = command
                       .add_option("--mpi", arguments->programs,
                                   "Which library of MPI these programs are linked with, how many "
                                   "of its procedures they need, and which Tutti refuses or lacks")
                       ->type_name("FILE")
                       ->excludes(to)
                       ->excludes(listen)
                       ->excludes(clients);
  command.footer(
      "Lines that begin with ! show a problem; the exit status is 1 if there are any.\n"
      "The default of PORT is the first of TUTTI_PORTS, or 47470. One host of a pair listens and\n"
      "the other calls. They test both directions, and both report their findings.\n"
      "A job itself reports its connections with TUTTI_LOG=debug.");
  command.callback([arguments, to, listen, clients, programs] {
    DoctorReport report;
    if (to->count() > 0) {
      test_way_to(report, arguments->to);
    } else if (listen->count() > 0) {
      await_way_test(report, static_cast<std::uint16_t>(arguments->port),
                     std::chrono::nanoseconds(std::llround(arguments->wait * 1e9)));
    } else if (clients->count() > 0) {
      report_nccl_clients(report, arguments->clients);
    } else if (programs->count() > 0) {
      report_mpi_programs(report, arguments->programs);
    } else {
      show_machine(report);
      show_versions(report, arguments->python);
      show_settings(report);
      show_inside(report);
      show_container(report);
      show_meeting(report);
      show_tcp(report);
      show_rdma(report);
      show_ucx(report);
      show_plugin(report);
      show_gpus(report);
    }
    if (report.troubles() > 0) throw CLI::RuntimeError(1);
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("doctor", tutti::define, argc, argv); }
