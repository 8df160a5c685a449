// The programs `tutti X`: what each does, what builds it, and where it lies. As git's, each is a
// program of its own, libexec/tutti/tutti-X beside the folder of `tutti`: in the build tree, in an
// installation wherever it has been moved to, and in the Python package.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

namespace tutti {

struct ToolProgram {
  std::string_view name;
  std::string_view summary;
  std::string_view option = {};  // of CMake, without which it is not built
};

/// In the order of `tutti --help`.
inline constexpr std::array kToolPrograms{
    ToolProgram{"demo", "all_reduce on this machine, checked and timed, beside Gloo and MPI"},
    ToolProgram{"plan", "List, show, prove and draw plans"},
    ToolProgram{"schedule", "List, show, prove, simulate and draw pipeline schedules"},
    ToolProgram{"calibrate", "Measure the constants of this machine, for the choice of algorithms"},
    ToolProgram{"explain", "Which algorithm would run, and how long it takes"},
    ToolProgram{"doctor", "What this machine offers to ranks, and how to get what is missing"},
    ToolProgram{"check", "Whether this machine, or several, are as fast as they should be"},
    ToolProgram{"top", "What the ranks of running jobs do, and who holds them up"},
    ToolProgram{"topo", "The GPUs, switches, NICs and links of this machine, or of a file"},
    ToolProgram{"estimate",
                "Memory, traffic and time of training a model, for each way to spread it"},
    ToolProgram{"reshard", "What it takes to bring weights from one layout of ranks into another"},
    ToolProgram{"settings", "The settings: environment variables, defaults"},
    ToolProgram{"compare", "Measure Tutti beside Open MPI, MPICH and Gloo", "TUTTI_LABORATORY"},
    ToolProgram{"predict",
                "How long NCCL's collectives would take on a cluster, from its description",
                "TUTTI_LABORATORY"},
};

/// Null: there is no such program.
const ToolProgram* find_tool(std::string_view name);

/// `tutti` itself, of this program, which is `tutti` or one of its tools.
std::filesystem::path tutti_program();

/// Where the tools of this `tutti` are.
std::filesystem::path tools_folder();

/// That of `tutti name`. It may be missing.
std::filesystem::path tool_path(std::string_view name);

/// Whether `path` is a program that this process may start.
bool is_program(const std::filesystem::path& path);

/// A tool whose program is missing: what builds it, in a sentence for the user.
std::string how_to_build(const ToolProgram& tool);

}  // namespace tutti
