// `tutti doctor`: which release of which library each side has.
#pragma once

#include <string>

#include "tools/doctor/doctor_report.h"

namespace tutti {

/// Tutti's own, and the Python packages', NCCL's, MPI's and the GPU driver's as a program that is
/// started here would find them. A Python package of another release than this program's is a
/// trouble. `python`: a program, with or without a path.
void show_versions(DoctorReport& report, const std::string& python);

}  // namespace tutti
