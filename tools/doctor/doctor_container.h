// The findings of `tutti doctor` about containers: whether this is one, and what it limits.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tools/doctor/doctor_report.h"

namespace tutti {

void show_container(DoctorReport& report);

/// How many cores' time the control groups of this process allow; none: as much as there is.
/// `root`: where /proc and /sys are found; a test has others.
std::optional<double> cores_by_quota(const std::filesystem::path& root = "/");
/// What kind of container this is; "": none that shows.
std::string container_kind(const std::filesystem::path& root = "/");

}  // namespace tutti
