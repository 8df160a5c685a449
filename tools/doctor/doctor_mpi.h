// `tutti doctor --mpi`: what programs and libraries need of MPI, and what of it Tutti's libraries
// refuse.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/doctor_report.h"

namespace tutti {

/// Of each file: the library of MPI that it is linked with, how many procedures it needs, which of
/// them are refused, and, a trouble, which are not there.
void report_mpi_programs(DoctorReport& report, const std::vector<std::string>& files);

}  // namespace tutti
