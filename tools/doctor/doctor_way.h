// `tutti doctor --listen` and `tutti doctor --to HOST`: whether two hosts reach each other as ranks
// on them would. The calling host connects, and sends 1 MiB there and back. Then the other host
// connects to a listener of the caller. Both report their findings.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tools/doctor/doctor_report.h"

namespace tutti {

/// Of the host `to`: "node2", "node2:20000", "10.0.0.2", "[fd00::2]:20000". Throws Error.
void test_way_to(DoctorReport& report, const std::string& to);

/// Waits for another host to call, at `port` (0: the usual one), and tests with it. Throws Error.
void await_way_test(DoctorReport& report, std::uint16_t port, std::chrono::nanoseconds wait);

}  // namespace tutti
