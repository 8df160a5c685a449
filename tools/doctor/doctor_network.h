// The findings of `tutti doctor` about ways to other hosts, and about the environment's settings.
#pragma once

#include "tools/doctor/doctor_report.h"

namespace tutti {

void show_settings(DoctorReport& report);
void show_meeting(DoctorReport& report);
void show_tcp(DoctorReport& report);
void show_rdma(DoctorReport& report);
void show_ucx(DoctorReport& report);
/// Where TUTTI_TRANSPORT asks for one.
void show_plugin(DoctorReport& report);

/// The ports of a host that others have to reach, for people.
std::string ports_text();

}  // namespace tutti
