// `tutti doctor --listen` and `tutti doctor --to HOST`: whether two hosts reach each other as ranks
// on them would. The one that calls connects, has 1 MiB brought there and back, and is connected to
// in return, at a listener of its own; both say what they have found.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tools/doctor_report.h"

namespace tutti {

/// Of the host `to`: "node2", "node2:20000", "10.0.0.2", "[fd00::2]:20000". Throws Error.
void test_way_to(DoctorReport& report, const std::string& to);

/// Waits for another host to call, at `port` (0: the usual one), and tests with it. Throws Error.
void await_way_test(DoctorReport& report, std::uint16_t port, std::chrono::nanoseconds wait);

}  // namespace tutti
