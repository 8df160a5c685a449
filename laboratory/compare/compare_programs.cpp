// Finding the programs; see compare_programs.h.
#include "laboratory/compare/compare_programs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "tools/command_line/programs.h"

namespace tutti::compare {
namespace {

namespace fs = std::filesystem;

struct Peer {
  const char* name;
  Launch launch;
  const char* launcher;  // on the PATH; null: `<name>_run` beside the program
  const char* install;   // what to do when it is missing
};
constexpr const char* kNewest = "run laboratory/peers/newest.sh build/peers";
constexpr std::array kPeers{
    Peer{"openmpi", Launch::open_mpi, "mpirun.openmpi", "apt install openmpi-bin libopenmpi-dev"},
    Peer{"mpich", Launch::hydra, "mpiexec.mpich", "apt install mpich libmpich-dev"},
    Peer{"gloo", Launch::tutti_run, nullptr, "apt install libgloo-dev"},
    Peer{"intelmpi", Launch::hydra, nullptr, kNewest},
    Peer{"openmpi5", Launch::open_mpi, nullptr, kNewest},
    Peer{"mpich5", Launch::hydra, nullptr, kNewest},
};

std::string find_on_path(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / name;
    if (is_program(candidate)) return candidate;
  }
  return "";
}

Program find_peer(const Peer& peer, const fs::path& folder,
                  const std::vector<std::string>& tutti_run, int ranks) {
  Program program{peer.name, peer.launch, "", tutti_run, ""};
  const std::string name = peer.name;
  const fs::path path = folder / (name + "_peer");
  if (!is_program(path)) {
    program.missing = fmt::format(
        "it was not there when Tutti was built: {}, then configure and build again", peer.install);
  }
  if (peer.launch != Launch::tutti_run) {
    program.launcher = peer.launcher != nullptr ? find_on_path(peer.launcher)
                                                : (folder / (name + "_run")).string();
    if (!is_program(program.launcher) && program.missing.empty()) {
      program.missing = peer.launcher != nullptr
                            ? fmt::format("{} is not on the PATH: {}", peer.launcher, peer.install)
                            : program.launcher + " is not there: " + peer.install;
    }
    program.command = {program.launcher, "-n", std::to_string(ranks)};
    if (peer.launch == Launch::open_mpi) {
      program.command.push_back("--oversubscribe");
      if (geteuid() == 0) program.command.push_back("--allow-run-as-root");
    }
    // By itself it would use a network's library beside shared memory, which costs it time.
    if (name == "intelmpi") {
      program.command.insert(program.command.begin(), {"/usr/bin/env", "I_MPI_FABRICS=shm"});
    }
  }
  program.command.push_back(path);
  return program;
}

}  // namespace

std::vector<std::string> peer_names() {
  std::vector<std::string> names;
  for (const Peer& peer : kPeers) names.push_back(peer.name);
  return names;
}

std::vector<Program> find_programs(fs::path folder, const std::vector<std::string>& peers,
                                   int ranks, bool windows) {
  const fs::path tutti = tutti_program();
  if (folder.empty()) folder = tools_folder();
  const std::vector<std::string> tutti_run{tutti, "run", "-n", std::to_string(ranks)};

  std::vector<Program> programs{{"tutti", Launch::tutti_run, "", tutti_run, ""}};
  if (windows) programs[0].command.push_back("--windows");
  programs[0].command.push_back(folder / "tutti_peer");
  if (!is_program(folder / "tutti_peer")) programs[0].missing = "it is not in " + folder.string();
  for (const Peer& peer : kPeers) {
    for (const std::string& wanted : peers) {
      if (wanted == peer.name) programs.push_back(find_peer(peer, folder, tutti_run, ranks));
    }
  }
  programs.push_back({"limit", Launch::itself, "", {folder / "limits"}, ""});
  if (!is_program(folder / "limits")) programs.back().missing = "it is not in " + folder.string();
  return programs;
}

}  // namespace tutti::compare
