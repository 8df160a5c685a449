// `tutti doctor --nccl-client`: what programs and libraries need of NCCL, and what of it Tutti's
// libnccl.so.2 has.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/doctor_report.h"

namespace tutti {

/// Finds in each file the symbols that the dynamic linker must find, and the names among its
/// constants, for which it may ask with dlsym(). A symbol that libnccl.so.2 lacks is a trouble: the
/// file cannot be loaded with it.
void report_nccl_clients(DoctorReport& report, const std::vector<std::string>& files);

}  // namespace tutti
