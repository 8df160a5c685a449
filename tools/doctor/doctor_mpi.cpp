// See doctor_mpi.h. The procedures are those of bindings/mpi/procedures.def.
#include "tools/doctor/doctor_mpi.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <map>
#include <string_view>

#include "tools/doctor/doctor_symbols.h"

namespace tutti {
namespace {

/// "": Tutti has it; else the class of the error that it returns.
const std::map<std::string_view, std::string_view>& procedures() {
  static const std::map<std::string_view, std::string_view> all{
#define TUTTI_MPI_OFFERED(result, name, parameters, arguments) {#name, ""},
#define TUTTI_MPI_REFUSED(error_class, name, parameters, arguments) {#name, #error_class},
#include "bindings/mpi/openmpi_procedures.def"
#include "bindings/mpi/procedures.def"
#undef TUTTI_MPI_OFFERED
#undef TUTTI_MPI_REFUSED
  };
  return all;
}

/// MPI_Send and PMPI_Send, MPIX_Stream_send; not MPIR_Dup_fn and MPI_UNWEIGHTED.
bool is_mpi_name(std::string_view text) {
  if (text.starts_with('P')) text.remove_prefix(1);
  if (text.starts_with("MPIX_")) return true;
  if (text.starts_with("MPI_T_")) return text.size() > 6 && std::islower(text[6]) != 0;
  return text.starts_with("MPI_") && text.size() > 5 && std::isupper(text[4]) != 0 &&
         std::islower(text[5]) != 0;
}

std::string_view without_p(std::string_view name) {
  return name.starts_with('P') ? name.substr(1) : name;
}

struct Interface {
  std::string_view library, whose;
  bool offered;
};
constexpr Interface kInterfaces[] = {
    {"libmpi_abi.so.1", "the standard's interface", true},
    {"libmpi.so.12", "MPICH's interface, and Intel MPI's", true},
    {"libmpich.so.12", "MPICH's interface, as Debian names it", true},
    {"libmpi.so.40", "Open MPI's interface", true},
    {"libmpi_cxx.so", "Open MPI's interface for C++", false},
    {"libmpicxx.so", "MPICH's interface for C++", false},
    {"libmpi_mpifh.so", "Open MPI's interface for Fortran", false},
    {"libmpifort", "MPICH's interface for Fortran", false},
};

void show_library(DoctorReport& report, const Symbols& program) {
  for (const std::string& library : program.libraries) {
    for (const Interface& each : kInterfaces) {
      if (!library.starts_with(each.library)) continue;
      const std::string text = fmt::format("{}: {}", library, each.whose);
      if (each.offered) {
        report.good("is linked with", text + "; `tutti run` puts Tutti's library in front");
      } else {
        report.bad("is linked with", text,
                   "Tutti has no such library: build the program with MPICH's mpicc or mpicc_abi");
      }
    }
  }
}

/// Those with one error in one line.
void show_refused_procedures(DoctorReport& report, const Names& needs) {
  std::map<std::string_view, std::vector<std::string_view>> by_class;
  for (const std::string& name : needs) {
    const auto known = procedures().find(without_p(name));
    if (known != procedures().end() && !known->second.empty())
      by_class[known->second].push_back(name);
  }
  for (const auto& [error_class, refused] : by_class) {
    report.good("refuses", fmt::format("{}: {}", fmt::join(refused, " "), error_class));
  }
}

void report_program(DoctorReport& report, const std::string& path) {
  report.section(path);
  const Symbols program = symbols_of(path, is_mpi_name);
  if (!program.trouble.empty()) return report.bad("the file", program.trouble);
  if (program.brings > 0) {
    return report.good("has itself", fmt::format("{} procedures of MPI", program.brings));
  }
  show_library(report, program);
  Names needs = program.needs;
  needs.insert(program.weak.begin(), program.weak.end());
  report.good("needs", fmt::format("{} procedures of MPI", needs.size()));
  for (const std::string& name : program.needs) {
    if (!procedures().contains(without_p(name)))
      report.bad("lacks", name, "Tutti's libraries have no such procedure: a call of it fails");
  }
  show_refused_procedures(report, needs);
}

}  // namespace

void report_mpi_programs(DoctorReport& report, const std::vector<std::string>& files) {
  for (const std::string& file : files) report_program(report, file);
}

}  // namespace tutti
